"""What the planner advises: what fits, what breaks, what helps, what to take."""

from dataclasses import replace

import pytest

from engine.planner import (
    CHANGES,
    NEEDS,
    REASONS,
    Advice,
    Asked,
    ConfigError,
    advise,
    case_of,
    parameters,
    read_cluster,
    shipped,
)

ASKED = Asked(context=8192, sampled=4096)


def on(devices: str, name: str, asked: Asked = ASKED) -> Advice:
    return advise(shipped(name), read_cluster(devices), asked)


def test_34b_on_eight_cards_with_moments_of_8_bits_is_the_headline() -> None:
    advice = on("8xH100", "yi-34b", replace(ASKED, optimizer="adamw8"))
    assert {one.algorithm: one.fits for one in advice.verdicts} == {
        name: name != "ppo" for name in NEEDS
    }
    ppo = advice.of("ppo")
    assert ppo.broken is not None
    assert (ppo.broken.phase, ppo.broken.component) == ("actor update", "critic")
    helped = {fix.changes: fix.case for fix in ppo.fixes}
    small = helped["critic_1b",]
    assert small.roles.critic is not None
    assert parameters(small.roles.critic).total < 1.1e9
    assert {("lora",), ("more_devices",)} < set(helped)
    assert (advice.suggested, advice.reason) == ("cispo", "large")


def test_every_fix_fits_and_says_no_more_than_it_does() -> None:
    for devices, name in (
        ("8xH100", "yi-34b"),
        ("8xA100-40", "qwen2.5-32b"),
        ("4xL40S", "qwen2.5-7b"),
    ):
        for verdict in on(devices, name).verdicts:
            assert verdict.fits != bool(verdict.broken)
            for fix in verdict.fixes:
                assert fix.case.fits
                assert set(fix.changes) <= set(CHANGES)
                if "more_devices" not in fix.changes:
                    assert fix.case.cluster == verdict.case.cluster
                if not {"lora", "critic_1b", "no_reference"} & set(fix.changes):
                    assert fix.case.roles == verdict.case.roles


def test_a_row_of_changes_is_found_where_none_alone_helps() -> None:
    asked = Asked(context=81_920, sampled=40_960)
    ppo = on("64xH800", "minimax-m1", asked).of("ppo")
    (fix,) = ppo.fixes
    assert "logits_chunked" in fix.changes
    for name in fix.changes:  # none of them is idle
        fewer = ppo.case
        for other in fix.changes:
            if other != name:
                found = CHANGES[other](fewer)
                assert found is not None
                fewer = found
        assert not fewer.fits


def test_small_models_practise_with_grpo_and_long_ones_with_a_critic() -> None:
    short = on("8xH100", "qwen2.5-7b")
    assert (short.suggested, short.reason) == ("grpo", "small")
    long = on("8xH200", "qwen2.5-7b", Asked(context=32_768, sampled=8192))
    assert (long.suggested, long.reason) == ("ppo", "small_long")


def test_nothing_is_suggested_where_nothing_can_fit() -> None:
    advice = on("1xL40S", "deepseek-r1", Asked(context=1_000_000, sampled=1000))
    assert (advice.suggested, advice.reason) == (None, "none")
    assert set(REASONS) == {"small", "small_long", "large", "none"}


def test_pairs_need_twice_the_tokens_of_a_micro_batch() -> None:
    cluster, model = read_cluster("8xH100"), shipped("qwen2.5-7b")
    dpo, sft = (case_of(name, model, cluster, ASKED) for name in ("dpo", "sft"))
    assert dpo.setup.micro_tokens == 2 * sft.setup.micro_tokens
    assert [phase.name for phase in dpo.memory.phases] == ["actor update"]


def test_an_engine_spreads_until_it_fits_and_fills_what_is_left() -> None:
    large = case_of("grpo", shipped("qwen2.5-72b"), read_cluster("32xH100"), ASKED)
    assert large.fits
    assert large.setup.engine_parallel >= 4  # 145 GB of weights
    assert large.slots >= large.setup.slots
    tiny = case_of("grpo", shipped("qwen2.5-0.5b"), read_cluster("8xH100"), ASKED)
    assert tiny.setup.engine_parallel == 1
    assert tiny.slots == 64  # all that each of 8 engines is given


def test_a_reference_is_held_as_usual_or_as_asked() -> None:
    cluster, model = read_cluster("8xH100"), shipped("yi-34b")

    def held(asked: Asked) -> set[str]:
        return {name for name in NEEDS if case_of(name, model, cluster, asked).roles.reference}

    assert held(ASKED) == {"ppo"}
    assert held(replace(ASKED, reference=False)) == set()
    assert held(replace(ASKED, reference=True)) == set(NEEDS) - {"dpo", "opd", "sft"}
    tight = replace(ASKED, optimizer="adamw8")
    helped = {fix.changes: fix.case for fix in on("8xH100", "yi-34b", tight).of("ppo").fixes}
    assert not helped["no_reference",].roles.reference


def test_the_ram_of_hosts_is_a_limit_too() -> None:
    asked = replace(ASKED, optimizer="adamw_cpu")
    cluster = replace(read_cluster("8xH100"), host_memory=100e9)
    verdict = advise(shipped("yi-34b"), cluster, asked).of("sft")
    assert verdict.broken is not None
    assert verdict.broken.phase == "host"
    assert verdict.broken.size == pytest.approx(12 * parameters(shipped("yi-34b")).total)


def test_more_tokens_sampled_than_a_context_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="9,000 sampled tokens do not go into a context of 8,192"):
        on("8xH100", "yi-34b", replace(ASKED, sampled=9000))
