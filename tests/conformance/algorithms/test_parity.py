"""Losses, gradients, advantages and corrections against what TRL and verl computed.

`python -m bench.parity` made the golden files with the peers' own code; `caravan bench parity`
compares with other draws.
"""

import json
import math
from typing import Any

import pytest

from bench._parity_cases import TRL, VERL, compare
from bench.parity import GOLDEN

TABLES = {"trl": TRL, "verl": VERL}
IN_THE_DOCUMENTATION = {"loss.sapo"}  # see test_new_loss


def written(peer: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{peer}.json").read_text())
    return found


@pytest.mark.parametrize("peer", TABLES)
def test_every_case_of_a_peer_is_compared(peer: str) -> None:
    names = {one["name"] for one in written(peer)["cases"]}
    assert names - IN_THE_DOCUMENTATION == TABLES[peer].keys()


@pytest.mark.parametrize(
    ("peer", "name"), [(peer, name) for peer in TABLES for name in TABLES[peer]]
)
def test_it_computes_what_the_peer_does(peer: str, name: str) -> None:
    """Or differs by more than rounding where the difference is stated."""
    comparison = TABLES[peer][name]
    (found,) = compare(written(peer), {name: comparison})
    assert math.isfinite(found.largest)
    if comparison.differs:
        assert found.largest > 1e-6
    else:
        assert found.largest <= comparison.bar
