"""Demonstrations: the gold chain played in the real environment, some with a forced detour.

A detour is one deliberately wrong call. Its tokens are masked; the call that recovers is trained.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from engine.environments.kg_search import KgSearch
from engine.environments.kg_search.calls import render_answer, render_lookup
from engine.environments.kg_search.episode import RELATIONS
from engine.environments.protocol import Observation, Task
from engine.records.trajectory import Reward, Segment, Step, StopReason, Trajectory
from engine.rewards.scheme import RewardScheme
from engine.rewards.score import give_reward
from engine.synthesis.tokenizer import Tokenizer

DetourKind = Literal["redundant_lookup", "wrong_entity", "wrong_relation", "malformed_argument"]
MISSPELT_SHARE = 0.5  # of the wrong entities: a slip in copying is what a small model recovers from
DETOUR_KINDS: tuple[DetourKind, ...] = get_args(DetourKind)


@dataclass(frozen=True)
class Turn:
    """One turn of a demonstration and what the environment said to it."""

    text: str
    seen: Observation
    detour: bool


@dataclass(frozen=True)
class Demonstration:
    """An episode the verifier accepted, as text."""

    task: Task
    turns: tuple[Turn, ...]
    detour: DetourKind | None
    duration_s: float


class Demonstrator:
    """Plays tasks of one graph. Counts what it kept and why it rejected the rest."""

    def __init__(self, environment: KgSearch, detour_share: float, seed: str) -> None:
        self._environment = environment
        self._detour_share = detour_share
        self._rng = random.Random(f"demonstrations {seed}")
        self._by_kind: dict[str, list[str]] = {}
        for name, kind in environment.graph.kinds.items():
            self._by_kind.setdefault(kind, []).append(name)
        self.counts: Counter[str] = Counter()

    def play(self, task: Task) -> Demonstration | None:
        """One episode; None where the verifier rejects it."""
        detour, at = None, -1
        if self._rng.random() < self._detour_share:
            detour = self._rng.choice(DETOUR_KINDS)
            # Nothing can be redundant before the first call; a lookup can be, before the answer.
            late = detour == "redundant_lookup"
            at = self._rng.randrange(task.hops) + late
        started = time.perf_counter()
        turns = self._episode(task, detour, at)
        self.counts["played"] += 1
        if problem := _rejected(task, turns):
            self.counts[f"rejected: {problem}"] += 1
            return None
        self.counts["accepted"] += 1
        self.counts[f"detour: {detour or 'none'}"] += 1
        return Demonstration(task, tuple(turns), detour, time.perf_counter() - started)

    def _episode(self, task: Task, detour: DetourKind | None, at: int) -> list[Turn]:
        episode = self._environment.start(task)
        turns: list[Turn] = []
        relations: list[str] = task.meta["relations"]
        entity = task.meta["path"][0]

        def act(text: str, wrong: bool = False) -> Observation:
            turns.append(Turn(text, episode.act(text), wrong))
            return turns[-1].seen

        for hop in range(task.hops + 1):
            last = hop == task.hops
            if hop == at and detour:
                before = turns[-1].text if turns else ""
                wrong = self._wrong(detour, entity, relations[min(hop, task.hops - 1)], before)
                if act(wrong, wrong=True).stop:
                    return turns
            seen = act(render_answer(entity) if last else render_lookup(entity, relations[hop]))
            if seen.stop or seen.call is None or seen.call.error:
                return turns
            entity = json.loads(seen.text).get("value", "")
        return turns

    def _wrong(self, detour: DetourKind, entity: str, relation: str, before: str) -> str:
        if detour == "redundant_lookup":
            return before
        if detour == "wrong_entity":
            if self._rng.random() < MISSPELT_SHARE:
                return render_lookup(self._misspelt(entity), relation)
            others = self._by_kind[self._environment.graph.kinds[entity]]
            return render_lookup(self._rng.choice(others), relation)
        if detour == "wrong_relation":
            others = [other for other in RELATIONS if other != relation]
            return render_lookup(entity, self._rng.choice(others))
        right = render_lookup(entity, relation)
        return self._rng.choice(
            [
                right.replace('"relation"', '"relations"'),
                right.replace('"entity"', '"name"'),
                right.replace('"lookup"', '"search"'),
                right[: -len(f',"relation":"{relation}"}}')],
            ]
        )

    def _misspelt(self, name: str) -> str:
        """The name with one character left out or doubled."""
        at = self._rng.randrange(len(name))
        kept = self._rng.choice(["", 2 * name[at]])
        return name[:at] + kept + name[at + 1 :]


def _rejected(task: Task, turns: Sequence[Turn]) -> str:
    """Why the verifier rejects an episode; empty where it accepts."""
    if any(turn.seen.call and turn.seen.call.error for turn in turns if not turn.detour):
        return "a call failed"
    if turns[-1].seen.stop is not StopReason.ANSWERED:
        return "not answered"
    return "" if turns[-1].seen.answer == task.answer else "wrong answer"


def tokenise(
    demonstrations: Sequence[Demonstration],
    tokenizer: Tokenizer,
    scheme: RewardScheme,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Trajectory]:
    """Token-exact records. The policy's turns are trained on, detours and all else are not.

    No policy sampled them: log-probabilities are 0 and versions -1 throughout.
    """
    texts: dict[str, list[int]] = dict.fromkeys(
        text
        for one in demonstrations
        for text in (
            one.task.prompt,
            *(t for turn in one.turns for t in (turn.text, turn.seen.text)),
        )
    )  # type: ignore[assignment]
    for text, ids in zip(texts, tokenizer.encode_texts(list(texts)), strict=True):
        texts[text] = ids
    started_at = datetime.now(UTC).isoformat()
    records = []
    for index, one in enumerate(demonstrations):
        records.append(_record(one, index, texts, tokenizer, started_at))
        give_reward(scheme, records[-1])
        progress(index + 1)
    return records


def _record(
    one: Demonstration,
    index: int,
    texts: dict[str, list[int]],
    tokenizer: Tokenizer,
    started_at: str,
) -> Trajectory:
    ids = [tokenizer.user_id, *texts[one.task.prompt], tokenizer.agent_id]
    mask = [False] * len(ids)
    steps: list[Step] = []
    sampled = 0
    for number, turn in enumerate(one.turns):
        start = len(ids)
        ids += [*texts[turn.text], tokenizer.end_id]
        mask += [not turn.detour] * (len(ids) - start)
        sampled += len(ids) - start
        seen = turn.seen
        steps.append(
            Step(
                index=number,
                segment=0,
                start=start,
                stop=len(ids),
                text=turn.text,
                call=seen.call,
                answer=seen.answer,
                detour=turn.detour,
            )
        )
        if not seen.stop:
            ids += [tokenizer.tool_id, *texts[seen.text], tokenizer.agent_id]
            mask += [False] * (len(ids) - len(mask))
    name = f"demonstration-{index}"
    return Trajectory(
        id=name,
        task_id=one.task.id,
        group_id=name,
        category=one.task.category,
        prompt=one.task.prompt,
        answer=one.task.answer,
        segments=[Segment(ids, mask, [0.0] * len(ids), [-1] * len(ids))],
        steps=steps,
        stop_reason=StopReason.ANSWERED,
        reward=Reward(None, False),
        success=True,
        worker="synthesis",
        started_at=started_at,
        duration_s=one.duration_s,
        sampled_tokens=sampled,
        purpose="demonstration",
    )
