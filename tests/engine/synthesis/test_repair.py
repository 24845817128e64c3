"""Repair pairs: shared as sampled, compared from the first difference on, counted by class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.kg_search import task_graph
from engine.environments.kg_search.calls import render_answer, render_lookup
from engine.environments.kg_search.repair import KgRepairer
from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from engine.synthesis import Tokenizer
from engine.synthesis.repair import PairCollector, PairError, continued, faults_of, pair_of

NAMES = sorted(task_graph(50).kinds)[:40]
QUESTION = 'What is "{}"\'s country?'


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [QUESTION.format(name) for name in NAMES] + [render_answer(name) for name in NAMES]
    return Tokenizer.train([*texts, *(render_lookup(n, "country") for n in NAMES)], 500)


@pytest.fixture(scope="module")
def repairer() -> KgRepairer:
    return KgRepairer(task_graph(50))


def episode(tokenizer: Tokenizer, name: str, turns: list[tuple[str, str | None]]) -> Trajectory:
    """`turns`: text and the error that the environment gave, None where it went well."""
    prompt = QUESTION.format(name)
    ids = [tokenizer.user_id, *tokenizer.encode_text(prompt), tokenizer.agent_id]
    mask = [False] * len(ids)
    steps = []
    for index, (text, error) in enumerate(turns):
        start = len(ids)
        ids += tokenizer.encode_turn(text)
        mask += [True] * (len(ids) - start)
        call = ToolCall(f"call_{index}", "", None, '{"value":"France"}', error, 0.0)
        steps.append(Step(index, 0, start, len(ids), text, call))
        ids += tokenizer.encode_observation(call.result)
        mask += [False] * (len(ids) - len(mask))
    segment = Segment(ids, mask, [-0.5] * len(ids), [3] * len(ids))
    return Trajectory(
        "t", f"task {name}", "g", "1 hop", prompt, "", [segment], steps, StopReason.MAX_CALLS,
        Reward(0.0, True), False, "w", "", 0.0, sum(mask),
    )  # fmt: skip


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_a_pair_shares_all_tokens_up_to_the_first_difference(chosen, rejected):
    try:
        pair = pair_of("invalid_json", "t", chosen, rejected)
    except PairError as error:
        assert str(error).endswith((".", "compare."))
        return
    assert pair.prefix
    assert (pair.prefix + pair.chosen, pair.prefix + pair.rejected) == (chosen, rejected)
    assert pair.chosen[0] != pair.rejected[0]


@pytest.mark.parametrize(
    ("chosen", "rejected", "why"),
    [
        ([1, 2], [1, 2], "are the same 2 tokens"),
        ([], [], "are the same 0 tokens"),
        ([1, 2], [2, 2], "share no prefix"),
        ([], [1], "share no prefix"),
        ([1, 2], [1, 2, 3], "The chosen side ends after 2 tokens"),
        ([1, 2, 3], [1], "The rejected side ends after 1 tokens"),
    ],
)
def test_what_is_no_pair_is_refused_with_a_sentence(chosen, rejected, why):
    with pytest.raises(PairError, match=why):
        pair_of("invalid_json", "t", chosen, rejected)


@given(st.sampled_from(NAMES), st.data())
def test_a_repair_goes_on_from_the_sampled_tokens(tokenizer, name, data):
    right = render_lookup(name, "country")
    at = data.draw(st.integers(0, len(right)))
    turn = tokenizer.encode_turn(right[:at] + data.draw(st.text('"},x', max_size=3)) + right[at:])
    ids = continued(turn, right, tokenizer)
    assert tokenizer.decode_turn(ids) == right
    assert ids[-1] == tokenizer.end_id
    canonical = tokenizer.encode_turn(right)
    shared = next((n for n, (a, b) in enumerate(zip(ids, turn, strict=False)) if a != b), len(ids))
    same = next(
        (n for n, (a, b) in enumerate(zip(canonical, turn, strict=False)) if a != b), len(canonical)
    )
    assert len(ids) - shared <= len(canonical) - same, "never more new tokens than the text needs"


def test_tokens_that_spell_a_word_in_small_pieces_stay_as_they_were_sampled(tokenizer):
    right = render_lookup(NAMES[0], "country")
    pieces = [i for char in right[:-2] for i in tokenizer.encode_text(char)]
    turn = [*pieces, *tokenizer.encode_text("#"), tokenizer.end_id]
    assert len(pieces) > len(tokenizer.encode_text(right)), "not how the text would be encoded"
    ids = continued(turn, right, tokenizer)
    assert ids[: len(pieces)] == pieces
    assert tokenizer.decode_turn(ids) == right


def test_a_call_that_ends_too_early_is_compared_where_the_policy_chose_to_end_it(tokenizer):
    """`"` and the end instead of `"}` and the end: a lone `}` after `"` is never sampled."""
    right = render_lookup(NAMES[0], "country")
    canonical, early = tokenizer.encode_turn(right), tokenizer.encode_turn(right[:-1])
    assert tokenizer.token_bytes(canonical[-2:-1]) == [b'"}'], "else it is another case"
    assert continued(early, right, tokenizer) == canonical


@given(st.sampled_from(NAMES), st.data())
def test_of_places_with_as_few_new_tokens_a_repair_takes_the_shortest_turn(tokenizer, name, data):
    """Against every place at which the repair could go on."""
    right = render_lookup(name, "country")
    at = data.draw(st.integers(0, len(right)))
    wrong = right[:at] + data.draw(st.sampled_from(["", "_id", "}", '"'])) + right[at + 1 :]
    turn = tokenizer.encode_turn(wrong)
    ways = [
        (len(new), kept + len(new))
        for kept in range(len(turn) + 1)
        if (read := b"".join(tokenizer.token_bytes(turn[:kept]))) == right.encode()[: len(read)]
        for new in [[*tokenizer.encode_text(right[len(read) :]), tokenizer.end_id]]
    ]
    ids = continued(turn, right, tokenizer)
    assert len(ids) == min(ways)[1]
    assert tokenizer.decode_turn(ids) == right


def test_errors_become_pairs_by_class_without_duplicates_up_to_the_cap(tokenizer, repairer):
    name, other = NAMES[:2]
    right = render_lookup(name, "country")
    trajectory = episode(
        tokenizer,
        name,
        [
            (right, None),
            (right[:-1], "invalid_json"),
            (right.replace("lookup", "search"), "unknown_tool"),
            (render_lookup(name, "mayor"), "invalid_arguments"),
            (render_lookup(name, "continent"), "no_such_relation"),
            (right, "max_calls"),
        ],
    )
    collector = PairCollector(repairer, tokenizer, per_class=1)
    collector.add(trajectory)
    collector.add(trajectory)
    beheaded = render_lookup(other, "country")[1:]
    collector.add(episode(tokenizer, other, [(beheaded, "invalid_json")]))
    assert {fault: dict(counts) for fault, counts in collector.counts.items()} == {
        "invalid_json": {"errors": 3, "pairs": 1, "duplicates": 1, "over the cap": 1},
        "unknown_tool": {"errors": 2, "pairs": 1, "duplicates": 1},
        "invalid_arguments": {"errors": 2, "without repair": 1, "duplicates": 1},
    }
    ids = trajectory.segments[0].ids
    for pair, step in zip(collector.pairs, trajectory.steps[1:3], strict=True):
        assert pair.fault == step.call.error
        assert pair.prefix + pair.rejected == ids[: step.stop], "as it was sampled"
        assert len(pair.prefix) >= step.start, "the context is shared"
        repaired = [*pair.prefix, *pair.chosen][step.start :]
        assert tokenizer.decode_turn(repaired) == right
        assert pair.task_id == f"task {name}"


def test_faults_are_shares_of_all_calls_of_episodes_that_the_policy_ended(tokenizer):
    good = episode(tokenizer, NAMES[0], [("x", None), ("y", "invalid_json"), ("z", "invalid_json")])
    broken = episode(tokenizer, NAMES[1], [("x", "tool_failed")])
    broken.stop_reason = StopReason.INFRA_ERROR
    found = faults_of([good, broken])
    assert (found.calls, found.trajectories, found.successes) == (3, 1, 0)
    assert found.rate("invalid_json") == pytest.approx(2 / 3)
    assert found.rate("tool_failed") == 0.0
    assert faults_of([]).rate("invalid_json") == 0.0
