"""Keeps `frontend/locale` in step with the texts that code marks for translation.

`python -m cli.messages` adds what is new, drops what is gone and compiles; it names what waits for
a translation. With `--check` it changes nothing and fails where something would change.
"""

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from django.utils.translation.template import templatize

from cli.po import Catalogue, Message, compile_mo, read_po, write_po

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "frontend" / "locale" / "zh_Hans" / "LC_MESSAGES"
METADATA = """\
Language: zh_Hans
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit
Plural-Forms: nplurals=1; plural=0;
"""
_LITERAL = r"""u?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
_IN_TEMPLATE = re.compile(rf"\b(\w*gettext|_)\(\s*({_LITERAL}(?:\s*,\s*{_LITERAL})*)")
_IN_SCRIPT = re.compile(r'(?<![\w.])t\(\s*("(?:\\.|[^"\\])*")')
_PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%%|<[^>]+>")
_FUNCTIONS = re.compile(r"_|(n?p?)gettext(_lazy)?")


def marked_in_template(text: str) -> list[Message]:
    calls = _IN_TEMPLATE.findall(templatize(text))
    return [_message(name, ast.literal_eval(f"({literals},)")) for name, literals in calls]


def marked_in_python(text: str) -> list[Message]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if _FUNCTIONS.fullmatch(node.func.id):
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if texts and all(isinstance(text, str) for text in texts):
                found.append((node.lineno, _message(node.func.id, tuple(map(str, texts)))))
    return [message for _, message in sorted(found)]


def marked_in_script(text: str) -> list[Message]:
    return [Message(json.loads(literal)) for literal in _IN_SCRIPT.findall(text)]


def _message(function: str, texts: tuple[str, ...]) -> Message:
    context = texts[0] if function.startswith(("p", "np")) else ""
    rest = texts[1:] if context else texts
    return Message(rest[0], rest[1] if "n" in function.split("gettext")[0] else "", context)


def marked() -> dict[str, list[Message]]:
    """Every marked text by the catalogue it belongs to, in the order of the files."""
    pages: list[Message] = []
    for path in _files("frontend/templates", "*.html"):
        pages += marked_in_template(path.read_text())
    for path in _files("webapp", "*.py"):
        pages += marked_in_python(path.read_text())
    scripts: list[Message] = []
    for path in _files("frontend/static/js", "*.js"):
        scripts += marked_in_script(path.read_text())
    return {"django": _once(pages), "djangojs": _once(scripts)}


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted((CHECKOUT / folder).rglob(pattern))


def _once(messages: Iterable[Message]) -> list[Message]:
    return list(dict.fromkeys(messages))


def updated(old: Catalogue, messages: list[Message]) -> Catalogue:
    entries = {message: old.entries.get(message, [""]) for message in messages}
    return Catalogue(old.head, METADATA, entries)


def problems(catalogue: Catalogue) -> list[str]:
    """Texts without a translation, translations that lack or invent a placeholder or a tag, and
    texts with two plurals, which gettext cannot tell apart.
    """
    keys = Counter((message.context, message.text) for message in catalogue.entries)
    found = [f"marked twice, with another plural: {key[1]!r}" for key, n in keys.items() if n > 1]
    for message, texts in catalogue.entries.items():
        if not all(texts):
            found.append(f"not translated: {message.text!r}")
            continue
        expected = sorted(_PLACEHOLDER.findall(message.plural or message.text))
        if any(sorted(_PLACEHOLDER.findall(text)) != expected for text in texts):
            found.append(f"other placeholders: {message.text!r}: {texts[0]!r}")
    return found


def main() -> None:
    is_check = "--check" in sys.argv[1:]
    wrong: list[str] = []
    for domain, messages in marked().items():
        source, compiled = FOLDER / f"{domain}.po", FOLDER / f"{domain}.mo"
        now = source.read_text() if source.exists() else ""
        catalogue = updated(read_po(now), messages)
        text, binary = write_po(catalogue), compile_mo(catalogue)
        wrong += [f"{source.name}: {problem}" for problem in problems(catalogue)]
        if not is_check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            compiled.write_bytes(binary)
        elif text != now or not compiled.exists() or compiled.read_bytes() != binary:
            wrong.append(f"{source.name} is not up to date: run python -m cli.messages")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
