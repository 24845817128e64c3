"""Text of agents and colleagues, made safe to print: a terminal obeys what it is sent."""

import re
import unicodedata
from collections.abc import Iterator

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, screen
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles
    r"|\x1b[ -/]*[0-~]?"
)
_JOINERS = "\u200c\u200d"  # part of words and of emoji
_SPARKS = "▁▂▃▄▅▆▇█"


def plain(text: str) -> str:
    """Without escape sequences, control characters other than tab and line end, and invisible
    formatting such as changes of direction."""
    return "".join(_shown(character) for character in _ESCAPES.sub("", text))


def one_line(text: str, most: int = 200) -> str:
    """`plain`, on one line of at most `most` characters."""
    line = " ".join(plain(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def sparkline(values: list[float], width: int = 30) -> str:
    """The last values as a row of bars, the lowest and the highest of them as its range."""
    shown = values[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return _SPARKS[3] * len(shown)
    scale = (len(_SPARKS) - 1) / (high - low)
    return "".join(_SPARKS[round((value - low) * scale)] for value in shown)


def _shown(character: str) -> str:
    if character in "\t\n" or character in _JOINERS:
        return character
    category = unicodedata.category(character)
    if category in ("Cc", "Cf"):
        return ""
    if category in ("Zl", "Zp"):
        return "\n"
    return "\ufffd" if category in ("Cs", "Co") else character


def lines_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without their ends. What only Unicode takes for the end of a line, U+2028 for example,
    may stand in what an agent wrote."""
    parts: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        parts.append(first)
        for one in others:
            yield b"".join(parts)
            parts = [one]
    if rest := b"".join(parts):
        yield rest
