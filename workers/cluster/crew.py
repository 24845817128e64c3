"""The actors of an attempt, and how to wait for them: never without a limit, never past a death.

The death of a rollout worker ends nothing (`seats`), that of any other actor the attempt.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from engine.spec import ExperimentSpec
from engine.telemetry.reporter import Reporter
from workers.cluster import limits
from workers.cluster.control import Control
from workers.cluster.pool_actor import PoolActor
from workers.cluster.reporting import Address
from workers.cluster.rollout_actor import RolloutActor
from workers.cluster.seats import DEATHS, NO_ANSWER, Call, Seats
from workers.cluster.synthesis_actor import SynthesisActor
from workers.cluster.trainer_actor import TrainerActor

# Shares of a CPU that Ray reserves. They bound how many runs a machine takes, not their speed:
# two runs fit on two cores.
POOL_CPUS = 0.01
ROLLOUT_CPUS = 0.45
TRAINER_CPUS = 0.45
ROLLOUT_THREADS = 4  # the loop, an evaluation, and calls that are answered meanwhile


class RevokedAttemptError(Exception):
    """A newer attempt runs, or the run has ended: this one must leave without a word."""


class TerminatedError(Exception):
    """Ray was told to end this job: seconds are left."""


class LimitError(Exception):
    """A wait took longer than its limit."""


class Crew:
    """`trainers` and `pool` are Ray actor handles; `seats` has those of the rollout workers."""

    def __init__(
        self,
        spec: ExperimentSpec,
        attempt: int,
        address: Address,
        control: Control,
        reporter: Reporter,
    ) -> None:
        self._spec = spec
        self._json = spec.model_dump_json()
        self._attempt = attempt
        self._address = address
        self._control = control
        self.pool: Any = None
        self.trainers: list[Any] = []
        self.seats = Seats(self._hire, reporter.log)

    def synthesise(self, storage: str) -> dict[str, Any] | None:
        """Run the synthesise stage in a process of its own; None when the end was asked for."""
        place = ray.remote(num_cpus=ROLLOUT_CPUS, max_restarts=0)(SynthesisActor)
        actor: Any = place.remote()
        ref = actor.make.remote(self._json, storage, self._address)
        try:
            found: list[dict[str, Any]] | None = self.wait(
                [ref], limits.SYNTHESISE_S, "synthesis", until=lambda: self._control.wants_end
            )
        finally:
            ray.kill(actor)
        return found[0] if found else None

    def start(self, storage: str) -> str:
        """Start all actors and load what they need; one sentence on the model."""
        spec, world = self._spec, self._spec.trainer.workers
        pool = ray.remote(num_cpus=POOL_CPUS, max_restarts=0)(PoolActor)
        trainer = ray.remote(num_cpus=TRAINER_CPUS * spec.trainer.threads, max_restarts=0)(
            TrainerActor
        )
        self.pool = pool.remote(storage, self._address)
        self.trainers = [
            trainer.remote(self._json, rank, world, storage, self._address) for rank in range(world)
        ]
        self.seats.open(spec.rollout.workers, storage, self.pool)
        what = "Ray to place the actors (is there a free CPU?)"
        meeting = self.wait([self.trainers[0].rendezvous.remote()], limits.START_S, what)[0]
        loading = [one.load.remote(meeting) for one in self.trainers]
        sentence = str(self.wait(loading, limits.START_S, "the trainers to load")[0])
        first = self.seats.ask("played", lambda part, parts: ())  # none answers before it is there
        self.gather(first, limits.START_S, "the rollout workers to load")
        return sentence

    def _hire(self, index: int, life: int) -> Any:
        """The actor of a rollout worker that is not loaded yet."""
        place = ray.remote(num_cpus=ROLLOUT_CPUS, max_restarts=0)(RolloutActor)
        actor: Any = place.options(max_concurrency=ROLLOUT_THREADS).remote(
            self._json, index, life, self._attempt, self._address
        )
        return actor

    def wait(
        self,
        refs: Sequence[Any],
        limit_s: float,
        what: str,
        until: Callable[[], bool] | None = None,
    ) -> Any:
        """The results, in order; None where `until` became true before.

        `refs` may be those of a `Call`, which change under way. Raises what any actor raised, also
        one that was not asked; LimitError after `limit_s` seconds; LostWorkersError;
        RevokedAttemptError; TerminatedError.
        """
        deadline = time.monotonic() + limit_s
        results: dict[Any, Any] = {NO_ANSWER: None}
        self.check()
        while any(ref not in results for ref in refs):
            self._check_control()
            if until is not None and until():
                return None
            left = deadline - time.monotonic()
            if left <= 0:
                raise LimitError(f"Waited {limit_s:.0f} s for {what}: that is the limit.")
            asked = [ref for ref in refs if ref is not None and ref not in results]
            watched = self.seats.watched
            ready, _ = ray.wait([*asked, *watched], timeout=min(left, 1.0))
            for ref in ready:
                if ref in watched:
                    self.seats.look(ref)
                else:
                    self._take(ref, results)
        return [results[ref] for ref in refs]

    def check(self) -> None:
        """Raise what an actor that nobody waits for has raised."""
        self._check_control()
        if watched := self.seats.watched:
            for ref in ray.wait(watched, num_returns=len(watched), timeout=0)[0]:
                self.seats.look(ref)

    def _check_control(self) -> None:
        if self._control.revoked:
            raise RevokedAttemptError(self._control.revoked)
        if self._control.terminated:
            raise TerminatedError

    def _take(self, ref: Any, results: dict[Any, Any]) -> None:
        try:
            results[ref] = ray.get(ref, timeout=limits.CALL_S)
        except DEATHS as error:
            if not self.seats.mourn(ref, error):
                raise

    def all_trainers(self, method: str, *arguments: Any, limit_s: float, what: str) -> list[Any]:
        """Call every rank; their results."""
        calls = [getattr(one, method).remote(*arguments) for one in self.trainers]
        found: list[Any] = self.wait(calls, limit_s, what)
        return found

    def gather(
        self, call: Call, limit_s: float, what: str, until: Callable[[], bool] | None = None
    ) -> list[Any] | None:
        """What `seats.ask` asked for, of every rollout worker; as `wait`."""
        found: list[Any] | None = self.wait(call.refs, limit_s, what, until)
        self.seats.forget(call, of_use=call.repeated and found is not None)
        return found

    def switch_rollouts(self, produces: tuple[int, Any] | None) -> None:
        """Have all produce groups for a stage, its index and pool; None: for none."""
        self.gather(self.seats.switch(produces), limits.CALL_S, "the rollout workers to switch")

    def dismiss(self, timeout_s: float) -> None:
        """Let every actor report what it has and end it. Raises nothing: some may be dead."""
        rollouts = self.seats.dismiss()
        actors = [one for one in (self.pool, *self.trainers, *rollouts) if one is not None]
        closing = [one.close.remote(timeout_s) for one in actors]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=timeout_s + 2.0)
        for one in actors:
            ray.kill(one)
        self.pool, self.trainers = None, []
