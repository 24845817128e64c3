"""A rollout worker as a Ray actor: `run` drives the agent loop, the other calls steer it."""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import ray

from engine.environments.protocol import Task
from engine.evaluation.outcomes import Outcome, outcome
from engine.evaluation.plan import EvaluationPlan, tasks_of
from engine.pool.group import pack
from engine.pool.pool import Ticket
from engine.records.trajectory import Trajectory
from engine.spec import ExperimentSpec
from engine.spec.sampled import SampledStage
from workers.cluster import limits, own_tasks, synthesised
from workers.cluster.played import Play, Played
from workers.cluster.pool_actor import Offer
from workers.cluster.reporting import Address
from workers.cluster.rollout_loop import make_loop
from workers.cluster.rollout_stats import tally
from workers.cluster.storage import RunStorage
from workers.cluster.watching import EpisodePublisher

MAX_UNSAVED = 8  # finished groups on their way to the pool
IDLE_S = 0.5
LOOK_FOR_WEIGHTS_S = 0.25

# torch is imported where it is used: the driver imports this module and must stay small.


@dataclass
class _Production:
    """A stage that groups are produced for."""

    index: int
    stage: SampledStage
    pool: Any
    tasks: dict[str | None, list[Task]]  # by category; None: all


@dataclass
class _Started:
    """A group under way."""

    ticket: Ticket
    version: int
    finished: list[Trajectory] = field(default_factory=list)


@dataclass
class _Frozen:
    """Tasks to play with frozen weights, how often each, and who takes what came of them."""

    tasks: list[tuple[Task, int]]
    version: int
    weights: list[Any]
    take: Callable[[Trajectory], None]
    purpose: str = "evaluate"
    temperature: float = 0.0
    seed: int | None = None  # to draw from; None: as everything else
    played: int = 0
    done: threading.Event = field(default_factory=threading.Event)


def worker_name(index: int, life: int) -> str:
    """By which the pool knows who is at a group: of one process, as `rollout-0` is not."""
    return f"rollout-{index}.{life}"


