"""Parts of a text by which it is found: the bundled PostgreSQL has no such index of its own.

Three letters in a row make a part; Chinese, Japanese and Korean need fewer: one character, and two
in a row. A text that contains a query has all parts of the query. Parts are stored as hashes, so
that what has them all may still lack the query: it has to be looked at.
"""

from collections.abc import Iterable
from zlib import crc32

from webapp.reviews.finding import fold

WIDE = 0x2E80  # from here on a character says about as much as a word
MOST_ASKED = 16  # parts of a long query that are looked up


def parts_of(text: str) -> set[str]:
    folded = fold(text)
    wide = {c for c in set(folded) if ord(c) >= WIDE}
    found = set(wide)
    if wide:
        pairs = set(map("".join, zip(folded, folded[1:], strict=False)))
        found |= {pair for pair in pairs if not wide.isdisjoint(pair)}
    triples = set(map("".join, zip(folded, folded[1:], folded[2:], strict=False)))
    return found | ({one for one in triples if wide.isdisjoint(one)} if wide else triples)


def hashes(parts: Iterable[str]) -> set[int]:
    """32 bits with a sign, as PostgreSQL's integers have."""
    return {_signed(crc32(part.encode("utf-8", "surrogatepass"))) for part in parts}


def asked_for(query: str) -> list[int]:
    """Hashes that every text with this query has; none where the query is too short to tell."""
    ordered = sorted(parts_of(query), key=len, reverse=True)  # the longer, the rarer
    stride = max(1, -(-len(ordered) // MOST_ASKED))
    return sorted(hashes(ordered[::stride]))


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
