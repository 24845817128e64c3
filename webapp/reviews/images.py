"""Images that stand in texts as base64: found, told apart by their bytes, shown only where safe.

Only raster images of four kinds count, of a bounded size in bytes and in pixels. Whatever else
calls itself data (SVG, HTML, …) gets a label, and is never shown or run.
"""

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BYTES = 10_000_000
MAX_PIXELS = 50_000_000
STANDS_FOR = "\ufffc"  # the object replacement character, one for each image

# With a data URI's head, or bare where the first bytes are those of an image.
_EMBEDDED = re.compile(
    r"data:[\w.+-]{1,40}/[\w.+-]{1,60}(?:;[\w=.-]{1,60}){0,4};base64,[A-Za-z0-9+/]{128,}={0,2}"
    r"|(?<![A-Za-z0-9+/])(?:iVBORw0KGgo|/9j/|R0lGOD[dl]h|UklGR)[A-Za-z0-9+/]{128,}={0,2}"
)
_HINT = re.compile(r";base64,|iVBORw0KGgo|/9j/|R0lGOD|UklGR")


@dataclass(frozen=True)
class Image:
    kind: str  # png | jpeg | gif | webp
    data: bytes
    width: int  # pixels
    height: int


@dataclass(frozen=True)
class Embedded:
    """Characters `start` to `stop` of a text that are base64. `kind` is "" where no image is."""

    start: int
    stop: int
    kind: str
    label: str  # what it calls itself, or what it is
    bytes: int
    width: int = 0
    height: int = 0


def find(text: str) -> Iterator[Embedded]:
    """What is embedded in a text, in order."""
    for found in _EMBEDDED.finditer(text):
        yield _embedded(found.group(), found.start())


def at(text: str, start: int) -> Embedded | None:
    """What is embedded from `start` on; None where nothing begins there."""
    found = _EMBEDDED.match(text, start)
    return _embedded(found.group(), start) if found else None


def may_hold(text: str) -> bool:
    return bool(_HINT.search(text))


def blank(text: str) -> str:
    """The text with what is embedded made into signs that nobody looks for, at the same places."""
    if not may_hold(text):
        return text
    return _EMBEDDED.sub(lambda found: STANDS_FOR * len(found.group()), text)


def condense(text: str, first: int, count: int) -> tuple[str, list[tuple[int, Embedded]], int]:
    """About `count` characters from `first` on, in which STANDS_FOR stands for what is embedded:
    these, each embedded with its place in them, and where they end in the whole text."""
    stop = min(len(text), first + count)
    if not may_hold(text):
        return text[first:stop], [], stop
    parts: list[str] = []
    found: list[tuple[int, Embedded]] = []
    size, at = 0, first
    for one in find(text):
        if one.stop <= first:
            continue
        if one.start - at + size >= count:
            break
        parts += [text[at : one.start], STANDS_FOR]
        size += one.start - at + 1
        found.append((size - 1, one))
        at = one.stop
    stop = min(len(text), at + max(0, count - size))
    return "".join([*parts, text[at:stop]]), found, stop


def decode(text: str) -> Image | None:
    """The image that a data URI or bare base64 is; None where it is none that may be shown."""
    _, _, payload = text.rpartition(",")
    if len(payload) > MAX_BYTES * 4 // 3 + 4:
        return None
    try:
        data = base64.b64decode(payload + "=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return None
    kind, size = _look(data)
    if not kind or not 0 < size[0] * size[1] <= MAX_PIXELS:
        return None
    return Image(kind, data, *size)


def _embedded(text: str, start: int) -> Embedded:
    head, _, payload = text.rpartition(",")
    image = decode(text)
    if image is not None:
        kind, size = image.kind, (image.width, image.height)
        return Embedded(start, start + len(text), kind, f"image/{kind}", len(image.data), *size)
    label = head.removeprefix("data:").removesuffix(";base64") or "base64"
    return Embedded(start, start + len(text), "", label, len(payload) * 3 // 4)


def _look(data: bytes) -> tuple[str, tuple[int, int]]:
    """The kind by the first bytes, and (width, height) as the head gives them."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return "png", struct.unpack(">II", data[16:24])
        if data.startswith((b"GIF87a", b"GIF89a")):
            return "gif", struct.unpack("<HH", data[6:10])
        if data.startswith(b"\xff\xd8"):
            return "jpeg", _jpeg_size(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return "webp", _webp_size(data)
    except (struct.error, IndexError):
        pass
    return "", (0, 0)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the frame header: segments are walked until one of its kinds comes."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if form == b"VP8L":
        (bits,) = struct.unpack("<I", data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8X":
        return (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    return 0, 0
