"""How far reviewers agree, beyond chance: Cohen's kappa and Krippendorff's alpha. Pure.

A unit is what was judged; its values are what its reviewers said, without what is missing.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

Level = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True)
class Pairwise:
    """Two reviewers on the items that both judged. `kappa` is None where chance agrees always."""

    first: int
    second: int
    items: int
    share: float
    kappa: float | None


def share_of(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Observed agreement, in [0, 1]; None without pairs."""
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Of two reviewers, (what the first said, what the second said) for each item: Cohen (1960).

    None without pairs, and where both always said the same one thing: chance agrees always.
    """
    if not pairs:
        return None
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    by_chance = sum(count * second[value] for value, count in first.items())
    if by_chance == len(pairs) ** 2:
        return None
    chance = by_chance / len(pairs) ** 2
    observed = sum(a == b for a, b in pairs) / len(pairs)
    return (observed - chance) / (1 - chance)


def krippendorff_alpha(units: Sequence[Sequence[float]], level: Level = "nominal") -> float | None:
    """Of any number of reviewers with values missing: Krippendorff (2011), by coincidences.

    Units with fewer than two values count for nothing. None where nothing can be paired, and
    where all values are the same, so that no disagreement is expected.
    """
    coincidences: Counter[tuple[float, float]] = Counter()
    for values in units:
        if len(values) < 2:
            continue
        counts = Counter(values)
        for a, of_a in counts.items():
            for b, of_b in counts.items():
                coincidences[a, b] += of_a * (of_b - (a == b)) / (len(values) - 1)  # type: ignore[assignment]
    marginals: dict[float, float] = {}
    for (a, _), count in coincidences.items():
        marginals[a] = marginals.get(a, 0) + count
    values = sorted(marginals)
    total = sum(marginals.values())
    distance = _distances(values, marginals, level)
    expected = sum(marginals[a] * marginals[b] * distance[a, b] for a, b in combinations(values, 2))
    if not expected:
        return None
    observed = sum(
        coincidences[a, b] * distance[a, b] for a, b in combinations(values, 2)
    )  # of one triangle, as `expected`
    return 1 - (total - 1) * observed / expected


def _distances(
    values: Sequence[float], marginals: Mapping[float, float], level: Level
) -> dict[tuple[float, float], float]:
    """Squared differences of values in ascending order (Krippendorff 2011, section C)."""
    found: dict[tuple[float, float], float] = {}
    for (i, a), (j, b) in combinations(enumerate(values), 2):
        if level == "nominal":
            found[a, b] = 1.0
        elif level == "interval":
            found[a, b] = float(a - b) ** 2
        else:
            between = sum(marginals[value] for value in values[i : j + 1])
            found[a, b] = (between - (marginals[a] + marginals[b]) / 2) ** 2
    return found


def by_reviewers(verdicts: Sequence[Mapping[int, Hashable]]) -> list[Pairwise]:
    """Each two reviewers who judged items in common. verdicts: by item, {reviewer: value}."""
    pairs: dict[tuple[int, int], list[tuple[Hashable, Hashable]]] = {}
    for given in verdicts:
        for first, second in combinations(sorted(given), 2):
            pairs.setdefault((first, second), []).append((given[first], given[second]))
    return [
        Pairwise(first, second, len(both), share_of(both) or 0.0, cohen_kappa(both))
        for (first, second), both in sorted(pairs.items())
    ]
