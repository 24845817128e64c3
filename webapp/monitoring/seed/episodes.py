"""Made-up episodes of graph search, token by token, with the errors that a young policy makes."""

import json
import random
import re
from datetime import UTC, datetime

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory

CITIES = {
    "Zürich": ("Switzerland", "ZRH"),
    "São Paulo": ("Brazil", "GRU"),
    "重庆市": ("China", "CKG"),
    "Kraków": ("Poland", "KRK"),
    "Winston-Salem": ("United States", "INT"),
    "Saint-Étienne": ("France", "EBU"),
    "Antananarivo": ("Madagascar", "TNR"),
    "Ho Chi Minh City": ("Vietnam", "SGN"),
}
FACTS = {
    "Switzerland": ("Bern", "CHF"),
    "Brazil": ("Brasília", "BRL"),
    "China": ("Beijing", "CNY"),
    "Poland": ("Warsaw", "PLN"),
    "United States": ("Washington", "USD"),
    "France": ("Paris", "EUR"),
    "Madagascar": ("Antananarivo", "MGA"),
    "Vietnam": ("Hanoi", "VND"),
}
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


class _Writer:
    """Collects the tokens of an episode as its turns and results are written."""

    def __init__(self, rng: random.Random, version: int, skill: float) -> None:
        self.random, self.version, self.skill = rng, version, skill
        self.segment = Segment([], [], [], [])

    def write(self, text: str, sampled: bool) -> tuple[int, int]:
        start = len(self.segment.ids)
        for piece in re.findall(r"\w{1,4}|\s|[^\w\s]", text):
            sure = self.random.random() < 0.5 + self.skill / 2
            self.segment.ids.append(sum(map(ord, piece)) % 1000)
            self.segment.texts.append(piece)
            self.segment.loss_mask.append(sampled)
            logprob = -self.random.expovariate(18 if sure else 1.2) if sampled else 0.0
            self.segment.logprobs.append(logprob)
            self.segment.versions.append(self.version if sampled else -1)
        return start, len(self.segment.ids)


def episode(
    rng: random.Random,
    name: str,
    *,
    group: str,
    version: int,
    skill: float,
    started: float,
    purpose: str,
    start_from: str,
) -> Trajectory:
    """An episode that a policy of this skill (0 to 1) might have played."""
    country, airport = CITIES[start_from]
    capital, currency = FACTS[country]
    question = f'Which currency is used where "{airport}" is the airport of a city?'
    writer = _Writer(rng, version, skill)
    writer.write(question, sampled=False)
    plan = [
        ("airport_of", airport, start_from),
        ("country", start_from, country),
        ("currency", country, currency),
    ]
    steps: list[Step] = []
    stop, answer = StopReason.ANSWERED, currency
    for relation, entity, value in plan:
        error = None
        given, result = entity, json.dumps({"value": value}, ensure_ascii=False)
        if rng.random() > 0.55 + skill / 2:
            given, error = entity[:-1], "not_found"
            result = json.dumps({"error": "not_found", "message": f"No entity {given!r}."})
        elif rng.random() < 0.02:
            result = json.dumps({"value": HOSTILE})
        _step(writer, steps, relation, given, result, error, rng)
        if error and rng.random() < 0.5:
            stop, answer = StopReason.REPEATED_CALL, ""
            break
        if error:
            right = json.dumps({"value": value}, ensure_ascii=False)
            _step(writer, steps, relation, entity, right, None, rng)
    if stop is StopReason.ANSWERED:
        if rng.random() > 0.6 + skill / 2.6:
            answer = capital
        text = json.dumps({"answer": answer}, ensure_ascii=False)
        first, last = writer.write(text, sampled=True)
        steps.append(Step(len(steps), 0, first, last, text, answer=answer))
    success = answer == currency
    sampled = sum(writer.segment.loss_mask)
    return Trajectory(
        id=name,
        task_id=f"task-{start_from}",
        group_id=group,
        category="3 hops" if len(start_from) % 2 else "4 hops",
        prompt=question,
        answer=currency,
        segments=[writer.segment],
        steps=steps,
        stop_reason=stop,
        reward=Reward(float(success), True, {"exact_answer": float(success)}),
        success=success,
        worker=f"rollout-{rng.randint(0, 3)}",
        started_at=datetime.fromtimestamp(started, UTC).isoformat(),
        duration_s=round(sum(s.call.duration_s for s in steps if s.call) + 0.3, 3),
        sampled_tokens=sampled,
        purpose=purpose,
    )


def _step(
    writer: _Writer,
    steps: list[Step],
    relation: str,
    entity: str,
    result: str,
    error: str | None,
    rng: random.Random,
) -> None:
    arguments = {"entity": entity, "relation": relation}
    text = json.dumps({"tool": "lookup", **arguments}, ensure_ascii=False)
    start, stop = writer.write(text, sampled=True)
    writer.write(result, sampled=False)
    call = ToolCall(
        f"call-{len(steps)}", "lookup", arguments, result, error, round(rng.uniform(0.001, 0.09), 4)
    )
    steps.append(Step(len(steps), 0, start, stop, text, call=call))
