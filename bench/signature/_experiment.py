"""What a signature experiment is, its runs kept one file each, and its figures."""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.figures import Figure, Options
from bench.signature._seeds import Interval

LEAST_SEEDS = 5
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """`says`: one sentence that can turn out wrong; `source`: who says it."""

    key: str
    says: str
    source: str


@dataclass(frozen=True)
class Verdict:
    """Whether the runs bear a claim out, the sentence that says why, and the numbers behind it."""

    reproduced: bool
    reading: str
    numbers: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """Outcomes by arm and seed; every arm has the same seeds."""

    runs: Mapping[str, Mapping[int, Outcome]]

    @property
    def seeds(self) -> list[int]:
        return sorted(next(iter(self.runs.values())))

    def of(self, arm: str, name: str) -> list[Any]:
        """What each run of an arm says under a name, by seed."""
        return [self.runs[arm][seed][name] for seed in self.seeds]


@dataclass(frozen=True)
class Experiment:
    """Arms on equal budgets, the claims they are to show, and how to tell.

    settings: a frozen dataclass of numbers, texts and tuples of them. seeds: runs of each arm,
    seeded from 0. budget: what the arms have in common, for the page. panels: axes of the drawing.
    """

    name: str
    settings: Any
    arms: tuple[str, ...]
    claims: tuple[Claim, ...]
    budget: str
    run_one: Callable[[Any, str, int], Outcome]
    judge: Callable[[Results], dict[str, Verdict]]
    draw: Callable[[Results, list[Any]], None]
    panels: int = 1
    seeds: int = LEAST_SEEDS

    def run(self, options: Options) -> list[Figure]:
        """Makes the runs that are missing, then judges."""
        seeds = options.seeds or self.seeds
        folder = self.folder(options.folder)
        missing = [
            (arm, seed)
            for seed in range(seeds)
            for arm in self.arms
            if not _file(folder, arm, seed).exists()
        ]
        done = len(self.arms) * seeds - len(missing)
        for arm, seed, outcome, seconds in self._outcomes(missing, options.workers):
            _write(_file(folder, arm, seed), {"outcome": outcome, "seconds": seconds})
            done += 1
            options.say(
                f"signature.{self.name}: {arm}, seed {seed}: {seconds:.0f} s, "
                f"{done} of {len(self.arms) * seeds} runs"
            )
        return self.figures(self.stored(options.folder))

    def folder(self, bench: Path) -> Path:
        """Where the runs of these settings are kept, whatever the commit."""
        settings = json.dumps(dataclasses.asdict(self.settings), sort_keys=True)
        key = hashlib.sha256(settings.encode()).hexdigest()[:12]
        return bench / "signature" / f"{self.name}-{key}"

    def stored(self, bench: Path) -> Results:
        """The runs of the seeds that all arms have."""
        runs: dict[str, dict[int, Outcome]] = {}
        for arm in self.arms:
            files = {int(path.stem): path for path in (self.folder(bench) / arm).glob("*.json")}
            runs[arm] = {seed: json.loads(files[seed].read_text())["outcome"] for seed in files}
        common = set.intersection(*(set(found) for found in runs.values()))
        return Results({arm: {seed: runs[arm][seed] for seed in sorted(common)} for arm in runs})

    def is_complete(self, results: Results) -> bool:
        return len(results.seeds) >= max(self.seeds, LEAST_SEEDS)

    def verdicts(self, results: Results) -> dict[str, Verdict]:
        """By the claims' keys; empty before every arm has LEAST_SEEDS seeds."""
        if len(results.seeds) < LEAST_SEEDS:
            return {}
        verdicts = self.judge(results)
        if set(verdicts) != {claim.key for claim in self.claims}:
            raise ValueError(f"{self.name} judged {sorted(verdicts)}: expected its claims' keys")
        return verdicts

    def figures(self, results: Results) -> list[Figure]:
        """For each claim 1 (reproduced) or 0, then the numbers behind it."""
        verdicts = self.verdicts(results)
        figures = []
        for claim in self.claims:
            metric = f"{self.name}.{claim.key}"
            verdict = verdicts.get(claim.key)
            if verdict is None:
                why = (
                    f"not run: {len(results.seeds)} seeds of every arm are stored, "
                    f"{max(self.seeds, LEAST_SEEDS)} are needed; "
                    f"`caravan bench signature.{self.name}` makes the missing runs"
                )
                figures.append(Figure("signature", metric, None, "reproduced", setup=why))
                continue
            said = f"{word(verdict)}. {claim.says} ({claim.source}). {verdict.reading}"
            value = float(verdict.reproduced)
            figures.append(Figure("signature", metric, value, "reproduced", setup=said))
            for name, number in verdict.numbers.items():
                ends = f"95% interval {number.lower:.4g} to {number.upper:.4g}"
                figures.append(
                    Figure("signature", f"{metric}: {name}", number.value, "", setup=ends)
                )
        return figures

    def _outcomes(
        self, runs: Sequence[tuple[str, int]], workers: int
    ) -> Iterator[tuple[str, int, Outcome, float]]:
        if workers == 1 or len(runs) < 2:
            for arm, seed in runs:
                yield _one(self.run_one, self.settings, arm, seed)
            return
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            submitted = [pool.submit(_one, self.run_one, self.settings, *each) for each in runs]
            try:
                for future in as_completed(submitted):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def word(verdict: Verdict) -> str:
    return "Reproduced" if verdict.reproduced else "Not reproduced"


def _one(
    run_one: Callable[[Any, str, int], Outcome], settings: Any, arm: str, seed: int
) -> tuple[str, int, Outcome, float]:
    """One run on one thread, with its CPU seconds."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    began = time.process_time()
    try:
        outcome = run_one(settings, arm, seed)
    finally:
        torch.set_num_threads(threads)
    return arm, seed, outcome, time.process_time() - began


def _file(folder: Path, arm: str, seed: int) -> Path:
    return folder / arm / f"{seed}.json"


def _write(path: Path, run: dict[str, Any]) -> None:
    """Whole or not at all, so that an interrupted run is not taken for one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(run))
    partial.replace(path)
