"""Rows of datasets: taken as recorded where their ids spell their text, encoded, or refused."""

from typing import Any

import pytest

from engine.environments.kg_search import task_graph
from engine.environments.kg_search.calls import render_answer, render_lookup
from engine.records.rows import RowError, check_row, learned, sides
from engine.synthesis import Tokenizer
from engine.synthesis.repair import pair_of

NAMES = sorted(task_graph(50).kinds)[:40]
QUESTION = 'What is "{}"\'s country?'
LOOKUP, ANSWER = render_lookup(NAMES[0], "country"), render_answer("France")
RESULT = '{"value":"France"}'


def trained(names: list[str]) -> Tokenizer:
    return Tokenizer.train([t.format(n) for n in names for t in (QUESTION, "{}")], 400)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [QUESTION.format(n) for n in NAMES] + [render_lookup(n, "country") for n in NAMES]
    return Tokenizer.train([*texts, ANSWER, RESULT], 500)


def row(**fields: Any) -> dict[str, Any]:
    """Of text alone, as an upload may be."""
    call = {"name": "lookup", "result": RESULT}
    steps = [{"text": LOOKUP, "call": call}, {"text": ANSWER, "call": None}]
    return {"id": "a", "prompt": QUESTION.format(NAMES[0]), "steps": steps, "other": 1, **fields}


def recorded(tokenizer: Tokenizer, **fields: Any) -> dict[str, Any]:
    """As a run with this tokenizer records the same."""
    prompt = QUESTION.format(NAMES[0])
    ids = [tokenizer.user_id, *tokenizer.encode_text(prompt), tokenizer.agent_id]
    mask, steps = [False] * len(ids), []
    for text, result in ((LOOKUP, RESULT), (ANSWER, None)):
        turn = tokenizer.encode_turn(text)
        at = {"segment": 0, "start": len(ids), "stop": len(ids) + len(turn)}
        steps.append({"text": text, "call": result and {"result": result}, **at})
        ids, mask = [*ids, *turn], [*mask, *[True] * len(turn)]
        if result:
            ids += tokenizer.encode_observation(result)
            mask += [False] * (len(ids) - len(mask))
    return row(steps=steps, segments=[{"ids": ids, "loss_mask": mask}], category="1 hop", **fields)


def refused(given: dict[str, Any], tokenizer: Tokenizer, longest: int = 1000) -> RowError:
    with pytest.raises(RowError) as raised:
        learned(given, tokenizer, longest)
    return raised.value


def test_recorded_ids_are_taken_as_they_are(tokenizer: Tokenizer) -> None:
    given = recorded(tokenizer)
    (segment,) = learned(given, tokenizer, 1000).segments
    assert segment.ids == given["segments"][0]["ids"]
    assert segment.loss_mask == given["segments"][0]["loss_mask"]
    assert learned(given, tokenizer, 1000).category == "1 hop"


def test_text_alone_becomes_what_a_run_would_have_recorded(tokenizer: Tokenizer) -> None:
    (segment,) = learned(row(), tokenizer, 1000).segments
    expected = recorded(tokenizer)["segments"][0]
    assert (segment.ids, segment.loss_mask) == (expected["ids"], expected["loss_mask"])


def test_a_detour_is_read_and_not_learned(tokenizer: Tokenizer) -> None:
    steps = row()["steps"]
    (segment,) = learned(
        row(steps=[{**steps[0], "detour": True}, steps[1]]), tokenizer, 1000
    ).segments
    shown = [i for i, kept in zip(segment.ids, segment.loss_mask, strict=True) if kept]
    assert shown == tokenizer.encode_turn(ANSWER)


