"""Losses, advantages and divergences as TRL computes them; run inside TRL's environment.

TRL has no free loss functions: its trainers' own methods run here on given log-probabilities, and
a whole training step of a tiny model gives the advantages.
"""

import contextlib
import tempfile
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from cases import GROUP, Case, Draw, case, gradient, main
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gkd import GKDTrainer
from trl.rewards import get_soft_overlong_punishment
from trl.trainer.distillation_trainer import _chunked_divergence_loss
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

LONGEST = 16
REWARDS = ("chosen", "rejected", "margins")
ACCELERATOR = SimpleNamespace(
    num_processes=1,
    device=torch.device("cpu"),
    gather=lambda x: x,
    gather_for_metrics=lambda x: x,
    reduce=lambda x, reduction: x,
)


def make(seed: int) -> list[Case]:
    draw = Draw(seed)
    return [
        *_policy_losses(draw),
        *_rloo(draw),
        *_advantages(draw),
        *_preference(draw),
        *_distillation(draw),
        *_small(draw),
    ]


class _Grpo(GRPOTrainer):
    """Only what `_compute_loss` reads."""

    def __init__(self, logprobs: Tensor, **settings: Any) -> None:
        self.logprobs = logprobs
        self.accelerator, self.model = ACCELERATOR, SimpleNamespace(training=True)
        self.importance_sampling_level = settings.get("level", "token")
        self.loss_type, self.beta = settings["loss_type"], settings.get("beta", 0.0)
        self.epsilon_low, self.epsilon_high = settings["eps_low"], settings["eps_high"]
        self.top_entropy_quantile, self.off_policy_mask_threshold = 1.0, settings.get("opsm")
        self.use_vllm = self.vllm_importance_sampling_correction = "weights" in settings
        self.max_completion_length, self.aux_loss_enabled = LONGEST, False
        self._entropy_bonus_enabled, self.current_gradient_accumulation_steps = False, 1
        self.args = SimpleNamespace(
            delta=settings.get("dual"),
            use_bias_correction_kl=settings.get("corrected", True),
            steps_per_generation=1,
            sapo_temperature_pos=self.epsilon_low,
            sapo_temperature_neg=self.epsilon_high,
        )
        self._metrics = {"train": defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> tuple[Any, Any, None]:
        return self.logprobs, torch.zeros_like(self.logprobs), None


def _policy_losses(draw: Draw) -> list[Case]:
    old, advantages = draw.logprobs(), draw.normal(draw.rows)
    reference, far = old + draw.tokens(0.5), old + draw.tokens(0.8)
    near = old + draw.tokens(0.3)
    clip, gspo = {"eps_low": 0.2, "eps_high": 0.28}, {"eps_low": 0.1, "eps_high": 0.15}
    weights = torch.exp(draw.tokens(0.8)).clamp(max=2.0)
    runs: list[tuple[str, Tensor, dict[str, Any], dict[str, Any]]] = [
        *((kind, far, {**clip}, {}) for kind in ("grpo", "bnpo", "dr_grpo", "dapo")),
        ("grpo", far, {**clip, "dual": 3.0}, {"variant": "dual"}),
        ("grpo", far, {**clip}, {"variant": "kl", "beta": 0.04, "corrected": True}),
        ("grpo", far, {**clip}, {"variant": "k3", "beta": 0.04, "corrected": False}),
        ("grpo", far, {**clip}, {"variant": "opsm", "opsm": 0.1}),
        ("dapo", far, {**clip}, {"variant": "tis", "weights": weights, "beta": 0.04}),
        ("cispo", far, {"eps_low": 0.2, "eps_high": 1.7}, {}),
        ("grpo", near, gspo, {"variant": "gspo", "level": "sequence"}),
        ("sapo", far, {"eps_low": 1.0, "eps_high": 1.05}, {}),
    ]
    return [
        _policy_loss(draw, kind, logprobs.requires_grad_(), old, advantages, reference, how, more)
        for kind, logprobs, how, more in runs
    ]


def _policy_loss(
    draw: Draw,
    kind: str,
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    reference: Tensor,
    bounds: dict[str, Any],
    more: dict[str, Any],
) -> Case:
    trainer = _Grpo(logprobs, loss_type=kind, **bounds, **more)
    ids = torch.zeros(draw.rows, draw.width, dtype=torch.long)
    given: dict[str, Any] = {
        "prompt_ids": ids,
        "prompt_mask": torch.ones_like(ids),
        "completion_ids": ids,
        "completion_mask": draw.mask,
        "advantages": advantages,
        "old_per_token_logps": old,
        "ref_per_token_logps": reference,
        "importance_sampling_ratio": more.get("weights"),
        "num_items_in_batch": draw.mask.sum(),
    }
    loss = trainer._compute_loss(None, given)
    variant = more.get("variant")
    inputs = {
        "logprobs": logprobs,
        "behaviour": old,
        "advantages": advantages,
        "mask": draw.mask,
        "bounds": bounds,
        "longest": LONGEST,
    }
    if "beta" in more:
        inputs |= {"beta": more["beta"], "reference": reference}
    inputs |= {name: more[name] for name in ("weights", "opsm") if name in more}
    outputs = {"loss": loss, "gradient": gradient(loss, logprobs)}
    for name in ("clip_ratio/region_mean", "kl"):
        if name in trainer._metrics["train"]:
            outputs[name] = float(trainer._metrics["train"][name][0])
    return case(f"loss.{kind}" + (f".{variant}" if variant else ""), inputs, outputs)


class _Rloo(RLOOTrainer):
    def __init__(self, logprobs: Tensor) -> None:
        self.logprobs = logprobs
        self.accelerator, self.model = ACCELERATOR, SimpleNamespace(training=True)
        self.epsilon_low = self.epsilon_high = 0.2
        self.aux_loss_enabled, self._metrics = False, {"train": defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> tuple[Any, Any, None]:
        return self.logprobs, torch.zeros_like(self.logprobs), None


def _rloo(draw: Draw) -> list[Case]:
    """On policy, where the product of ratios is 1, and off policy, where it is clipped."""
    old, advantages = draw.logprobs(), draw.normal(draw.rows)
    made = []
    for name, logprobs in (("on_policy", old.clone()), ("off_policy", old + draw.tokens(0.1))):
        ids = torch.zeros(draw.rows, draw.width, dtype=torch.long)
        loss = _Rloo(logprobs.requires_grad_())._compute_loss(
            None,
            {
                "prompt_ids": ids,
                "prompt_mask": ids,
                "completion_ids": ids,
                "completion_mask": draw.mask,
                "advantages": advantages,
                "old_logps": (old * draw.mask).sum(1),
            },
        )
        made.append(
            case(
                f"loss.rloo.{name}",
                {
                    "logprobs": logprobs,
                    "behaviour": old,
                    "advantages": advantages,
                    "mask": draw.mask,
                    "bounds": {"eps_low": 0.2, "eps_high": 0.2},
                },
                {"loss": loss, "gradient": gradient(loss, logprobs)},
            )
        )
    return made


def _advantages(draw: Draw) -> list[Case]:
    """A training step of a tiny model; its rewards are ours, in float64, one of them missing."""
    rewards = draw.normal(draw.rows)
    rewards[1] = torch.nan
    made = []
    for scale in ("group", "batch", "none"):
        found = _trained(GRPOTrainer, GRPOConfig, rewards, scale_rewards=scale)
        made.append(
            case(
                f"advantage.scale_{scale}",
                {"rewards": rewards, "groups": draw.groups, "eps": 1e-4},
                {"advantages": found},
            )
        )
    found = _trained(RLOOTrainer, RLOOConfig, rewards, normalize_advantages=False, beta=0.0)
    inputs = {"rewards": rewards, "groups": draw.groups}
    return [*made, case("advantage.rloo", inputs, {"advantages": found})]


def _trained(trainer: type, config: type, rewards: Tensor, **settings: Any) -> Tensor:
    class Given(trainer):  # type: ignore[misc]
        def _calculate_rewards(self, *_: Any, **__: Any) -> Tensor:
            self.reward_weights = self.reward_weights.double()
            return rewards[:, None].clone()

    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "<eos>": 1, "a": 2, "b": 3}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>"
    )
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=4,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=32,
        )
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        ran = Given(
            model=model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=config(
                output_dir=folder,
                per_device_train_batch_size=len(rewards),
                num_generations=GROUP,
                max_completion_length=4,
                max_steps=1,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to="none",
                disable_tqdm=True,
                save_strategy="no",
                **settings,
            ),
            train_dataset=Dataset.from_list([{"prompt": "a b"}] * len(rewards)),
            processing_class=fast,
        )
        ran.train()
    return torch.tensor(list(ran._logs["advantages"]), dtype=torch.float64)


