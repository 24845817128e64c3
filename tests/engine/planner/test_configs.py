"""Configurations as people give them, right and wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.models.hybrid import HybridConfig
from engine.planner import (
    ConfigError,
    LayerKind,
    from_spec,
    parameters,
    read_config,
    read_config_file,
    shipped,
    shipped_names,
)
from engine.planner.configs import shipped_config
from engine.spec import ModelSpec

PUBLISHED = {  # parameters as counted over the published weights
    "llama-2-13b": 13_015_864_320,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "yi-34b": 34_388_917_248,
}


def test_it_ships_models_and_the_twins_of_hybrids() -> None:
    compared = {"deepseek-r1", "minimax-m1", "minimax-m1-softmax", "qwen3-235b-a22b"}
    assert set(shipped_names()) == compared | set(PUBLISHED)
    for name in shipped_names():
        model = shipped(name)
        assert (model.name, bool(model.source)) == (name, True)
    m1 = shipped("minimax-m1")
    assert [m1.count(kind) for kind in LayerKind] == [10, 0, 70]


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_a_shipped_model_has_as_many_parameters_as_published(name: str, total: int) -> None:
    assert parameters(shipped(name)).total == total


def test_it_names_the_shipped_models_to_who_asks_for_another() -> None:
    with pytest.raises(ConfigError, match="No model 'gpt' is shipped: there are deepseek-r1, "):
        shipped("gpt")


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec(layers=["lightning", "lightning", "softmax"], width=64, heads=2, conv_width=2),
        ModelSpec(kv_heads=2, head_dim=16, experts=4, experts_per_token=3, tie_embeddings=False),
    ],
    ids=["dense", "experts"],
)
def test_a_spec_and_the_configuration_made_of_it_have_one_shape(spec: ModelSpec) -> None:
    config = HybridConfig.from_spec(spec, spec.vocab_size, pad_id=0, end_id=1)
    from_config = read_config(json.loads(config.to_json_string()), "x", source="specification")
    assert from_spec(spec, "x") == from_config


def test_it_reads_a_checkpoint_folder(tmp_path: Path) -> None:
    HybridConfig().save_pretrained(tmp_path)
    in_folder, alone = read_config_file(tmp_path), read_config_file(tmp_path / "config.json")
    assert in_folder.layers == alone.layers
    assert in_folder.count(LayerKind.LIGHTNING) == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not known: there are caravan_hybrid, "),
        ({"model_type": None}, "model_type None is not known"),
        ({"hidden_size": None}, "the field hidden_size is missing"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; a whole number of at least 1"),
        ({"vocab_size": 0}, "vocab_size is 0; a whole number of at least 1"),
        ({"num_local_experts": True}, "num_local_experts is True"),
        ({"attn_type_list": [0, 1]}, "attn_type_list must be a list with one entry a layer"),
        ({"attn_type_list": None}, "attn_type_list must be a list"),
        ({"attn_type_list": [2] * 80}, "attn_type_list holds 2; it may hold 'linear_attention'"),
        ({"sliding_window": 4096}, "attention in a sliding window cannot be counted"),
        ({"shared_intermediate_size": 512}, "shared_intermediate_size cannot be counted"),
    ],
)
def test_it_names_what_is_wrong(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config({**shipped_config("minimax-m1"), **changes}, "my model")
    assert str(caught.value).startswith("my model: ")
    assert sentence in str(caught.value)


def test_it_refuses_what_it_would_count_wrongly() -> None:
    with pytest.raises(ConfigError, match="attention_bias and moe_layer_freq"):
        read_config({**shipped_config("deepseek-r1"), "moe_layer_freq": 2}, "x")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "cannot be read (No such file"), ("{", "is not JSON"), ("[]", "holds no JSON object")],
)
def test_it_says_which_file_is_no_configuration(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_config_file(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert sentence in str(caught.value)
