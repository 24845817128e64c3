"""What would make a case fit: one change after the other, those that cost least first."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd

from engine.planner.cases import Case, with_engine
from engine.planner.devices import MOST_DEVICES
from engine.planner.parameters import parameters
from engine.planner.sizes import sized

LOGITS_ROWS = 2048
SMALL_CRITIC = 1e9
MOST_TIMES = 64  # more devices than asked for, at the most


@dataclass(frozen=True)
class Fix:
    """Changes that, together, make a case fit; the case they lead to."""

    changes: tuple[str, ...]
    case: Case


Change = Callable[[Case], Case | None]  # None: does not apply


def _engine_sleeps(case: Case) -> Case | None:
    if not case.needs.samples or case.setup.engine != "resident":
        return None
    return _set_up(case, engine="sleep")


def _logits_chunked(case: Case) -> Case | None:
    tokens = case.setup.micro_tokens / case.setup.model_parallel
    if case.setup.logits_rows is not None or tokens <= LOGITS_ROWS:
        return None
    return _set_up(case, logits_rows=LOGITS_ROWS)


def _sequence_parallel(case: Case) -> Case | None:
    ways = gcd(case.cluster.count, case.cluster.node)
    if case.setup.model_parallel >= ways:
        return None
    return _set_up(case, model_parallel=ways)


def _offload(case: Case) -> Case | None:
    if case.setup.offload or case.cluster.device.name == "cpu":
        return None
    return _set_up(case, offload=True)


def _critic_1b(case: Case) -> Case | None:
    critic = case.roles.critic
    if critic is None or parameters(critic).total < 1.5 * SMALL_CRITIC:
        return None
    return replace(case, roles=replace(case.roles, critic=sized(SMALL_CRITIC)))


def _no_reference(case: Case) -> Case | None:
    if not case.roles.reference or case.setup.optimizer == "lora":
        return None
    return replace(case, roles=replace(case.roles, reference=False))


def _moments_8bit(case: Case) -> Case | None:
    if case.setup.optimizer not in ("adamw", "muon"):
        return None
    return _set_up(case, optimizer="adamw8")


def _optimizer_on_host(case: Case) -> Case | None:
    if case.setup.optimizer in ("adamw_cpu", "lora") or case.cluster.device.name == "cpu":
        return None
    return _set_up(case, optimizer="adamw_cpu")


def _lora(case: Case) -> Case | None:
    if case.setup.optimizer == "lora":
        return None
    return _set_up(case, optimizer="lora")


def _more_devices(case: Case) -> Case | None:
    """The fewest that fit, doubling the nodes; where none do, None."""
    count = case.cluster.count
    for times in range(1, MOST_TIMES.bit_length()):
        more = count << times
        if more > MOST_DEVICES:
            return None
        found = replace(case, cluster=case.cluster.of(more))
        found = with_engine(_set_up(found, shards=more))
        if found.fits:
            return found
    return None


CHANGES: dict[str, Change] = {
    "engine_sleeps": _engine_sleeps,
    "logits_chunked": _logits_chunked,
    "sequence_parallel": _sequence_parallel,
    "offload": _offload,
    "moments_8bit": _moments_8bit,
    "optimizer_on_host": _optimizer_on_host,
    "critic_1b": _critic_1b,
    "no_reference": _no_reference,
    "lora": _lora,
    "more_devices": _more_devices,
}


def fixes(case: Case) -> list[Fix]:
    """Single changes that make the case fit; where only more devices do, a row of others first.

    A row takes changes in order until it fits, then leaves out those that it does not need.
    """
    if case.fits:
        return []
    alone = [
        Fix((name,), found)
        for name in CHANGES
        for found in [_changed(case, (name,))]
        if found is not None and found.fits
    ]
    if any(fix.changes != ("more_devices",) for fix in alone):
        return alone
    row: tuple[str, ...] = ()
    for name in CHANGES:
        if _changed(case, (*row, name)) is None:
            continue
        row = (*row, name)
        found = _changed(case, row)
        if found is not None and found.fits:
            return [Fix(*_shortest(case, row, found)), *alone]
    return alone


def _shortest(case: Case, row: tuple[str, ...], found: Case) -> tuple[tuple[str, ...], Case]:
    for name in row[:-1]:
        shorter = tuple(one for one in row if one != name)
        fewer = _changed(case, shorter)
        if fewer is not None and fewer.fits:
            row, found = shorter, fewer
    return row, found


def _changed(case: Case, names: tuple[str, ...]) -> Case | None:
    for name in names:
        found = CHANGES[name](case)
        if found is None:
            return None
        case = found
    return with_engine(case)


def _set_up(case: Case, **fields: object) -> Case:
    return replace(case, setup=replace(case.setup, **fields))  # type: ignore[arg-type]
