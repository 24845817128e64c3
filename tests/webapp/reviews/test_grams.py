"""Parts of texts: whatever holds a query has all of the query's parts."""

from hypothesis import given
from hypothesis import strategies as st

from webapp.reviews import grams
from webapp.reviews.finding import fold

CHARACTERS = st.characters(exclude_categories=[]) | st.sampled_from("aAbB 货币ǅßİſ\0\x1b\u202e")
TEXTS = st.text(CHARACTERS, max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_what_holds_a_query_has_all_its_parts(before, query, after):
    parts = grams.hashes(grams.parts_of(fold(before + query + after)))
    assert set(grams.asked_for(query)) <= parts


@given(TEXTS)
def test_folding_keeps_every_character_at_its_place(text):
    assert len(fold(text)) == len(text)
    assert all(fold(one) == other for one, other in zip(text, fold(text), strict=True))


def test_chinese_needs_one_character_and_latin_three():
    assert grams.asked_for("货")
    assert grams.asked_for("a货b")
    assert grams.asked_for("abc")
    assert not grams.asked_for("ab")
    assert not grams.asked_for("")


def test_hashes_fit_the_database():
    found = grams.hashes(f"{i:03}" for i in range(1000))
    assert len(found) == 1000 and all(-(2**31) <= one < 2**31 for one in found)


def test_a_long_query_is_looked_up_by_some_of_its_parts():
    assert 8 <= len(grams.asked_for("".join(map(chr, range(200, 400))))) <= grams.MOST_ASKED