class RolloutActor:
    """`run` is one thread's and owns the loop; the other methods leave it wishes and wait."""

    def __init__(self, spec: str, index: int, life: int, attempt: int, address: Address) -> None:
        """`spec`: as JSON; `life`: 1 for the first worker of this index, 2 for who replaces it."""
        self._spec = ExperimentSpec.model_validate_json(spec)
        self._name = f"rollout-{index}"
        self._life = life
        self._worker = worker_name(index, life)
        self._attempt = attempt
        self._reporter = address.reporter(self._name, life=life)
        self._publisher = EpisodePublisher(self._reporter.spool, self._spec.rollout.live_episodes)
        self._loop: Any = None
        self._tasks: dict[str, list[Task]] = {}
        self._storage: RunStorage | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._wanted: _Production | None = None
        self._production: _Production | None = None
        self._switched = threading.Event()
        self._frozen: _Frozen | None = None
        self._started: dict[str, _Started] = {}  # by group id
        self._asking: Any = None  # one call of pool.start, which waits until there is room
        self._asked_at = 0.0
        self._process_weight: float | None = None  # of rewards, came with the weights
        self._saving: list[Any] = []  # calls of pool.finish
        self._rests = threading.Event()  # `run` has not begun, or has ended
        self._rests.set()

    def load(self, storage: str) -> None:
        """Make the environment, the tokenizer, and a model that waits for its weights.

        `storage`: the run's, a path or URL.
        """
        spec, place = self._spec, RunStorage(storage)
        self._storage = place
        folder = synthesised.folder(place)
        seed = f"{spec.seed} {self._name} {self._attempt}"
        if self._life > 1:  # it does not sample what the one before has sampled
            seed += f" {self._life}"
        seed_number = random.Random(seed).randrange(2**31)
        self._loop = make_loop(spec, synthesised.tokenizer(folder), self._name, seed_number)
        judged = {name: own_tasks.judged(place, spec, name) for name in own_tasks.JUDGED}
        self._tasks = {"practice": synthesised.tasks(folder, "practice"), **judged}

    def run(self) -> None:
        """Work until `stop`. What is raised here ends the run."""
        self._rests.clear()
        try:
            while not self._stopping:
                self._talk_to_pool()
                if self._frozen is not None and not self._started:
                    self._play_frozen(self._frozen)
                elif self._loop.active:
                    self._step()
                else:
                    self._rest()
                self._reporter.tick(self._report_busy)
        finally:
            self._rests.set()

    def produce(self, index: int, pool: Any) -> None:
        """From now on produce groups for this stage."""
        stage = self._spec.stages[index]
        assert isinstance(stage, SampledStage)
        tasks: dict[str | None, list[Task]] = defaultdict(list)
        for task in self._to_train_on(stage):
            tasks[task.category].append(task)
            tasks[None].append(task)
        self._switch(_Production(index, stage, pool, dict(tasks)))

    def _to_train_on(self, stage: SampledStage) -> list[Task]:
        if stage.dataset is not None:
            return self._named(stage.dataset)
        return [task for task in self._named("practice") if task.hops in stage.hops]

    def _named(self, tasks: str) -> list[Task]:
        """tasks: practice, held_out, quick, or the id of a dataset's version."""
        if tasks in self._tasks:
            return self._tasks[tasks]
        assert self._storage is not None
        return own_tasks.load(self._storage, tasks)

    def cease(self) -> None:
        """Produce no more groups; those under way are dropped."""
        self._switch(None)

    def evaluate(
        self, plan: EvaluationPlan, part: int, parts: int, version: int, weights: list[Any]
    ) -> list[Outcome]:
        """Play every `parts`-th of the plan's tasks, between groups.

        The weights are these alone until the last task has ended. Trials are drawn from a seed
        that is the same in every evaluation of the run and of its forks.
        """
        finished: list[Trajectory] = []
        chosen = tasks_of(plan, self._tasks[plan.tasks])[part::parts]
        tasks = [(task, plan.trials) for task in chosen]
        seed = random.Random(f"{self._spec.seed} evaluation {self._name}").randrange(2**31)
        self._wait_for(
            _Frozen(
                tasks, version, weights, finished.append, temperature=plan.temperature, seed=seed
            )
        )
        trials: Counter[str] = Counter()
        found = []
        for one in finished:
            found.append(outcome(one, trials[one.task_id]))
            trials[one.task_id] += 1
        return found

    def play(self, wish: Play, part: int, parts: int, version: int, weights: list[Any]) -> None:
        """Play this worker's part of the tasks, between groups, onto the run's storage.

        Tasks that an earlier attempt played are not played again.
        """
        assert self._storage is not None
        played = Played(self._storage, wish.folder, part)
        before = played.counts()
        tasks = [
            (task, wish.attempts - before[task.id])
            for task in wish.chosen(self._named(wish.tasks), part, parts)
            if before[task.id] < wish.attempts
        ]
        self._wait_for(_Frozen(tasks, version, weights, played.add, wish.purpose, wish.temperature))
        played.flush()

    def _wait_for(self, frozen: _Frozen) -> None:
        self._frozen = frozen
        self._wake.set()
        limit_s = limits.EVALUATE_S * max((copies for _, copies in frozen.tasks), default=1)
        if not frozen.done.wait(limit_s):
            raise TimeoutError(
                f"{self._name}: {len(frozen.tasks)} tasks took over {limit_s} s to play"
            )

    def played(self) -> int:
        """Episodes with frozen weights that are behind this worker, of those it plays now."""
        frozen = self._frozen
        return frozen.played if frozen is not None else 0

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Report what is left, with what `run` is at; True when all of it arrived."""
        deadline = time.monotonic() + timeout_s
        self._rests.wait(timeout_s / 2)
        return self._reporter.close(deadline - time.monotonic())

    def _switch(self, wanted: _Production | None) -> None:
        self._wanted = wanted  # first: until then `run` may still say that it has switched
        self._switched.clear()
        self._wake.set()
        if not self._switched.wait(limits.CALL_S):
            raise TimeoutError(f"{self._name} did not change stage within {limits.CALL_S} s")

    def _talk_to_pool(self) -> None:
        """Take what was granted and ask for more; waits only where the stage changes, which it does
        not before the pool has answered: what it grants is of the stage that is left."""
        changes = self._wanted is not self._production
        offer = self._answer(wait_s=2 * limits.LONG_POLL_S if changes else 0.0)
        if changes:
            if self._asking is None:
                self._drop_groups(offer)
                self._production = self._wanted
        elif offer is not None and self._production is not None:
            self._accept(offer, self._production)
        if self._wanted is self._production:
            self._switched.set()
        if self._production is not None and self._asking is None and self._frozen is None:
            self._ask(self._production)

    def _ask(self, production: _Production) -> None:
        """Ask for tickets; the pool answers once there is room. Without a free slot, or with
        telemetry that cannot keep up, look for new weights now and then."""
        free = 0 if self._reporter.spool.full else self._loop.free // production.stage.group_size
        now = time.monotonic()
        if not free and now - self._asked_at < LOOK_FOR_WEIGHTS_S:
            return
        self._asked_at = now
        wait_s = limits.LONG_POLL_S if free else 0.0
        version = self._loop.sampler.version
        self._asking = production.pool.start.remote(self._worker, version, free, wait_s)

    def _answer(self, wait_s: float) -> Offer | None:
        if self._asking is None:
            return None
        ready, _ = ray.wait([self._asking], timeout=wait_s)
        if not ready:
            return None
        self._asking = None
        offer: Offer = ray.get(ready[0], timeout=limits.CALL_S)
        return offer

    def _accept(self, offer: Offer, production: _Production) -> None:
        if self._frozen is not None:  # it waits for the groups under way: start no others
            self._abandon(production, [ticket.number for ticket in offer.tickets])
            return
        if offer.weights and offer.version > self._loop.sampler.version:
            self._load_weights(offer.version, offer.weights)
        self._process_weight = offer.process_weight
        for ticket in offer.tickets:
            # The ticket decides on the task: what a crash cut short is drawn again.
            draw = random.Random(f"{self._spec.seed} {production.index} {ticket.number}")
            group_id = f"{self._attempt}-{production.index}-{ticket.number}"
            self._started[group_id] = _Started(ticket, self._loop.sampler.version)
            self._loop.submit(
                draw.choice(production.tasks[ticket.category]),
                group_id,
                copies=production.stage.group_size,
                temperature=self._spec.rollout.temperature,
                process_weight=self._process_weight,
            )

    def _step(self) -> None:
        with self._reporter.phases.phase("generate"):
            finished = self._loop.step()
        self._publish(finished)
        for trajectory in finished:
            group = self._started[trajectory.group_id]
            group.finished.append(trajectory)
            if self._production is None or len(group.finished) < self._production.stage.group_size:
                continue
            del self._started[trajectory.group_id]
            stored = self._reporter.keeper.add_group(group.finished)
            packed = pack(group.ticket.number, group.version, group.finished, time.time(), stored)
            call = self._production.pool.finish.remote(self._worker, packed, tally(group.finished))
            self._saving.append(call)
        self._check_saved(at_most=MAX_UNSAVED)

    def _publish(self, finished: list[Trajectory]) -> None:
        """Tell people what runs and what came of it."""
        for trajectory in finished:
            self._publisher.ended(trajectory)
        self._publisher.look(self._loop.running)

    def _check_saved(self, at_most: int) -> None:
        """Raise what the pool raised; wait while too many groups are on their way to it."""
        while self._saving:
            wait_s = limits.CALL_S if len(self._saving) > at_most else 0.0
            ready, self._saving = ray.wait(self._saving, num_returns=1, timeout=wait_s)
            if not ready:
                if wait_s:
                    raise TimeoutError(f"The pool took no group for {limits.CALL_S} s.")
                return
            ray.get(ready, timeout=limits.CALL_S)

    def _rest(self) -> None:
        """Nothing to do: wait for the pool's answer or a call."""
        self._publish([])  # also that nothing runs any more
        if self._asking is not None:
            with self._reporter.phases.phase("queue"):
                ray.wait([self._asking], timeout=IDLE_S)
        elif self._wake.wait(IDLE_S):
            self._wake.clear()

    def _play_frozen(self, frozen: _Frozen) -> None:
        sampler = self._loop.sampler
        seeded = nullcontext() if frozen.seed is None else sampler.seeded(frozen.seed)
        with self._reporter.phases.phase("evaluate"), seeded:
            if frozen.version != self._loop.sampler.version:
                self._load_weights(frozen.version, frozen.weights)
            for task, copies in frozen.tasks:
                self._loop.submit(
                    task,
                    f"{frozen.purpose}-{self._attempt}-{frozen.version}-{task.id}"[:80],
                    copies=copies,
                    purpose=frozen.purpose,
                    temperature=frozen.temperature,
                )
            while self._loop.active and not self._stopping:
                finished = self._loop.step()
                self._publish(finished)
                for trajectory in finished:
                    frozen.take(trajectory)
                    frozen.played += 1
                    self._reporter.keeper.add_group([trajectory])
                self._reporter.tick(self._report_busy)
        self._frozen = None
        frozen.done.set()

    def _load_weights(self, version: int, weights: list[Any]) -> None:
        import torch

        with self._reporter.phases.phase("sync"):
            arrays = ray.get(weights[0], timeout=limits.PUBLISH_S)
            self._loop.sampler.load_weights(
                version, {name: torch.tensor(array) for name, array in arrays.items()}
            )

    def _drop_groups(self, offer: Offer | None) -> None:
        """Leave a stage: what is under way was not produced, what is finished is saved."""
        self._check_saved(at_most=0)
        tickets = [group.ticket.number for group in self._started.values()]
        tickets += [ticket.number for ticket in offer.tickets] if offer else []
        if self._production is not None:
            self._reporter.send_phases(self._report_busy)  # also of a stage of a second
            self._abandon(self._production, tickets)
        self._started.clear()
        self._loop.cancel()

    def _abandon(self, production: _Production, tickets: list[int]) -> None:
        if tickets:
            ray.get(production.pool.abandon.remote(self._worker, tickets), timeout=limits.CALL_S)

    def _report_busy(self, share: float) -> None:
        if self._production is not None:
            self._production.pool.busy.remote(self._name, share)
