"""Losses, gradients, advantages and corrections beside TRL and verl, on random ragged batches.

Each peer runs in an environment of its own and writes what it was given and what it computed;
Caravan computes the same from the inputs, in float64. `python -m bench.parity` makes the golden
files that the tests compare with where no peer is installed.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import _peers
from bench._parity_cases import TRL, VERL, Comparison, Difference, compare
from bench.figures import Figure, Options
from workers.local.places import CHECKOUT, UserError

SCRIPTS = Path(__file__).parent / "parity_peers"
GOLDEN = CHECKOUT / "tests/conformance/algorithms/golden"
GOLDEN_SEED, FIRST_SEED, SEEDS = 0, 100, 10
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """A peer's package, its environment as `bench._peers` makes it, and our side of its cases."""

    requirement: str
    table: Mapping[str, Comparison]
    beside: tuple[str, ...] | None = None
    from_source: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]


PEERS = (
    Peer("trl==1.16.0", TRL),
    Peer(
        "verl==0.9.1",
        VERL,
        beside=(
            "codetiming",
            "dill",
            "hydra-core==1.3.2",
            "omegaconf==2.3.0",
            "orjson",
            "pandas",
            "ray==2.60.0",
            "tensordict>=0.8,<0.11",
            "torchdata",
            "transformers>=5.5.3,<5.11",
        ),
        from_source=("antlr4-python3-runtime",),
    ),
)


def run(options: Options) -> list[Figure]:
    seeds = range(FIRST_SEED, FIRST_SEED + (options.seeds or SEEDS))
    with tempfile.TemporaryDirectory(prefix="caravan-bench-") as folder:
        return [
            _figure(peer, one)
            for peer in PEERS
            for one in compare(_written(peer, seeds, Path(folder) / "cases.json"), peer.table)
        ]


def _figure(peer: Peer, found: Difference) -> Figure:
    how = found.comparison
    said = [f"largest absolute difference, float64, {found.cases} random ragged batches"]
    said += [f"aligned: {how.aligned}"] if how.aligned else []
    said += [f"not meant to agree: {how.differs}"] if how.differs else []
    return Figure(
        bench="parity",
        metric=f"{peer.name}.{found.name}",
        value=found.largest,
        unit="",
        bar="" if how.differs else f"at most {how.bar:g}",
        peer=found.peer,
        setup="; ".join(said),
    )


def _written(peer: Peer, seeds: Sequence[int], path: Path) -> dict[str, Any]:
    """What the peer's script writes to `path`. Raises UserError where it fails."""
    programs = _peers.environment(peer.requirement, (TORCH,), peer.beside, peer.from_source)
    command = [str(programs / "python"), str(SCRIPTS / f"{peer.name}_peer.py")]
    command += ["--seeds", *map(str, seeds), "--out", str(path)]
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | quiet
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(f"{peer.requirement} did not compute its cases: {last}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_golden() -> None:
    """Makes the golden files anew, one a peer."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for peer in PEERS:
        _written(peer, [GOLDEN_SEED], GOLDEN / f"{peer.name}.json")


if __name__ == "__main__":
    write_golden()
