"""Editing a spec's YAML in place, so that a person's comments and order stay as written."""

import json
from typing import Any

import yaml

from engine.spec.loading import TOO_DEEP
from webapp.problems import RefusedError

MAX_SPEC = 200_000  # characters of YAML or JSON
Span = tuple[int, int]
# Written in C where it is built; for lines and values only, since it counts places otherwise.
FAST: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_length(spec: str | dict[str, Any]) -> None:
    """Before anything else is done with it. Raises RefusedError: 413, or of what is too deep."""
    try:
        length = len(spec) if isinstance(spec, str) else len(json.dumps(spec, default=str))
    except RecursionError:
        raise RefusedError(TOO_DEEP) from None
    if length > MAX_SPEC:
        raise RefusedError(
            f"A spec has at most {MAX_SPEC:,} characters, not {length:,}: put what is that long "
            "into a dataset, and name its version in a stage.",
            status=413,
        )


def lines_of(text: str) -> dict[str, int]:
    """The line (from 1) on which each field stands, by dotted path; empty for broken YAML."""
    root = _compose(text, FAST)
    found: dict[str, int] = {}

    def walk(node: yaml.Node, path: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = f"{path}.{key.value}" if path else str(key.value)
                found[here] = key.start_mark.line + 1
                walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                here = f"{path}.{index}" if path else str(index)
                found[here] = item.start_mark.line + 1
                walk(item, here)

    try:
        if root is not None:
            walk(root, "")
    except RecursionError:
        return {}  # too deep for a spec, which its validation says
    return found


def line_near(lines: dict[str, int], path: str) -> int | None:
    """The line of a field, or of the nearest part around it that is written down."""
    while path:
        if path in lines:
            return lines[path]
        path = path.rpartition(".")[0]
    return None


def set_value(text: str, path: str, value: Any) -> str:
    """The text with the field set; parts on the way to it that are missing are added.

    Raises KeyError where the path leads through a plain value or beyond the end of a list.
    """
    node = _compose(text)
    if node is None or not isinstance(node, yaml.MappingNode):
        return text + f"{path.split('.')[0]}: {_flow(_nested(path.split('.')[1:], value))}\n"
    steps = path.split(".")
    for position, step in enumerate(steps):
        child = _child(node, step)
        if child is None:
            return _insert(text, node, step, _nested(steps[position + 1 :], value))
        node = child
    return _replace(text, node, _flow(value))


def set_block(text: str, key: str, value: dict[str, Any]) -> str:
    """The text with a field of the outermost mapping set, on lines of its own."""
    block = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False)
    node = _compose(text)
    pairs = node.value if isinstance(node, yaml.MappingNode) and not node.flow_style else []
    for name, old in pairs:
        if str(name.value) == key:
            start, stop = name.start_mark.index, _span(old)[1]
            end = text.find("\n", stop)
            return text[:start] + block + (text[end + 1 :] if end >= 0 else "")
    if node is not None and not pairs:
        return set_value(text, key, value)
    return text + ("" if not text or text.endswith("\n") else "\n") + block


def _replace(text: str, node: yaml.Node, value: str) -> str:
    start, stop = _span(node)
    if start == stop:  # `key:` with nothing behind it
        value = f" {value}"
    elif isinstance(node, yaml.SequenceNode) and not node.flow_style:
        # The dashes of a block may stand below their key's first letter, a plain value may not.
        value = f"  {value}"
    return text[:start] + value + text[stop:]


def remove_value(text: str, path: str) -> str:
    """The text without the field or list item; unchanged where it is not written down."""
    node = _compose(text)
    steps = path.split(".")
    for step in steps[:-1]:
        node = _child(node, step) if node is not None else None
    if not isinstance(node, yaml.CollectionNode):
        return text
    items = node.value
    for index, item in enumerate(items):
        is_pair = isinstance(node, yaml.MappingNode)
        first, last = item if is_pair else (item, item)
        if (str(first.value) if is_pair else str(index)) == steps[-1]:
            if len(items) == 1:
                return _replace(text, node, "{}" if is_pair else "[]")
            return _cut(text, node, index, (first.start_mark.index, _span(last)[1]))
    return text


