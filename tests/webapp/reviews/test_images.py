"""Images in texts: which are shown, which are labelled, and that no place of a text is lost."""

import base64
import struct
import zlib

import pytest

from engine.records.trajectory import ToolCall
from tests.webapp.reviews.samples import lookup, read, trajectory
from webapp.reviews import finding, images, reading


def png(width: int = 3, height: int = 2, extra: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(3 * min(width, 100))) * min(height, 100))
    text = chunk(b"tEXt", b"k\0" + bytes(range(1, 256)) * (1 + extra // 255))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", head), text, chunk(b"IDAT", rows), chunk(b"IEND", b"")]
    )


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


GIF = b"GIF89a" + struct.pack("<HH", 5, 4) + bytes(300)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14)
    + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 20, 30) + bytes(300)
)  # fmt: skip
WEBP = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + b"\x06\0\0" + b"\x07\0\0" + bytes(300)


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        (png(), "png", (3, 2)),
        (GIF, "gif", (5, 4)),
        (JPEG, "jpeg", (30, 20)),
        (WEBP, "webp", (7, 8)),
    ],
)
@pytest.mark.parametrize("head", ["data:image/png;base64,", ""])
def test_it_knows_images_by_their_bytes_whatever_they_call_themselves(data, kind, size, head):
    text = f'before "{head}{b64(data)}" after'
    (found,) = images.find(text)
    assert (found.kind, (found.width, found.height), found.bytes) == (kind, size, len(data))
    assert text[found.start : found.stop] == head + b64(data)
    assert images.decode(text[found.start : found.stop]).data == data


@pytest.mark.parametrize(
    "data",
    [
        b"<svg onload='alert(1)'/>" * 20,
        b"<script>alert(1)</script>" * 20,
        b"\x89PNG\r\n\x1a\n" + bytes(300),  # a magic number and no head
        png(60_000, 60_000),  # 3.6 billion pixels
        png(0, 5),
        b"\xff\xd8\xff" + b"\xff" * 300,
    ],
)
@pytest.mark.parametrize("head", ["data:image/png;base64,", "data:image/svg+xml;base64,"])
def test_what_is_no_image_of_bounded_size_is_labelled_and_not_shown(data, head):
    (found,) = images.find(head + b64(data))
    assert found.kind == "" and found.bytes == pytest.approx(len(data), abs=2)
    assert images.decode(head + b64(data)) is None


def test_an_image_of_too_many_bytes_is_not_shown():
    (found,) = images.find(b64(png(extra=images.MAX_BYTES)))
    assert found.kind == "" and found.label == "base64"


def test_plain_text_holds_nothing():
    for text in ("", "data:image/png;base64,", "iVBORw0KGgo", "a" * 5000, "data:,x" * 99):
        assert list(images.find(text)) == []


def test_it_condenses_without_losing_a_place():
    picture = "data:image/png;base64," + b64(png())
    text = "".join(f"{i} {picture} 法" for i in range(50))
    start, found = 0, []
    while start < len(text):
        part, standing, stop = images.condense(text, start, 100)
        assert stop > start and len(part) <= 101
        rebuilt, last = "", 0
        for at, one in standing:
            assert part[at] == images.STANDS_FOR
            rebuilt += part[last:at] + text[one.start : one.stop]
            last = at + 1
        assert rebuilt + part[last:] == text[start:stop]
        found += [one for _, one in standing]
        start = stop
    assert len(found) == 50 and {one.kind for one in found} == {"png"}


def test_fifty_images_make_a_small_window_and_each_can_be_fetched():
    picture = b64(png(extra=60_000))
    result = "\n".join(f"page {i}: {picture}" for i in range(50))
    source = read(trajectory([("look", ToolCall("c", "look", {}, result, None, 0.1), None)]))
    (step,) = reading.window(source, 0, 1, with_tokens=False)
    found = step["embedded"]["result"]
    assert len(found) == 50 and len(step["call"]["result"]) < 1000
    assert step["more"]["result"] == len(result)
    for one in (found[0], found[-1]):
        image = reading.image_at(source.field(0, "result"), one["start"])
        assert image.kind == "png" and len(image.data) > 60_000
    assert reading.image_at(source.field(0, "result"), found[0]["start"] + 4) is None


def test_a_part_that_would_begin_inside_an_image_begins_with_it():
    text = "x" * 9 + " " + b64(png()) + "end"
    part = reading.field_part(text, 50, 100)
    assert part["first"] == 10 and part["text"] == images.STANDS_FOR + "end"


def test_nobody_finds_text_in_base64():
    hidden = "data:image/gif;base64," + b64(b"GIF89a\1\0\1\0" + b"needle" * 50)
    needle = hidden[80:92]
    source = read(trajectory([(f"{hidden} {needle}", lookup("a", "b", hidden), None)]))
    (match,) = finding.search(source, needle)["matches"]
    assert match["start"] == len(hidden) + 1


def test_the_api_serves_images_that_nothing_can_be_made_of(store, as_user, viewer):
    picture = "data:text/html;base64," + b64(png())  # whatever it calls itself
    store([trajectory([(f"a {picture}", lookup("a", "b", "c"), None)])])
    path = "/api/v1/trajectories/t0/steps/0/field/text/image"
    answer = as_user(viewer).get(f"{path}?at=2")
    assert answer.status_code == 200 and answer.content == png()
    assert answer["Content-Type"] == "image/png"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    for wrong in ("at=0", "at=3", "at=99999"):
        assert as_user(viewer).get(f"{path}?{wrong}").status_code == 404
    assert as_user(viewer).get(f"{path}?at=-1").status_code == 422
