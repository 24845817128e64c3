"""The filter language of runs: `status:running algo:cispo success>0.5 tag:baseline some text`.

    word            in name, notes, experiment or id
    key:value       status, algo, tag, experiment, user, id, variant, or spec.<path>;
                    `-key:value` negates
    metric>number   newest value; > >= < <= =; a metric's name or its short word
    dry:yes         dry runs alone, dry:all with the others; left out they are not among them
    created>2026-11-30   also with <, in UTC

Values with spaces are quoted. All terms must hold.
"""

import math
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import yaml
from django.db.models import JSONField, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KeyTransform

from webapp.experiments.models import Run, State
from webapp.monitoring.headline import HEADLINE, metric_named
from webapp.monitoring.models import Series
from webapp.problems import RefusedError, invalid_field

COMPARISON = re.compile(r"(?P<name>[^<>=:]+?)(?P<op>>=|<=|>|<|=)(?P<number>.+)")
# Words that Django takes for ways of comparing: none of them is a field of a spec.
NO_FIELDS = {*KeyTransform.get_class_lookups(), *JSONField.get_class_lookups()}
LOOKUPS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "exact"}


def filter_runs(runs: QuerySet[Run], text: str) -> QuerySet[Run]:
    """The runs for which every term holds. Raises RefusedError naming the term that is wrong."""
    if "\0" in text:
        raise invalid_field("q", "A filter has no NUL characters.")
    try:
        terms = shlex.split(text)
    except ValueError:
        raise invalid_field("q", "A quotation mark is not closed.") from None
    everything = runs
    if not any(term.startswith("dry:") for term in terms):
        runs = runs.filter(DRY["no"])
    for term in terms:
        negated = term.startswith("-") and len(term) > 1 and ":" in term
        body = term[1:] if negated else term
        key, colon, value = body.partition(":")
        if match := COMPARISON.fullmatch(body):
            name = match["name"]
            runs = _compared(runs, name, match["op"], match["number"])
            if (meant := _misspelt(name)) and not _measured(everything, name):
                raise invalid_field("q", f"No run has a metric {name!r}: do you mean {meant}?")
        elif colon:
            condition = _keyed(key, value)
            runs = runs.exclude(condition) if negated else runs.filter(condition)
        else:
            runs = runs.filter(
                Q(name__icontains=body)
                | Q(notes__icontains=body)
                | Q(experiment__name__icontains=body)
                | Q(pk=body)
            )
    return runs


def with_metric(runs: QuerySet[Run], metric: str, alias: str) -> QuerySet[Run]:
    """Annotate the newest value of a metric: of the newest attempt that has it, NULL where none."""
    newest = Series.objects.filter(run=OuterRef("pk"), name=metric).order_by("-attempt__number")
    return runs.annotate(**{alias: Subquery(newest.values("last_value")[:1])})


def _status(value: str) -> Q:
    if value == "active":
        return Q(ended_at=None)
    if value not in State.values:
        raise invalid_field(
            "q", f"There is no status {value!r}: {', '.join(State.values)} or active."
        )
    return Q(state=value)


def _no_dry(value: str) -> Q:
    raise invalid_field("q", f"dry:{value}: use {', '.join(DRY)}.")


def _user(value: str) -> Q:
    return Q(created_by__email__icontains=value) | Q(created_by__display_name__icontains=value)


# Dry runs are in no list that does not ask for them.
DRY = {"yes": Q(full_spec__isnull=False), "no": Q(full_spec__isnull=True), "all": Q()}
KEYS: dict[str, Callable[[str], Q]] = {
    "status": _status,
    "state": _status,
    "algo": lambda value: Q(spec__stages__contains=[{"algorithm": value}]),
    "tag": lambda value: Q(tags__contains=[value]),
    "experiment": lambda value: Q(experiment__name__iexact=value) | Q(experiment_id=value),
    "user": _user,
    "id": lambda value: Q(pk=value),
    "name": lambda value: Q(name__icontains=value),
    "variant": lambda value: Q(variant=value),
    "dry": lambda value: DRY[value] if value in DRY else _no_dry(value),
    "code": lambda value: Q(code_version__startswith=value),
}


def _keyed(key: str, value: str) -> Q:
    if key.startswith("spec."):
        return Q(**{f"spec__{_path(key[5:])}": _plain(value)})
    if key not in KEYS:
        known = f"{', '.join(KEYS)} or spec.<field>"
        raise invalid_field("q", f"There is no filter {key!r}; there are {known}.")
    return KEYS[key](value)


def _path(dotted: str) -> str:
    parts = dotted.split(".")
    plain = all(re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", part) for part in parts)
    if not plain or not NO_FIELDS.isdisjoint(parts):
        raise invalid_field("q", f"{dotted!r} is no path of a spec.")
    return "__".join(parts)


def _plain(value: str) -> Any:
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return found if isinstance(found, str | int | float | bool) else value


def _compared(runs: QuerySet[Run], name: str, op: str, given: str) -> QuerySet[Run]:
    if name == "created":
        return runs.filter(**{f"created_at__{LOOKUPS[op]}": _moment(given)})
    try:
        number = float(given)
    except ValueError:
        raise invalid_field("q", f"{name}{op}{given}: {given!r} is no number.") from None
    alias = f"metric_{abs(hash((name, op, given)))}"
    runs = with_metric(runs, metric_named(name), alias)
    if op != "=" or not math.isnan(number):  # NaN is above everything in PostgreSQL, here nowhere
        runs = runs.exclude(**{alias: math.nan})
    return runs.filter(**{f"{alias}__{LOOKUPS[op]}": number})


def _misspelt(name: str) -> str:
    """The short word that this one nearly is."""
    return "" if name in HEADLINE else next(iter(get_close_matches(name, HEADLINE, 1, 0.8)), "")


def _measured(runs: QuerySet[Run], name: str) -> bool:
    return Series.objects.filter(run__in=runs.values("pk"), name=name).exists()


def _moment(given: str) -> datetime:
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise RefusedError(f"{given!r} is no date like 2026-11-30 or 2026-11-30T12:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
