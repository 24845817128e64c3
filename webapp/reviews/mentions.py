"""Whom a comment names: `@name`, where the name is what stands before the @ of an email address,
or the whole address where two people of a project share it. Pure."""

import re
from collections import Counter
from collections.abc import Iterable

from webapp.accounts.models import User

_NAMED = re.compile(r"(?<![\w@.])@([\w.+%-]+(?:@[\w.-]+)?)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def handles(people: Iterable[User]) -> dict[str, User]:
    """By the name under which a comment can mention a person, in lower case."""
    people = list(people)
    short = Counter(_short(person) for person in people)
    return {
        (_short(person) if short[_short(person)] == 1 else person.email.lower()): person
        for person in people
    }


def _short(person: User) -> str:
    return person.email.lower().split("@")[0]


def mentioned(text: str, people: Iterable[User]) -> list[User]:
    """The people whom a Markdown text names, once each; code names nobody."""
    known = handles(people)
    by_email = {person.email.lower(): person for person in known.values()}
    found: dict[int, User] = {}
    for name in _NAMED.findall(_CODE.sub(" ", text)):
        name = name.lower().rstrip(".-")
        person = known.get(name) or by_email.get(name)
        if person is not None:
            found[person.pk] = person
    return list(found.values())
