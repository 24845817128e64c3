"""Reads and writes catalogues of translations: .po for people, .mo for gettext."""

import ast
import struct
from dataclasses import dataclass, field

MAGIC = 0x950412DE


@dataclass(frozen=True, order=True)
class Message:
    """What is looked up: a text, its plural where a number decides, a context where two differ."""

    text: str
    plural: str = ""
    context: str = ""


@dataclass
class Catalogue:
    """`head` is the comment of the file, `metadata` its first entry, a "Name: value" a line."""

    head: str = ""
    metadata: str = ""
    entries: dict[Message, list[str]] = field(default_factory=dict)


def read_po(text: str) -> Catalogue:
    """Raises ValueError where a line is none of this format's."""
    found = Catalogue()
    for number, block in enumerate(filter(None, text.strip().split("\n\n"))):
        comments, fields = _fields(block)
        texts = [fields[key] for key in sorted(fields) if key.startswith("msgstr")]
        if number == 0:
            found.head, found.metadata = comments, texts[0]
            continue
        message = Message(
            fields["msgid"], fields.get("msgid_plural", ""), fields.get("msgctxt", "")
        )
        if message in found.entries:
            raise ValueError(f"{message.text!r} is there twice")
        found.entries[message] = texts
    return found


def _fields(block: str) -> tuple[str, dict[str, str]]:
    comments: list[str] = []
    fields: dict[str, str] = {}
    key = ""
    for line in block.split("\n"):  # not at other ends of lines, which texts may hold
        if line.startswith("#"):
            comments.append(line)
            continue
        if not line.startswith('"'):
            key, _, line = line.partition(" ")
            fields[key] = ""
        if not key or not line.startswith('"'):
            raise ValueError(f"not a line of a catalogue: {line!r}")
        fields[key] += ast.literal_eval(line)
    return "\n".join(comments), fields


def write_po(catalogue: Catalogue) -> str:
    lines = [catalogue.head, 'msgid ""', 'msgstr ""']
    lines += [_quoted(line + "\n") for line in catalogue.metadata.splitlines()]
    for message, texts in catalogue.entries.items():
        lines.append("")
        if message.context:
            lines.append(f"msgctxt {_quoted(message.context)}")
        lines.append(f"msgid {_quoted(message.text)}")
        if message.plural:
            lines.append(f"msgid_plural {_quoted(message.plural)}")
            lines += [f"msgstr[{index}] {_quoted(text)}" for index, text in enumerate(texts)]
        else:
            lines.append(f"msgstr {_quoted(texts[0])}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def compile_mo(catalogue: Catalogue) -> bytes:
    """The format of gettext(1): a table of lengths and offsets for keys, one for translations.

    Entries without a translation are left out, so that the text itself is shown.
    """
    pairs = [("", catalogue.metadata)]
    for message, texts in catalogue.entries.items():
        if all(texts):
            key = f"{message.context}\x04{message.text}" if message.context else message.text
            pairs.append((f"{key}\0{message.plural}" if message.plural else key, "\0".join(texts)))
    encoded = sorted((key.encode(), text.encode()) for key, text in pairs)
    start = 28 + 16 * len(encoded)
    blob, tables = b"", []
    for column in (0, 1):
        for pair in encoded:
            tables.append((len(pair[column]), start + len(blob)))
            blob += pair[column] + b"\0"
    count = len(encoded)
    numbers = [MAGIC, 0, count, 28, 28 + 8 * count, 0, 0, *(n for row in tables for n in row)]
    return struct.pack(f"<{len(numbers)}I", *numbers) + blob
