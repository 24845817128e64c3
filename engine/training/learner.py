"""A model that learns: its weights in fp32, a copy in the type of products, and its optimizer."""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import torch
from peft import PeftModel
from torch import Tensor, nn

from engine.algorithms.batch import TokenBatch
from engine.models.hybrid import HybridForCausalLM
from engine.models.hybrid.moe import expert_loads, imbalance
from engine.models.hybrid.watched_logits import watched_logits
from engine.models.logprobs import Rows
from engine.models.lora import add_lora, take_in
from engine.optim.optimizer import StageOptimizer
from engine.optim.qk_clip import QkClip
from engine.spec import LoraSpec, OptimizerSpec, TrainerSpec
from engine.training.passes import PaddedPass, Place, TreePass, passes
from engine.trees.statistics import Work

logger = logging.getLogger(__name__)

AllReduce = Callable[[Tensor], None]  # sums a tensor over all ranks, in place
Objective = Callable[[Rows, Place], Tensor]  # what a pass adds to the loss


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; `all_reduce` sums over all of them."""

    rank: int = 0
    world: int = 1
    all_reduce: AllReduce | None = None

    def __post_init__(self) -> None:
        if self.world > 1 and self.all_reduce is None:
            raise ValueError(f"{self.world} ranks need a function that sums over them")

    def sum(self, *tensors: Tensor | None) -> None:
        """Sums each tensor over the ranks, in place."""
        if self.all_reduce is None:
            return
        present = [tensor for tensor in tensors if tensor is not None]
        flat = torch.cat([tensor.double().flatten() for tensor in present])
        self.all_reduce(flat)
        sizes = [tensor.numel() for tensor in present]
        for tensor, part in zip(present, torch.split(flat, sizes), strict=True):
            tensor.copy_(part.view_as(tensor))

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of each element over the ranks."""
        of_ranks = tensor.new_zeros(self.world, *tensor.shape)
        of_ranks[self.rank] = tensor
        self.sum(of_ranks)
        return of_ranks.amax(0)


class Gradient(NamedTuple):
    """loss: the objective over the whole step, without what keeps experts evenly used; imbalance:
    the balancing loss of the step's tokens before its weight, None where none was asked for."""

    loss: float
    imbalance: float | None
    work: Work


