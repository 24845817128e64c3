"""Memory, time and advice as plain numbers and names, for JSON and pages."""

from dataclasses import asdict
from typing import Any

from engine.planner.advice import Advice, Verdict
from engine.planner.cases import Case
from engine.planner.changes import Fix
from engine.planner.phases import Phase
from engine.planner.timing import StepTime


def advice_figures(advice: Advice) -> dict[str, Any]:
    """The advice: verdicts, the suggestion and its reason (a key of REASONS)."""
    cluster = advice.verdicts[0].case.cluster
    return {
        "devices": cluster.name,
        "limit": cluster.device.memory,
        "suggested": advice.suggested,
        "reason": advice.reason,
        "verdicts": [_verdict(one) for one in advice.verdicts],
    }


def phase_figures(phase: Phase) -> dict[str, Any]:
    """One phase by component, bytes."""
    return {"name": phase.name, "total": phase.total, "components": dict(phase.components)}


def time_figures(time: StepTime) -> dict[str, Any]:
    """Seconds of a step and of its parts."""
    return {
        "seconds": time.seconds,
        "limiting": time.limiting.name,
        "limit": time.limiting.limit,
        "parts": [asdict(part) for part in time.parts],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    case = verdict.case
    return {
        "algorithm": case.algorithm,
        "about": case.needs.about,
        "fits": verdict.fits,
        **_case(case),
        "broken": asdict(verdict.broken) if verdict.broken else None,
        "fixes": [_fix(fix) for fix in verdict.fixes],
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {"changes": list(fix.changes), "devices": fix.case.cluster.count, **_case(fix.case)}


def _case(case: Case) -> dict[str, Any]:
    """Time only where the case fits: what does not run takes none."""
    samples = case.needs.samples
    return {
        "peak": case.memory.peak.name,
        "bytes": case.memory.peak.total,
        "phases": [phase_figures(phase) for phase in case.memory.phases],
        "host_bytes": case.memory.host,
        "engine_devices": case.setup.engine_parallel if samples else None,
        "slots": case.slots if samples else None,
        "time": time_figures(case.time) if case.fits else None,
    }
