"""Token texts: characters stay whole however their bytes are cut into tokens."""

from hypothesis import given
from hypothesis import strategies as st

from engine.records.texts import whole_texts


def test_it_keeps_a_character_of_three_tokens_whole():
    bytes_of_you = "你".encode()
    pieces = [b"a", bytes_of_you[:1], bytes_of_you[1:2], bytes_of_you[2:], b"b"]
    assert whole_texts(pieces) == ["a", "你", None, None, "b"]


def test_it_joins_tokens_that_share_a_character():
    assert whole_texts([b"x\xc3", b"\xa9y"]) == ["xéy", None]


def test_it_shows_bytes_that_are_no_text_as_replacement_characters():
    assert whole_texts([b"\xff", b"a", b"\xe4\xbd"]) == ["\ufffd", "a", "\ufffd"]


def test_it_keeps_empty_tokens():
    assert whole_texts([b"", b"a", b""]) == ["", "a", ""]


@given(st.text(), st.lists(st.integers(0, 200), max_size=60))
def test_it_loses_nothing_wherever_the_bytes_are_cut(text, cuts):
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    pieces = [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    texts = whole_texts(pieces)
    assert len(texts) == len(pieces)
    assert "".join(t for t in texts if t is not None) == text


@given(st.lists(st.binary(max_size=5)))
def test_it_agrees_with_one_decoding_of_all_bytes(pieces):
    texts = whole_texts(pieces)
    assert "".join(t for t in texts if t is not None) == b"".join(pieces).decode(errors="replace")