class Learner:
    """`model` holds the fp32 weights, `compute` the blocks' copy in `dtype` that runs.

    head: what else is trained with the model, in fp32, and stays out of the copy. With several
    ranks all are given the same batches and each takes its share of the rows.
    """

    def __init__(
        self,
        model: HybridForCausalLM,
        dtype: torch.dtype,
        spec: TrainerSpec,
        ranks: Ranks,
        head: nn.Module | None = None,
    ) -> None:
        self.model, self.head = model, head
        self._dtype, self._spec, self._ranks = dtype, spec, ranks
        self.compute = self._copy()
        self.adapted: PeftModel | None = None  # `model` with adapters, where only they are trained
        self.optimizer: StageOptimizer | None = None
        self._clip: QkClip | None = None
        self._largest: Tensor | None = None  # logits of the passes since the last update

    def begin(self, spec: OptimizerSpec, steps: int) -> None:
        """A fresh optimizer for `steps` updates."""
        named = self.model.named_parameters()
        parameters = {name: parameter for name, parameter in named if parameter.requires_grad}
        tables = self.model.tables()
        if self.head is not None:
            extra = {f"head.{name}": p for name, p in self.head.named_parameters()}
            parameters |= extra
            tables |= extra.keys()
        self.optimizer = StageOptimizer(
            parameters, spec, steps, self.model.fused_matrices(), tables
        )
        self._clip = None
        if spec.qk_clip is not None:
            heads, shared = self.model.softmax_projections(), spec.qk_clip_shared_keys
            self._clip = QkClip(parameters, heads, spec.qk_clip, shared)
            logger.info(
                "QK-Clip keeps the attention logits of %d of %d layers at %g; the others are "
                "lightning layers, which have none.",
                len(heads), len(self.model.layers), spec.qk_clip,
            )  # fmt: skip

    def adapt(self, lora: LoraSpec, seed: int) -> None:
        """From now on trains adapters alone, drawn by the seed: the same on every rank."""
        self.adapted = add_lora(self.model, lora.rank, lora.alpha, seed)
        self.compute = self._copy()

    def take_in(self) -> None:
        """Takes adapters into the weights, which train again; does nothing without adapters."""
        if self.adapted is not None:
            take_in(self.adapted)
            self.adapted = None
            self.compute = self._copy()

    def gradient(self, batch: TokenBatch, groups: Sequence[int], objective: Objective) -> Gradient:
        """Leaves the gradient of the loss in the weights.

        The loss is the objective, summed over passes and ranks, with the balancing loss of experts
        where the model asks for it. `groups` numbers the group of each row.
        """
        for parameter in self._parameters():
            parameter.grad = torch.zeros_like(parameter)
        todo = list(self._passes(batch, groups))
        totals = torch.zeros(5, dtype=torch.float64)
        balance, tokens = self.model.config.router_aux_loss_coef, float(batch.lengths.sum())
        shares = self._shares(todo, tokens) if balance else None
        largest = self._clip.nothing_seen() if self._clip else None
        for one in todo:
            with watched_logits(self.compute, largest, one.ends):
                found = one.run(self.compute)
            loss = objective(found.rows, one.place)
            uneven = torch.zeros(())
            if balance:
                if shares is None:
                    shares = expert_loads(found.routings, found.counts) / tokens
                part = found.counts.sum() / tokens
                uneven = part * imbalance(found.routings, found.counts, shares)
            (loss + balance * uneven).backward()  # type: ignore[no-untyped-call]
            self._collect()
            figures = [float(loss.detach()), float(uneven.detach()), *astuple(one.work)]
            totals += torch.tensor(figures, dtype=torch.float64)
        self._ranks.sum(totals, *(parameter.grad for parameter in self._parameters()))
        self._largest = None if largest is None else self._ranks.largest(largest)
        total, uneven_total, *work = totals.tolist()
        return Gradient(total, uneven_total if balance else None, Work(*work))

    @torch.no_grad()
    def _shares(self, todo: Sequence[PaddedPass | TreePass], tokens: float) -> Tensor | None:
        """Of a step's tokens that go to each expert, [layers, experts], found before its gradient.

        One pass on one rank knows them of itself: None.
        """
        if len(todo) == 1 and self._ranks.world == 1:
            return None
        config = self.model.config
        loads = torch.zeros(len(self.model.layers), config.num_local_experts)
        for one in todo:
            found = one.run(self.compute)
            loads += expert_loads(found.routings, found.counts)
        self._ranks.sum(loads)
        return loads / tokens

    @torch.no_grad()
    def read(
        self,
        batch: TokenBatch,
        groups: Sequence[int],
        value: Callable[[Rows], Tensor],
        model: HybridForCausalLM | None = None,
        shape: tuple[int, ...] = (),
    ) -> Tensor:
        """`value` [N, *shape] of each pass's tokens in the loss, as [rows, tokens, *shape]; 0
        elsewhere.

        model: another one than the learner's own.
        """
        found = torch.zeros(*batch.ids.shape, *shape, dtype=self.model.head_weight.dtype)
        for one in self._passes(batch, groups):
            found[one.place] = value(one.run(self.compute if model is None else model).rows)
        self._ranks.sum(found)
        return found

    def step(self) -> dict[str, float]:
        """One update from the gradient in place, then QK-Clip; figures of both."""
        statistics = self.running_optimizer.step()
        if self._clip is not None and self._largest is not None:
            statistics["max_logit"] = float(self._largest.max())
            statistics["qk_clipped_heads"] = 0.0
            if "skipped_update" not in statistics:
                statistics |= self._clip.clip(self._largest)
            self._largest = None
        self.refresh()
        return statistics

    @property
    def running_optimizer(self) -> StageOptimizer:
        if self.optimizer is None:
            raise RuntimeError("No stage has begun: call begin first")
        return self.optimizer

    def frozen(self) -> HybridForCausalLM:
        """A copy of the weights as they are, in the type of products, without gradients."""
        return copy.deepcopy(self.model).body_(self._dtype).requires_grad_(False)

    @torch.no_grad()
    def refresh(self) -> None:
        """Brings the copy up to the weights."""
        for master, copied in self._pairs():
            copied.copy_(master)

    def _passes(self, batch: TokenBatch, groups: Sequence[int]) -> Iterator[PaddedPass | TreePass]:
        how, ranks = self._spec, self._ranks
        return passes(batch, groups, how.tree_merge, how.pack_tokens, ranks.rank, ranks.world)

    @torch.no_grad()
    def _collect(self) -> None:
        """Adds what the copy's backward pass left to the fp32 gradients, piece by piece."""
        for master, copied in self._pairs():
            if copied.grad is not None and master.grad is not None:
                master.grad += copied.grad
                copied.grad = None

    def _copy(self) -> HybridForCausalLM:
        return self.model if self._dtype == torch.float32 else self.model.copy_in(self._dtype)

    def _parameters(self) -> list[nn.Parameter]:
        extra = [] if self.head is None else list(self.head.parameters())
        return [p for p in [*self.model.parameters(), *extra] if p.requires_grad]

    def _pairs(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each weight with its copy, where it has one."""
        pairs = zip(self.model.parameters(), self.compute.parameters(), strict=True)
        return ((master, copied) for master, copied in pairs if copied is not master)
