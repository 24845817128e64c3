"""The actors of an attempt, and how to wait for them: never without a limit, never past a death."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from engine.spec import ExperimentSpec
from workers.cluster import limits
from workers.cluster.control import Control
from workers.cluster.pool_actor import PoolActor
from workers.cluster.reporting import Address
from workers.cluster.rollout_actor import RolloutActor
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
    """`trainers`, `rollouts` and `pool` are Ray actor handles."""

    def __init__(
        self, spec: ExperimentSpec, attempt: int, address: Address, control: Control
    ) -> None:
        self._spec = spec
        self._json = spec.model_dump_json()
        self._attempt = attempt
        self._address = address
        self._control = control
        self._running: dict[Any, str] = {}  # endless calls: their end is the actor's
        self.pool: Any = None
        self.trainers: list[Any] = []
        self.rollouts: list[Any] = []

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
        rollout = ray.remote(num_cpus=ROLLOUT_CPUS, max_restarts=0)(RolloutActor).options(
            max_concurrency=ROLLOUT_THREADS
        )
        self.pool = pool.remote(storage, self._address)
        self.trainers = [
            trainer.remote(self._json, rank, world, storage, self._address) for rank in range(world)
        ]
        self.rollouts = [
            rollout.remote(self._json, index, self._attempt, self._address)
            for index in range(spec.rollout.workers)
        ]
        what = "Ray to place the actors (is there a free CPU?)"
        meeting = self.wait([self.trainers[0].rendezvous.remote()], limits.START_S, what)[0]
        loading = [one.load.remote(meeting) for one in self.trainers]
        loading += [one.load.remote(storage) for one in self.rollouts]
        sentence = str(self.wait(loading, limits.START_S, "the actors to load")[0])
        self._running = {one.run.remote(): f"rollout-{i}" for i, one in enumerate(self.rollouts)}
        return sentence

    def wait(
        self,
        refs: Sequence[Any],
        limit_s: float,
        what: str,
        until: Callable[[], bool] | None = None,
    ) -> Any:
        """The results, in order; None where `until` became true before.

        Raises what any actor raised, also one that was not asked; LimitError after `limit_s`
        seconds; RevokedAttemptError; TerminatedError.
        """
        deadline = time.monotonic() + limit_s
        results: dict[Any, Any] = {}
        self.check()
        while len(results) < len(refs):
            self._check_control()
            if until is not None and until():
                return None
            left = deadline - time.monotonic()
            if left <= 0:
                raise LimitError(f"Waited {limit_s:.0f} s for {what}: that is the limit.")
            open_refs = [ref for ref in refs if ref not in results]
            ready, _ = ray.wait([*open_refs, *self._running], timeout=min(left, 1.0))
            for ref in ready:
                if ref in self._running:
                    self._raise_end(ref)
                results[ref] = ray.get(ref, timeout=limits.CALL_S)
        return [results[ref] for ref in refs]

    def check(self) -> None:
        """Raise what an actor that nobody waits for has raised."""
        self._check_control()
        if self._running:
            ready, _ = ray.wait([*self._running], timeout=0)
            for ref in ready:
                self._raise_end(ref)

    def _check_control(self) -> None:
        if self._control.revoked:
            raise RevokedAttemptError(self._control.revoked)
        if self._control.terminated:
            raise TerminatedError

    def _raise_end(self, ref: Any) -> None:
        ray.get(ref, timeout=limits.CALL_S)
        raise RuntimeError(f"{self._running[ref]} ended although the run goes on.")

    def all_trainers(self, method: str, *arguments: Any, limit_s: float, what: str) -> list[Any]:
        """Call every rank; their results."""
        calls = [getattr(one, method).remote(*arguments) for one in self.trainers]
        found: list[Any] = self.wait(calls, limit_s, what)
        return found

    def all_rollouts(self, method: str, *arguments: Any, limit_s: float = limits.CALL_S) -> None:
        calls = [getattr(one, method).remote(*arguments) for one in self.rollouts]
        self.wait(calls, limit_s, f"the rollout workers to {method}")

    def dismiss(self, timeout_s: float) -> None:
        """Let every actor report what it has and end it. Raises nothing: some may be dead."""
        self._running = {}
        actors = [one for one in (self.pool, *self.trainers, *self.rollouts) if one is not None]
        for one in self.rollouts:
            one.stop.remote()
        closing = [one.close.remote(timeout_s) for one in actors]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=timeout_s + 2.0)
        for one in actors:
            ray.kill(one)
        self.pool, self.trainers, self.rollouts = None, [], []
