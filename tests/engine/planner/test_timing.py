"""Time of a step: arithmetic by hand, and what must grow or shrink."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner import (
    NEEDS,
    StepTime,
    next_token,
    parameters,
    prefill,
    read_cluster,
    shipped,
    training,
)
from engine.planner.needs import roles_of
from engine.planner.phases import Setup
from engine.planner.timing import Workload, sampling, step_time, update

SEVEN = "qwen2.5-7b"
WORK = Workload(trajectories=512, context=4096, sampled=2048)
SETUP = Setup(shards=8, engine="sleep", micro_tokens=4096, slots=16)


def step(
    algorithm: str, setup: Setup = SETUP, devices: str = "8xH100", name: str = SEVEN
) -> StepTime:
    roles = roles_of(algorithm, shipped(name))
    return step_time(NEEDS[algorithm], roles, read_cluster(devices), setup, WORK)


def test_an_update_is_its_arithmetic_where_links_are_fast() -> None:
    model, cluster = shipped(SEVEN), read_cluster("8xH100")
    found = update("actor update", model, cluster, SETUP, 512, 4096)
    flops = 512 * (training(model, 4096).total + prefill(model, 4096).total)  # layers twice forward
    assert found.flops == pytest.approx(flops)
    assert found.seconds == pytest.approx(flops / (8 * 989e12 * 0.4))
    assert found.limit == "arithmetic"


def test_an_update_waits_for_links_where_they_are_slow() -> None:
    model, setup = shipped(SEVEN), replace(SETUP, shards=64)
    found = update("actor update", model, read_cluster("64xL40S"), setup, 512, 4096)
    micro = 512 / 64
    assert found.seconds == pytest.approx(micro * 4 * 2 * parameters(model).total / 32e9)
    assert found.limit == "links"


def test_decoding_reads_weights_once_for_all_and_each_ones_keys() -> None:
    model, cluster = shipped(SEVEN), read_cluster("8xH100")
    prefilled, decoded = sampling(model, cluster, replace(SETUP, slots=2), WORK)
    read = 2 * parameters(model).total + 2 * 57_344 * 3072  # half of what is sampled is there
    rounds = 512 / 8 / 2
    assert decoded.seconds == pytest.approx(rounds * 2048 * read / (3.35e12 * 0.6))
    assert decoded.limit == "weights"
    assert prefilled.flops == pytest.approx(512 * prefill(model, 2048).total)
    assert decoded.flops == pytest.approx(512 * 2048 * next_token(model, 3072).total)
    full = sampling(model, cluster, replace(SETUP, slots=64), replace(WORK, context=65_536))[1]
    assert full.limit == "caches"


def test_experts_are_read_as_far_as_they_are_asked() -> None:
    """One sequence of R1 reads 37 of 671 billion parameters; hundreds read nearly all."""
    model, cluster = shipped("deepseek-r1"), read_cluster("64xH800")

    def token(slots: int) -> float:
        """Seconds of a decoding step without the layers' two sums over the engine's devices."""
        setup = replace(SETUP, engine_parallel=16, slots=slots)
        steps = 512 / 4 / slots * 2048
        sums = 2 * 61 * (10e-6 + 2 * 2 * slots * model.width / cluster.link_over(16))
        return sampling(model, cluster, setup, WORK)[1].seconds / steps - sums

    assert token(1) == pytest.approx(2 * 38e9 / (16 * 3.35e12 * 0.6), rel=0.06)
    assert 15 < token(128) / token(1) < 20


def test_a_small_model_gains_nothing_from_spreading_over_a_node() -> None:
    model, cluster = shipped("qwen2.5-0.5b"), read_cluster("8xH100")
    alone, spread = (
        sampling(model, cluster, replace(SETUP, engine_parallel=ways, slots=64), WORK)[1]
        for ways in (1, 8)
    )
    assert spread.seconds > alone.seconds
    assert spread.limit == "links"


def test_parts_follow_the_algorithm() -> None:
    names = {
        name: [part.name for part in step(name).parts] for name in ("ppo", "grpo", "sft", "opd")
    }
    assert names["sft"] == ["actor update"]
    assert names["grpo"] == ["prefill", "decoding", "log-probs", "actor update", "weight sync"]
    assert {"values", "critic update"} == set(names["ppo"]) - set(names["grpo"])
    assert set(names["opd"]) - set(names["grpo"]) == {"teachers"}


def test_a_reference_costs_one_more_pass_and_pairs_twice_the_rows() -> None:
    passes = {name: {p.name: p.seconds for p in step(name).parts} for name in ("ppo", "grpo")}
    assert passes["ppo"]["log-probs"] == pytest.approx(2 * passes["grpo"]["log-probs"])
    assert step("dpo").seconds == pytest.approx(2 * step("sft").seconds)


def test_engines_apart_hide_the_shorter_half() -> None:
    together, apart = step("grpo"), step("grpo", replace(SETUP, engine="apart"))
    rollout = sum(part.seconds for part in apart.parts[:2])
    assert apart.seconds == pytest.approx(max(rollout, together.seconds - rollout))
    assert together.limiting == max(together.parts, key=lambda part: part.seconds)


def test_adapters_spare_gradients_of_frozen_weights() -> None:
    full, lora = step("sft"), step("sft", replace(SETUP, optimizer="lora"))
    assert 0.7 < lora.seconds / full.seconds < 0.8  # 3 of 4 passes in the dense part


def test_what_lies_on_hosts_takes_time_to_move() -> None:
    found = step("grpo", replace(SETUP, optimizer="adamw_cpu"))
    (moved,) = [part for part in found.parts if part.name == "offload"]
    assert moved.seconds == pytest.approx(4 * parameters(shipped(SEVEN)).total / 8 / 25e9)
    assert moved.limit == "host"


@settings(max_examples=25, deadline=None)
@given(
    algorithm=st.sampled_from(sorted(NEEDS)),
    count=st.integers(1, 16),
    trajectories=st.integers(1, 2000),
    context=st.integers(2, 20_000),
)
def test_time_falls_with_devices_and_grows_with_work(
    algorithm: str, count: int, trajectories: int, context: int
) -> None:
    needs, roles = NEEDS[algorithm], roles_of(algorithm, shipped(SEVEN))
    work = Workload(trajectories, context, context // 2 or 1)
    setup = Setup(shards=1, engine="sleep", micro_tokens=context)  # no links: replicas

    def seconds(devices: int, asked: Workload) -> float:
        parts = step_time(needs, roles, read_cluster(f"{devices}xH100"), setup, asked).parts
        return sum(part.seconds for part in parts if part.name != "weight sync")

    here = seconds(count, work)
    assert seconds(2 * count, work) <= here
    assert seconds(count, replace(work, trajectories=2 * trajectories)) >= here
    assert seconds(count, replace(work, context=2 * context)) > here