class _Dpo(DPOTrainer):
    def __init__(self, loss_types: list[str], beta: float, label_smoothing: float) -> None:
        self.accelerator, self.model = ACCELERATOR, SimpleNamespace(training=True)
        self.aux_loss_enabled = self.use_weighting = False
        self.ld_alpha, self.precompute_ref_logps = None, True
        self.f_divergence_type, self.beta = "reverse_kl", beta
        self.loss_types, self.loss_weights = loss_types, [1.0] * len(loss_types)
        self.label_smoothing = label_smoothing
        self._metrics, self._total_train_tokens = {"train": defaultdict(list)}, 0
        self._tp_size = 1


def _preference(draw: Draw) -> list[Case]:
    """Rows are chosen, then their rejected. On a single pair aot sorts nothing: what is left of it
    is the conservative loss, that sigmoid had with label_smoothing in earlier versions."""
    first = torch.tensor([0, draw.rows // 2])
    every = torch.arange(draw.rows)
    logprobs = draw.logprobs() * draw.mask
    references = (logprobs + draw.tokens(0.5)) * draw.mask
    return [
        _pairs(name, kinds, logprobs[rows], references[rows], draw.mask[rows], smoothing)
        for name, kinds, rows, smoothing in (
            ("sigmoid", ["sigmoid"], every, 0.0),
            ("ipo", ["ipo"], every, 0.0),
            ("sigmoid_norm", ["sigmoid_norm"], every, 0.0),
            ("rpo", ["sigmoid", "sft"], every, 0.0),
            ("conservative", ["aot"], first, 0.1),
        )
    ]


def _pairs(
    name: str, kinds: list[str], given: Tensor, references: Tensor, mask: Tensor, smoothing: float
) -> Case:
    """The prompt is one token, in front."""
    logprobs, beta = given.clone().requires_grad_(), 0.3
    sums = references.sum(1).chunk(2)
    whole = torch.cat([torch.zeros(len(mask), 1, dtype=torch.float64), mask], dim=1)
    shown = torch.zeros_like(mask)
    output = SimpleNamespace(
        log_probs=logprobs,
        entropy=shown,
        mean_logits=shown,
        is_top1=shown.bool(),
        log_sum_sq_probs=shown,
    )
    trainer = _Dpo(kinds, beta, smoothing)
    loss = trainer._compute_loss(
        lambda **_: output,
        {
            "input_ids": torch.zeros_like(whole, dtype=torch.long),
            "attention_mask": torch.ones_like(whole),
            "completion_mask": whole,
            "ref_chosen_logps": sums[0],
            "ref_rejected_logps": sums[1],
        },
        False,
    )
    figures = {what: float(one[0]) for what, one in trainer._metrics["train"].items()}
    pairs = len(mask) // 2
    return case(
        f"preference.{name}",
        {
            "logprobs": logprobs,
            "reference": references,
            "mask": mask,
            "beta": beta,
            "smoothing": smoothing,
        },
        {
            "loss": loss,
            "gradient": gradient(loss, logprobs) * mask,
            **{f"rewards/{what}": figures[f"rewards/{what}"] for what in REWARDS},
            # of float32 in TRL: a count of pairs
            "rewards/accuracies": round(figures["rewards/accuracies"] * pairs) / pairs,
        },
    )


def _distillation(draw: Draw) -> list[Case]:
    """The generalised divergence in float64, and TRL's chunked one, which works in float32."""
    width, vocabulary, temperature = 5, 7, 0.8
    hidden = draw.normal(1, draw.width, width).requires_grad_()
    teacher = draw.normal(1, draw.width, width)
    head, teacher_head = draw.normal(vocabulary, width), draw.normal(vocabulary, width)
    mask = draw.mask[:1]
    made = []
    for name, beta in (("forward_kl", 0.0), ("reverse_kl", 1.0), ("jsd", 0.5), ("jsd_skew", 0.2)):
        loss = GKDTrainer.generalized_jsd_loss(
            hidden @ head.T,
            teacher @ teacher_head.T,
            labels=torch.where(mask > 0, 0, -100),
            beta=beta,
            temperature=temperature,
        )
        chunked, _, _ = _chunked_divergence_loss(
            hidden.float(),
            teacher.float(),
            head.float(),
            teacher_head.float(),
            mask,
            beta,
            temperature=temperature,
        )
        inputs = {
            "hidden": hidden[0],
            "teacher_hidden": teacher[0],
            "head": head,
            "teacher_head": teacher_head,
            "mask": mask[0],
            "beta": beta,
            "temperature": temperature,
        }
        found = {"loss": loss, "gradient": gradient(loss, hidden)[0]}
        made.append(case(f"distillation.{name}", inputs, found))
        made.append(case(f"distillation.{name}.chunked", inputs, {"loss": chunked}))
    return made


def _small(draw: Draw) -> list[Case]:
    logits = draw.normal(4, 11)
    ids = torch.tensor([0, 3, 10, 7])
    lengths = [0, 1, 11, 12, 13, 15, 16, 17, 40]
    penalty = get_soft_overlong_punishment(16, 4)
    return [
        case(
            "logprobs",
            {"logits": logits, "ids": ids},
            {
                "logprobs": selective_log_softmax(logits, ids),
                "entropy": entropy_from_logits(logits),
            },
        ),
        case(
            "overlong",
            {"lengths": lengths, "longest": 16, "cache": 4},
            {"penalty": penalty([[0] * length for length in lengths])},
        ),
    ]


if __name__ == "__main__":
    main("trl", make)
