"""Random trajectories for tests of the records."""

from hypothesis import strategies as st

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory

numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
calls = st.builds(
    ToolCall,
    call_id=words,
    name=words,
    arguments=st.none() | st.dictionaries(words, json_values, max_size=3),
    result=words | st.integers(1, 3).map(lambda n: "長い結果 " * 4000 * n),
    error=st.none() | st.sampled_from(["not_found", "timeout"]),
    duration_s=numbers,
)
rewards = st.builds(
    Reward,
    value=st.none() | numbers,
    valid=st.booleans(),
    terms=st.dictionaries(words, st.none() | numbers, max_size=2),
    problem=words,
)


@st.composite
def segments(draw, min_tokens=0):
    size = draw(st.integers(min_tokens, 40)) * draw(st.sampled_from([1, 400]))
    return Segment(
        ids=list(range(size)),
        loss_mask=[i % 3 == 0 for i in range(size)],
        logprobs=[-i / 7 for i in range(size)],
        versions=[i % 5 - 1 for i in range(size)],
        parent=draw(st.none() | st.integers(0, 3)),
        texts=draw(st.sampled_from([[], ["é" if i % 2 else None for i in range(size)]])),
    )


@st.composite
def trajectories(draw):
    parts = draw(st.lists(segments(), min_size=1, max_size=3))
    steps = [
        Step(
            index=index,
            segment=draw(st.integers(0, len(parts) - 1)),
            start=0,
            stop=draw(st.integers(0, 9)),
            text=draw(words),
            call=draw(st.none() | calls),
            answer=draw(st.none() | words),
            reward=draw(st.none() | numbers),
            detour=draw(st.booleans()),
        )
        for index in range(draw(st.sampled_from([0, 1, 3, 64, 130])))
    ]
    return Trajectory(
        id=draw(words),
        task_id="t",
        group_id="g",
        category="2 hops",
        prompt=draw(words),
        answer=draw(words),
        segments=parts,
        steps=steps,
        stop_reason=draw(st.sampled_from(list(StopReason))),
        reward=draw(rewards),
        success=draw(st.booleans()),
        worker="w",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=1.5,
        sampled_tokens=3,
    )
