"""The made-up long episode has the size that was asked for, and is stored like any other."""

import pytest

from tests.webapp.reviews.samples import read
from webapp.monitoring.seed.long_episode import STEPS_PER_SEGMENT, long_episode


@pytest.mark.parametrize(("steps", "chars", "longest"), [(600, 3_000_000, 400_000), (50, 0, 10)])
def test_it_has_the_steps_and_characters_that_were_asked_for(steps, chars, longest):
    made = long_episode("t", "g", steps=steps, chars=chars, longest=longest)
    sizes = [len(step.call.result) for step in made.steps if step.call]
    assert len(made.steps) == steps
    assert sizes[steps // 3] == longest and sizes.count(longest) == 1
    assert sum(sizes) == pytest.approx(max(chars, longest), rel=0.15)
    assert len(made.segments) == -(-steps // STEPS_PER_SEGMENT)


def test_its_tokens_say_what_the_policy_wrote():
    made = long_episode("t", "g", steps=450, chars=200_000, longest=5_000)
    source = read(made)
    for index in (0, 199, 200, 448):
        step = made.steps[index]
        part = source.tokens(step.segment, step.start, step.stop)
        assert "".join(text or "" for text in part.texts) == step.text
        assert all(part.loss_mask)


def test_it_is_the_same_each_time():
    one, two = (long_episode("t", "g", steps=20, chars=9_000, longest=800) for _ in range(2))
    assert one == two