def test_ids_of_another_tokenizer_are_refused_with_both_spellings(tokenizer: Tokenizer) -> None:
    other = trained(NAMES[20:])
    error = refused(recorded(other), tokenizer)
    assert error.reason == "another tokenizer"
    assert str(error).startswith(f"prompt says {QUESTION.format(NAMES[0])!r}, and its ids spell ")
    found = recorded(tokenizer)
    found["segments"][0]["ids"][-1] = tokenizer.vocab_size
    error = refused(found, tokenizer)
    assert str(tokenizer.vocab_size) in str(error)
    assert error.reason == "another tokenizer"
    found = recorded(tokenizer)
    found["segments"][0]["ids"][found["steps"][1]["start"]] = tokenizer.tool_id
    assert str(refused(found, tokenizer)).startswith("steps.1.text says")
    found = recorded(tokenizer)
    found["segments"][0]["ids"][0] = tokenizer.tool_id
    assert "do not begin with the question" in str(refused(found, tokenizer))


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"steps": []}, "not of this form", "steps"),
        ({"steps": [{"text": 5}]}, "not of this form", "steps.0.text"),
        ({"steps": [{"text": LOOKUP}, {"text": ANSWER}]}, "not of this form", "steps.0"),
        ({"prompt": "a\ufffdb"}, "lossy text", "prompt cannot be encoded"),
        ({"prompt": "a\ud800b"}, "lossy text", "prompt"),
        ({"stop_reason": "max_turn_tokens"}, "cut short", "max_turn_tokens"),
        ({"segments": [{"ids": [1], "loss_mask": []}]}, "not of this form", "segments.0"),
        ({"segments": [{"ids": [-1], "loss_mask": [True]}]}, "not of this form", "segments.0.ids"),
    ],
)
def test_a_row_that_teaches_nothing_names_its_field(
    tokenizer: Tokenizer, change: dict[str, Any], reason: str, said: str
) -> None:
    error = refused(row(**change), tokenizer)
    assert error.reason == reason
    assert said in str(error)


def test_tokens_beyond_the_turns_are_never_learned(tokenizer: Tokenizer) -> None:
    found = recorded(tokenizer)
    found["segments"][0]["loss_mask"][1] = True
    assert "segments.0.loss_mask has token 1" in str(refused(found, tokenizer))
    found = recorded(tokenizer)
    found["steps"][1]["stop"] += 1
    assert "steps.1 is said to be tokens" in str(refused(found, tokenizer))
    found = recorded(tokenizer)
    found["steps"][1]["segment"] = 1
    assert "of no segment" in str(refused(found, tokenizer))
    found = recorded(tokenizer)
    found["segments"][0]["loss_mask"] = [False] * len(found["segments"][0]["ids"])
    assert refused(found, tokenizer).reason == "nothing to learn"


def test_a_segment_that_cannot_be_trained_on_is_refused(tokenizer: Tokenizer) -> None:
    found = recorded(tokenizer)
    found["segments"].append({"ids": [], "loss_mask": []})
    assert "segments.1 has no token before the first" in str(refused(found, tokenizer))
    found = recorded(tokenizer)
    turn = tokenizer.encode_turn(ANSWER)
    found["segments"].append({"ids": turn, "loss_mask": [True] * len(turn)})
    found["steps"].append({"text": ANSWER, "segment": 1, "start": 0, "stop": len(turn)})
    error = refused(found, tokenizer)
    assert error.reason == "not of this form"
    assert "segments.1 has no token before the first" in str(error)


def test_a_row_longer_than_an_episode_is_refused(tokenizer: Tokenizer) -> None:
    size = len(recorded(tokenizer)["segments"][0]["ids"])
    assert learned(row(), tokenizer, size)
    error = refused(row(), tokenizer, size - 1)
    assert error.reason == "too long"
    assert f"It has {size} tokens" in str(error)


def test_a_pair_shares_its_context_and_compares_two_turns(tokenizer: Tokenizer) -> None:
    given = row(steps=row()["steps"][:1], chosen=ANSWER, rejected=render_answer("Spain"))
    category, chosen, rejected = sides({**given, "category": "answer"}, tokenizer, 1000)
    assert category == "answer"
    assert chosen == recorded(tokenizer)["segments"][0]["ids"]
    pair = pair_of(category, "", chosen, rejected)
    assert tokenizer.decode_turn(pair.chosen) in ANSWER
    with pytest.raises(RowError, match="chosen"):
        sides({**given, "chosen": {"text": "x"}}, tokenizer, 1000)
    with pytest.raises(RowError, match="environment.max_tokens"):
        sides(given, tokenizer, 5)


def test_the_form_is_known_without_a_tokenizer(tokenizer: Tokenizer) -> None:
    check_row("trajectories", recorded(tokenizer))
    check_row("pairs", {"prompt": "a", "chosen": "b", "rejected": "c"})
    with pytest.raises(RowError, match="chosen"):
        check_row("pairs", row())
