"""Windows, contexts, matches and differences of stored trajectories."""

from engine.records.trajectory import Segment, ToolCall
from tests.webapp.reviews.samples import PROMPT, lookup, read, trajectory
from webapp.reviews import finding, reading


def test_it_shows_steps_with_calls_and_tokens():
    first, second, last = reading.window(read(trajectory()), 0, 50, with_tokens=True)
    assert first["call"]["arguments"] == {"entity": "Lyon", "relation": "country"}
    assert first["call"]["result"] == "France 法国"
    assert first["more"] == {}
    assert "".join(t["text"] or "" for t in first["tokens"]) == first["text"]
    assert {t["version"] for t in first["tokens"]} == {3}
    assert second["detour"] and not any(t["trained"] for t in second["tokens"])
    assert last["answer"] == "Euro" and last["call"] is None


def test_it_leaves_tokens_out_where_nobody_asked():
    (step,) = reading.window(read(trajectory()), 1, 1, with_tokens=False)
    assert "tokens" not in step and step["index"] == 1


def test_it_cuts_long_fields_and_says_how_long_they_are():
    call = ToolCall("c", "lookup", {"entity": "x" * 9_000}, "法" * 30_000, None, 0.1)
    source = read(trajectory([("y" * 5_000, call, None)]))
    (step,) = reading.window(source, 0, 1, with_tokens=False)
    assert step["more"]["result"] == 30_000 and step["more"]["text"] == 5_000
    assert step["more"]["arguments"] > 9_000 and step["call"]["arguments"] == {}
    assert step["call"]["result"] == "法" * len(step["call"]["result"])
    assert len(step["text"]) == reading.CUT
    assert source.field(0, "result") == "法" * 30_000


def test_it_gives_a_character_of_several_tokens_to_the_first_of_them():
    source = read(trajectory([("法国 Lyon", None, None)]))
    (step,) = reading.window(source, 0, 1, with_tokens=True)
    texts = [token["text"] for token in step["tokens"]]
    assert texts[0] == "法国" and texts[1:3] == [None, None]  # six bytes in three tokens
    assert "".join(t or "" for t in texts) == "法国 Lyon"


def test_it_shows_what_the_model_saw_and_who_wrote_it():
    page = reading.context(read(trajectory()), 2, None)
    assert page["first"] == 0 and page["total"] == page["stop"]
    told = [(span["by"], span["trained"], span["text"]) for span in page["spans"]]
    assert told == [
        ("environment", False, PROMPT),
        ("policy", True, '{"tool":"lookup","entity":"Lyon"}'),
        ("environment", False, "France 法国"),
        ("policy", False, '{"tool":"lookup","entity":"France"}'),  # a forced detour
        ("environment", False, "Euro 欧元"),
    ]
    assert sum(len(span["ids"]) for span in page["spans"]) == page["total"]


def test_it_pages_a_long_context_backwards_without_losing_a_token():
    source = read(trajectory([("a" * 30_000, None, None), ("b", None, None)]))
    page = reading.context(source, 1, None)
    ids = [i for span in page["spans"] for i in span["ids"]]
    assert len(ids) == reading.MAX_TOKENS
    while page["first"]:
        page = reading.context(source, 1, page["first"])
        ids = [i for span in page["spans"] for i in span["ids"]] + ids
    assert ids == source.tokens(0, 0, page["total"]).ids


def test_it_shows_ids_where_the_sampler_did_not_say_what_they_mean():
    written = trajectory()
    written.segments[0].texts = []
    page = reading.context(read(written), 1, None)
    assert all(span["text"] is None and span["ids"] for span in page["spans"])
    (step,) = reading.window(read(written), 0, 1, with_tokens=True)
    assert {token["text"] for token in step["tokens"]} == {""}


def test_it_shows_the_context_of_the_steps_own_segment():
    written = trajectory()
    written.segments.append(Segment([7, 8], [False, True], [0.0, -1.0], [-1, 9], 0, ["x", "y"]))
    written.steps[2].segment, written.steps[2].start, written.steps[2].stop = 1, 1, 2
    page = reading.context(read(written), 2, None)
    assert (page["segment"], page["parent"], page["total"]) == (1, 0, 1)
    assert [span["text"] for span in page["spans"]] == ["x"]


def test_it_finds_text_in_any_field_whatever_its_case():
    source = read(trajectory())
    assert [(m["step"], m["field"]) for m in finding.search(source, "EURO")["matches"]] == [
        (1, "result"),
        (2, "text"),
        (2, "answer"),
    ]
    assert [m["field"] for m in finding.search(source, "lookup")["matches"]] == ["text", "text"]
    assert finding.search(source, ".*")["matches"] == []  # no pattern, just text


def test_it_finds_chinese():
    found = finding.search(read(trajectory()), "欧元")["matches"]
    assert found == [
        {
            "step": 1,
            "field": "result",
            "start": 5,
            "stop": 7,
            "before": "Euro ",
            "match": "欧元",
            "after": "",
        }
    ]
    assert finding.search(read(trajectory()), "货币")["matches"][0]["field"] == "prompt"


def test_it_finds_what_stands_at_the_end_of_a_very_long_result():
    long = ToolCall("c", "lookup", {}, "x" * 5_000_000 + "needle", None, 0.1)
    (match,) = finding.search(read(trajectory([("a", long, None)])), "needle")["matches"]
    assert match["start"] == 5_000_000


def test_it_says_that_there_are_more_matches_than_it_lists():
    found = finding.search(read(trajectory([("a" * 500, None, None)])), "a")
    assert len(found["matches"]) == finding.MAX_MATCHES and not found["complete"]


def test_two_equal_trajectories_do_not_diverge():
    assert reading.divergence(read(trajectory()), read(trajectory(name="t1"))) is None


def test_it_names_the_first_step_and_character_that_differ():
    other = trajectory(
        [
            ('{"tool":"lookup","entity":"Lyon"}', lookup("Lyon", "country", "France 法国"), None),
            ('{"tool":"lookup","entity":"Fiji"}', lookup("Fiji", "currency", "Dollar"), None),
        ]
    )
    found = reading.divergence(read(trajectory()), read(other))
    assert found == {"step": 1, "field": "text", "at": len('{"tool":"lookup","entity":"F')}


def test_it_sees_a_difference_deep_in_a_long_result():
    def one(end: str):
        return read(
            trajectory([("a", ToolCall("c", "lookup", {}, "x" * 1_000_000 + end, None, 0), None)])
        )

    assert reading.divergence(one("1"), one("2")) == {"step": 0, "field": "result", "at": 1_000_000}


def test_it_says_where_the_shorter_one_ends():
    shorter = trajectory()
    shorter.steps = shorter.steps[:2]
    found = reading.divergence(read(trajectory()), read(shorter))
    assert found == {"step": 2, "field": "end", "at": 0}


def test_it_knows_a_demonstrated_turn_from_what_the_environment_wrote():
    written = trajectory()
    segment = written.segments[0]
    segment.versions = [-1] * len(segment.ids)  # no policy sampled it; step 1 is a masked detour
    spans = reading.context(read(written), 2, None)["spans"]
    assert [(span["by"], span["trained"]) for span in spans] == [
        ("environment", False),
        ("policy", True),
        ("environment", False),
        ("policy", False),
        ("environment", False),
    ]
