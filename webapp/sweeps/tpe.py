"""Optuna's tree-structured Parzen estimator: asked for values, told what came of them.

Its storage lies in our PostgreSQL, in a schema of its own that Django knows nothing of. Imported by
the control workers when a sweep asks, never by the web tier.
"""

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import optuna
import psycopg
from django.db import connection
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from webapp.sweeps.plan import Choice, Dimension, LogUniform, SweepPlan, Whole
from webapp.sweeps.space import Outcome, Params, SearchError

SCHEMA = "optuna"
AGAIN = "again"  # attribute of what is told of a trial once more: its number
STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}
LOCK = 0x0F7A  # of the creation of the tables, which two workers may try at once

optuna.logging.set_verbosity(optuna.logging.WARNING)


def ask(
    sweep_id: str, plan: SweepPlan, known: Callable[[Collection[int]], Collection[int]]
) -> tuple[int, Params]:
    """The next values to try and their number in the study.

    `known`: which of some numbers trials have already. What was asked and never became a trial,
    because a worker died in between, is given out again. Raises SearchError.
    """
    with _memory():
        return _asked(_study(sweep_id, plan), plan, known)


def _asked(
    study: optuna.Study, plan: SweepPlan, known: Callable[[Collection[int]], Collection[int]]
) -> tuple[int, Params]:
    all_of_it = study.get_trials(deepcopy=False)
    waiting = [one for one in all_of_it if one.state == TrialState.RUNNING]
    taken = known([one.number for one in waiting])
    left = next((one for one in waiting if one.number not in taken), None)
    # A sampler lives for one question: with one seed it would draw the same values each time.
    number = len(all_of_it) if left is None else left.number
    seed = random.Random(f"{plan.seed}:{number}").getrandbits(31)
    study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    trial = study.ask() if left is None else optuna.trial.Trial(study, left._trial_id)
    return trial.number, {one.path: _suggested(trial, one) for one in plan.space}


def tell(sweep_id: str, plan: SweepPlan, number: int, outcome: Outcome) -> None:
    """What came of a trial. Telling twice changes nothing.

    What a trial that was promoted came to since it was stopped is kept beside what was told of it
    then, as of another trial with the same values: Optuna takes nothing back. Raises SearchError.
    """
    state = STATES[outcome.state]
    with _memory():
        study = _study(sweep_id, plan)
        told = study.get_trials(deepcopy=False)
        first = told[number]
        if not first.state.is_finished():
            trial = optuna.trial.Trial(study, first._trial_id)
            for step, value in outcome.reached.items():
                trial.report(value, step)
            study.tell(trial, outcome.value, state=state)
            return
        same = [one for one in told if one is first or one.user_attrs.get(AGAIN) == number]
        if state == TrialState.FAIL or any(_says(one, state, outcome) for one in same):
            return
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=outcome.value,
                params=first.params,
                distributions=first.distributions,
                intermediate_values=outcome.reached,
                user_attrs={AGAIN: number},
            )
        )


def _says(one: optuna.trial.FrozenTrial, state: TrialState, outcome: Outcome) -> bool:
    return one.state == state and one.intermediate_values == outcome.reached


@contextmanager
def _memory() -> Iterator[None]:
    """What goes wrong with the storage as SearchError."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, psycopg.Error) as error:
        first = str(error).strip().partition("\n")[0]
        raise SearchError(f"TPE cannot be asked, it is tried again: {first}") from error


def _study(sweep_id: str, plan: SweepPlan) -> optuna.Study:
    to = optuna.study.StudyDirection
    storage = _storage(str(connection.settings_dict["NAME"]))
    return optuna.create_study(
        storage=storage,
        study_name=sweep_id,
        direction=to.MAXIMIZE if plan.maximises else to.MINIMIZE,
        load_if_exists=True,
    )


@cache
def _storage(database: str) -> optuna.storages.BaseStorage:
    """Kept by the process, with what it has read: trials that ended are not read again."""
    with _connect() as ours:
        ours.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        ours.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        ours.commit()
        stored = optuna.storages.RDBStorage(
            "postgresql+psycopg://", engine_kwargs={"creator": _connect, "poolclass": NullPool}
        )
        return optuna.storages.get_storage(stored)


def _connect() -> "psycopg.Connection[Any]":
    """To Django's database, in Optuna's schema."""
    given = connection.settings_dict
    options = {key: value for key, value in given["OPTIONS"].items() if key != "pool"}
    named = {
        "dbname": given["NAME"],
        "user": given["USER"],
        "password": given["PASSWORD"],
        "host": given["HOST"],
        "port": given["PORT"],
    }
    return psycopg.connect(
        **{key: value for key, value in named.items() if value},
        **{**options, "options": f"-c search_path={SCHEMA}"},
    )


def _suggested(trial: optuna.Trial, one: Dimension) -> Any:
    match one:
        case Choice():  # by position: values may be lists, which Optuna has no word for
            return one.values[trial.suggest_categorical(one.path, list(range(len(one.values))))]
        case Whole():
            return trial.suggest_int(one.path, one.low, one.numbers()[-1], step=one.step)
        case _:
            log = isinstance(one, LogUniform)
            return trial.suggest_float(one.path, one.low, one.high, log=log)