def _cut(text: str, parent: yaml.CollectionNode, index: int, span: Span) -> str:
    start, stop = span
    if not parent.flow_style:
        if index == 0 and _shares_line(text, parent, start):  # `- kind: rl`: keep the dash
            following = parent.value[1]
            after = following[0] if isinstance(following, tuple) else following
            return text[:start] + text[after.start_mark.index :]
        begin = text.rfind("\n", 0, start) + 1
        end = text.find("\n", stop)
        return text[:begin] + (text[end + 1 :] if end >= 0 else "")
    if index + 1 < len(parent.value):
        following = parent.value[index + 1]
        after = following[0] if isinstance(following, tuple) else following
        return text[:start] + text[after.start_mark.index :]
    previous = parent.value[index - 1]
    before = previous[1] if isinstance(previous, tuple) else previous
    return text[: _span(before)[1]] + text[stop:]


def _shares_line(text: str, parent: yaml.CollectionNode, start: int) -> bool:
    """Whether a dash of an outer list stands before the first item of a block."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    own = 1 if isinstance(parent, yaml.SequenceNode) else 0
    return before.count("-") > own


def _insert(text: str, node: yaml.Node, step: str, value: Any) -> str:
    if isinstance(node, yaml.MappingNode):
        entry = f"{_flow(step)}: {_flow(value)}"
    elif isinstance(node, yaml.SequenceNode) and step == str(len(node.value)):
        entry = _flow(value) if node.flow_style else f"- {_flow(value)}"
    else:
        raise KeyError(step)
    start, stop = _span(node)
    if node.flow_style:
        separator = ", " if node.value else ""
        return text[: stop - 1] + separator + entry + text[stop - 1 :]
    end = text.find("\n", stop)
    end = len(text) if end < 0 else end
    column = node.start_mark.column
    return text[:end] + "\n" + " " * column + entry + text[end:]


def _child(node: yaml.Node | None, step: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if str(key.value) == step), None)
    if isinstance(node, yaml.SequenceNode):
        return node.value[int(step)] if step.isdecimal() and int(step) < len(node.value) else None
    raise KeyError(step)


def _span(node: yaml.Node) -> Span:
    """Where the node's own text lies; a block's end mark lies behind what follows it."""
    start, stop = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        stop = _span(last[1] if isinstance(last, tuple) else last)[1]
    elif isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        buffer = node.start_mark.buffer or ""
        while stop > start and buffer[stop - 1 : stop].isspace():
            stop -= 1
    return start, stop


def _nested(steps: list[str], value: Any) -> Any:
    for step in reversed(steps):
        value = [value] if step == "0" else {step: value}
    return value


def _flow(value: Any) -> str:
    """A value on one line, quoted so that it may also stand inside braces and brackets."""
    text = yaml.safe_dump(
        [value], allow_unicode=True, default_flow_style=True, width=10**9, sort_keys=False
    )
    return text.strip()[1:-1]


def _compose(text: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> yaml.Node | None:
    """None for broken YAML, and for aliases: a few lines of them can stand for gigabytes."""
    try:
        root = yaml.compose(text, loader)
    except (yaml.YAMLError, RecursionError):
        return None
    return None if root is not None and "*" in text and _has_aliases(root) else root


def _has_aliases(root: yaml.Node) -> bool:
    """Whether a node stands in two places."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            return True
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return False


def data_of(text: str) -> Any:
    """What the text says, valid or not, as plain JSON values; None for broken YAML."""
    root = _compose(text, FAST)
    try:
        return None if root is None else _plain(root)
    except RecursionError:
        return None


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    value = yaml.SafeLoader("").construct_object(node)
    return value if isinstance(value, str | int | float | bool | None) else str(node.value)
