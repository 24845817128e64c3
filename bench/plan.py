"""The planner beside public reports of what ran and what did not, and beside our own trainer.

Public points are data of `engine.planner.public_points`, each with its source; nothing is run for
them. State is compared to the byte with the trainer's tensors, activations with what autograd
keeps, a step's time with a measured one.
"""

from bench._plan_tensors import LENGTH, ROWS, activations, states, step_seconds
from bench.figures import Figure, Options
from engine.planner.public_points import (
    SCRIPTS,
    Judged,
    judged,
    largest_micro_batch,
)

GB = 1e9


def run(options: Options) -> list[Figure]:
    return [*points(), *micro_batches(), exact_state(), *kept_activations(), *time_of_a_step()]


def points() -> list[Figure]:
    """Shares classified right, and every point with its peak."""
    found = judged()
    explained = [one for one in found if one.point.explained]
    right = sum(one.right for one in explained)
    wrong = "; ".join(one.point.name for one in found if not one.right)
    total = Figure(
        "plan",
        "public_points_right",
        100 * right / len(explained),
        "%",
        "at least 100",
        setup=f"{right} of {len(explained)} explained reports; not as the planner says: {wrong}",
    )
    return [total, *(_point(number, one) for number, one in enumerate(found, 1))]


def micro_batches() -> list[Figure]:
    """The largest micro-batch that would fit, beside the largest that ran."""
    return [
        Figure(
            "plan",
            f"micro_batch_{script.model}",
            largest_micro_batch(script) / script.ran,
            "of the reported",
            setup=f"{largest_micro_batch(script)} sequences of GSM8K a device would fit; "
            f"{script.ran} ran and {script.failed} failed ({script.path})",
        )
        for script in SCRIPTS
    ]


def exact_state() -> Figure:
    """Weights, gradients, moments and copies of policies, critics and references, summed."""
    found = list(states())
    worst = max(found, key=lambda one: abs(one.held - one.planned))
    return Figure(
        "plan",
        "state_difference",
        float(abs(worst.held - worst.planned)),
        "bytes",
        "at most 0",
        setup=f"{len(found)} sums of tensors; the largest {max(one.held for one in found):,} bytes",
    )


def kept_activations() -> list[Figure]:
    """Shares of the planned bytes that autograd keeps: a plan is not to be too small."""
    found = dict(activations())
    least, most = min(found, key=lambda name: found[name]), max(found, key=lambda name: found[name])
    return [
        Figure("plan", "activations_least", found[least], "of the planned", setup=least),
        Figure("plan", "activations_most", found[most], "of the planned", "at most 1", setup=most),
    ]


def time_of_a_step() -> list[Figure]:
    """A supervised step on this CPU: an estimate beside the least of five."""
    measured, planned = step_seconds()
    setup = (
        f"{ROWS} trajectories of {LENGTH} tokens, the quick start's model, bf16, one thread: "
        f"{measured:.3f} s of CPU time, {planned:.3f} s planned"
    )
    return [Figure("plan", "step_time_ratio", planned / measured, "of the measured", setup=setup)]


def _point(number: int, one: Judged) -> Figure:
    point, peak = one.point, one.memory.peak
    largest = max(peak.components, key=lambda name: peak.components[name])
    says = "fits" if one.fits else "does not fit"
    told = "ran" if point.ran else "out of memory"
    if not point.explained:
        told += ", cause not settled in the thread"
    assumed = f"; assumed: {point.assumed}" if point.assumed else ""
    return Figure(
        "plan",
        f"point_{number:02}",
        peak.total / GB,
        "GB a device",
        setup=f"{point.name}. Reported: {told}. Planner: {says} {point.cluster.device.name}, peak "
        f"in {peak.name}, most of it {largest}{assumed} ({point.source})",
    )
