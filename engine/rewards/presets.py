"""Reward schemes that people can choose by name, in a recipe and on the Reward schemes page."""

from engine.rewards.scheme import RewardCurriculum, RewardScheme, RewardTerm

TURNS = 8  # calls that the quick start allows

_COMPOSITE = [
    RewardTerm(kind="exact_answer", weight=0.8),
    RewardTerm(kind="step_efficiency", weight=0.2, budget=TURNS),
    RewardTerm(kind="tool_error_count", weight=-1.5),
]

# What each is for; the composite ones differ only in when their process terms come in.
PRESETS: dict[str, tuple[RewardScheme, str]] = {
    scheme.name: (scheme, purpose)
    for scheme, purpose in (
        (RewardScheme(), "1 for the right answer, nothing else"),
        (
            RewardScheme(name="composite", terms=_COMPOSITE),
            "completion x 0.8 + step efficiency x 0.2 - tool errors x 1.5, all from the start",
        ),
        (
            RewardScheme(
                name="composite-curriculum",
                terms=_COMPOSITE,
                curriculum=RewardCurriculum(process=["step_efficiency", "tool_error_count"]),
            ),
            "completion alone until it is learnt, then step efficiency and tool errors as well",
        ),
    )
}


def preset(name: str) -> RewardScheme:
    """Raises ValueError with the names that exist."""
    if name not in PRESETS:
        raise ValueError(f"There is no reward scheme {name!r}: there are {', '.join(PRESETS)}.")
    return PRESETS[name][0]
