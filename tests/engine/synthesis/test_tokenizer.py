"""The tokenizer: exact round trips, names cut alike everywhere, no way to forge a special token."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.environments.kg_search import full_graph, task_graph
from engine.environments.kg_search.calls import render_answer, render_lookup, render_values
from engine.environments.protocol import Task
from engine.synthesis.tasks import TaskSource, question
from engine.synthesis.tokenizer import PIECES, SPECIAL_TOKENS, Tokenizer

GRAPH = task_graph(300)
TASKS = TaskSource(GRAPH).draw(list(GRAPH.facts), 2, 800, "0")[0]
TOKENIZER = Tokenizer.train(
    [
        text
        for task in TASKS
        for text in (
            task.prompt,
            *(
                render_lookup(entity, relation)
                for entity, relation in zip(task.meta["path"], task.meta["relations"], strict=False)
            ),
            render_answer(task.answer),
        )
    ],
    vocab_size=1000,
)
text = st.text(st.characters(exclude_categories=["Cs"]))
hostile = st.lists(st.sampled_from([*SPECIAL_TOKENS, *PIECES, "<|", "|>", '"', "é", "end"])).map(
    "".join
)


def test_every_name_of_the_graph_survives() -> None:
    names = list(full_graph().kinds)
    for name, ids in zip(names, TOKENIZER.encode_texts(names), strict=True):
        assert TOKENIZER.decode_turn(ids) == name


@given(text | hostile)
@example("".join(SPECIAL_TOKENS))
def test_any_text_survives_without_a_special_token(content: str) -> None:
    ids = TOKENIZER.encode_text(content)
    assert TOKENIZER.decode_turn(ids) == content
    assert not {TOKENIZER.backend.token_to_id(token) for token in SPECIAL_TOKENS} & set(ids)
    assert b"".join(TOKENIZER.token_bytes(ids)).decode() == content


@given(text | hostile)
def test_no_text_leaves_its_part_of_the_layout(content: str) -> None:
    task = Task("t", "1 hop", content, "a", 1)
    special = set(range(len(SPECIAL_TOKENS)))
    for ids, ends in (
        (TOKENIZER.encode_prompt(task), (TOKENIZER.user_id, TOKENIZER.agent_id)),
        (TOKENIZER.encode_observation(content), (TOKENIZER.tool_id, TOKENIZER.agent_id)),
    ):
        assert (ids[0], ids[-1]) == ends
        assert not special & set(ids[1:-1])
    turn = TOKENIZER.encode_turn(content)
    assert turn[-1] == TOKENIZER.end_id and not special & set(turn[:-1])
    assert TOKENIZER.decode_turn(turn) == content


@pytest.mark.parametrize("kind", ["city", "airport", "country", "timezone", "language"])
def test_a_name_is_cut_alike_in_question_call_result_and_answer(kind: str) -> None:
    def contains(ids: list[int], part: list[int]) -> bool:
        return any(ids[i : i + len(part)] == part for i in range(len(ids)))

    for name in [name for name, of in GRAPH.kinds.items() if of == kind]:
        part = TOKENIZER.encode_text(name)
        for whole in (
            question(name, ["country"]),
            render_lookup(name, "country"),
            render_values([name]),
            render_answer(name),
        ):
            assert contains(TOKENIZER.encode_text(whole), part), (name, whole)


def test_each_relation_of_the_training_text_is_one_token() -> None:
    for relation in {relation for task in TASKS for relation in task.meta["relations"]}:
        assert len(TOKENIZER.encode_text(relation)) == 1, relation


def test_a_special_token_sampled_inside_a_turn_is_spelt_out() -> None:
    ids = [*TOKENIZER.encode_text("a"), TOKENIZER.tool_id, TOKENIZER.end_id, TOKENIZER.user_id]
    assert TOKENIZER.decode_turn(ids) == "a<|tool|>"


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - 1)))
def test_any_sampled_ids_decode(ids: list[int]) -> None:
    TOKENIZER.decode_turn(ids).encode()
    assert len(TOKENIZER.token_bytes(ids)) == len(ids)


def test_it_keeps_to_its_vocabulary() -> None:
    assert TOKENIZER.vocab_size <= 1000
    assert sorted(TOKENIZER.backend.get_vocab().values()) == list(range(TOKENIZER.vocab_size))


def test_it_is_the_same_after_saving_and_for_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    TOKENIZER.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    content = render_lookup("São Paulo <|end|>", "country")
    assert loaded.encode_turn(content) == TOKENIZER.encode_turn(content)
    assert loaded.token_bytes(range(loaded.vocab_size)) == TOKENIZER.token_bytes(
        range(loaded.vocab_size)
    )
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    plain = render_lookup("São Paulo", "country")
    assert theirs.encode(plain) == TOKENIZER.encode_text(plain)
    assert theirs.decode(theirs.encode(plain)) == plain
    assert (theirs.eos_token_id, theirs.pad_token_id) == (loaded.end_id, loaded.pad_id)


def test_it_says_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no tokenizer"):
        Tokenizer.load(tmp_path)
