"""Files that people write, as text and as YAML whose few lines cannot stand for gigabytes."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from caravan.errors import RefusedError


class PlainLoader(yaml.SafeLoader):
    """Refuses aliases, keys that occur twice, and keys that JSON has no words for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read here", None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        counts = Counter(str(key.value) for key, _ in node.value)
        wrong = next((key for key, count in counts.items() if count > 1), None)
        if wrong is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"{wrong[:60]!r} is given twice", node.start_mark
            )
        if not all(isinstance(key, str | int) for key in found):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is a word or a whole number", node.start_mark
            )
        return found


def read_text(path: Path, hint: str = "name a file with a spec in YAML") -> str:
    """The text of a file. Raises RefusedError."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise RefusedError(f"There is no file {path}: {hint}.") from None
    except UnicodeDecodeError:
        raise RefusedError(f"{path} is no text in UTF-8.") from None


def read_mapping(path: Path, hint: str, fields: str) -> dict[str, Any]:
    """The mapping in a file, whose `fields` a refusal names. Raises RefusedError."""
    try:
        data = yaml.load(read_text(path, hint), PlainLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise RefusedError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise RefusedError(f"{path} is nested too deeply.") from None
    if not isinstance(data, dict):
        raise RefusedError(f"{path} must be a mapping with {fields}.")
    return data
