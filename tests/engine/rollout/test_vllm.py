"""A small random model through vLLM, where `caravan install vllm` was run."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.rollout.openai_sampler import OpenAiSampler
from engine.rollout.sampler import SampledTurn

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin/python"
START_S = 300

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is missing: `caravan install vllm`"),
]


@dataclass(frozen=True)
class Served:
    url: str
    model: LlamaForCausalLM


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("vllm")
    model = save_small_model(folder / "model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(PYTHON), "-m", "vllm.entrypoints.openai.api_server",
                "--model", str(folder / "model"), "--served-model-name", "small",
                "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "128",
                "--dtype", "float32", "--enforce-eager",
            ],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert server.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield Served(f"http://127.0.0.1:{port}/v1", model)
    finally:
        server.terminate()
        server.wait(30)


def save_small_model(folder: Path) -> LlamaForCausalLM:
    torch.manual_seed(0)
    pieces = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return model


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def next_turn(sampler: OpenAiSampler) -> SampledTurn:
    while not (turns := sampler.step()):
        pass
    assert not turns[0].problem
    return turns[0]


def test_its_log_probs_are_those_of_the_model_over_two_turns(served: Served) -> None:
    sampler = OpenAiSampler(served.url, "small", end_id=0, capacity=2)
    try:
        (sequence,) = sampler.open([5, 6, 7], copies=1, max_tokens=8, temperature=1.0)
        first = next_turn(sampler)
        sampler.extend(sequence, [9, 10], max_tokens=8)
        second = next_turn(sampler)
    finally:
        sampler.shut_down()
    ids = [5, 6, 7, *first.ids, 9, 10, *second.ids]
    with torch.no_grad():
        logprobs = served.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    positions = [*range(3, 3 + len(first.ids)), *range(len(ids) - len(second.ids), len(ids))]
    expected = [float(logprobs[at - 1, ids[at]]) for at in positions]
    assert [*first.logprobs, *second.logprobs] == pytest.approx(expected, abs=1e-3)
