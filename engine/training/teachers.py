"""Teachers: final checkpoints of earlier stages, frozen, in the type of products.

A teacher that was trained as adapters is held as adapters alone, where the weights under them are
in memory anyway: those that a student of adapters began with, or those of other teachers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.lora import (
    adapter_factors,
    adapter_scale,
    add_lora,
    put_in,
    switched_in,
    weights_digest,
)
from engine.spec.opd import TeacherSpec
from engine.training.checkpoint import CheckpointError, read_checkpoint, read_tensors
from engine.training.trainer import ADAPTER_CONFIG, ADAPTERS, Trainer

Borrow = Callable[[str], AbstractContextManager[Path]]  # a checkpoint's folder, by its name


@dataclass(frozen=True, eq=False)
class Teacher:
    """What a model teaches. adapters: what makes `model`, which others share, this teacher."""

    spec: TeacherSpec
    model: HybridForCausalLM
    adapters: Mapping[str, nn.Parameter] | None = None

    @contextmanager
    def present(self) -> Iterator[HybridForCausalLM]:
        """The teacher's model, as long as it is asked."""
        if self.adapters is None:
            yield self.model
            return
        with switched_in(self.model, self.adapters) as model:
            yield model


def load_teachers(
    trainer: Trainer,
    specs: Sequence[TeacherSpec],
    checkpoints: Sequence[str],
    borrow: Borrow,
    tokenizer: Mapping[str, bytes],
    tell: Callable[[str], None],
) -> list[Teacher]:
    """The teachers of the stage that the trainer has begun, each in the checkpoint of its name.

    tokenizer: files of the student's; tell: is given a sentence on each teacher of adapters.
    Raises CheckpointError where one is damaged, or reads other tokens than the student.
    """
    with ExitStack() as stack:
        folders = {name: stack.enter_context(borrow(name)) for name in dict.fromkeys(checkpoints)}
        metas = {
            name: _check(folder, trainer.model.config, tokenizer)
            for name, folder in folders.items()
        }
        loading = _Loading(trainer, folders, metas, borrow, tell)
        stages = dict(zip(checkpoints, (spec.stage for spec in specs), strict=True))
        found = {name: loading.load(name, stage) for name, stage in stages.items()}
    return [Teacher(spec, *found[name]) for name, spec in zip(checkpoints, specs, strict=True)]


Held = tuple[HybridForCausalLM, dict[str, nn.Parameter] | None]


@dataclass
class _Loading:
    """bases: weights that adapters can stand on, by their digest."""

    trainer: Trainer
    folders: Mapping[str, Path]
    metas: Mapping[str, dict[str, Any]]
    borrow: Borrow
    tell: Callable[[str], None]
    bases: dict[str, HybridForCausalLM] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.trainer.base is not None:
            self.bases[self.trainer.base] = self.trainer.policy.compute
        digests = [meta.get("adapter_base") for meta in self.metas.values()]
        self._sharing = Counter(digest for digest in digests if digest is not None)

    def load(self, name: str, stage: int) -> Held:
        folder, meta = self.folders[name], self.metas[name]
        if f"{ADAPTERS}.safetensors" not in meta["files"]:
            return self._whole(folder), None
        if why := self._why_alone(name):
            self.tell(f"The teacher of stage {stage} is held as a whole model: {why}.")
            return self._whole(folder), None
        digest = meta["adapter_base"]
        of = "the student's" if digest == self.trainer.base else "one copy of the teachers'"
        self.tell(f"The teacher of stage {stage} is held as adapters alone, on {of} weights.")
        model = self.bases[digest]
        adapters = _adapters(folder, model)
        if digest != self.trainer.base:
            put_in(model, adapters)  # so that the copy holds none beside its teachers'
        return model, adapters

    def _why_alone(self, name: str) -> str:
        """Why a teacher's adapters have no weights here to stand on; empty where they do."""
        meta = self.metas[name]
        digest, parent = meta.get("adapter_base"), meta.get("parent")
        if digest is None:
            return "its checkpoint does not say to which weights its adapters belong"
        if digest in self.bases:
            return ""
        if self._sharing[digest] < 2:
            return "neither the student nor another teacher stands on the weights of its adapters"
        if parent is None:
            return "no checkpoint holds the weights of its adapters: its stage began with none"
        held = self.folders.get(parent["path"])
        try:
            with nullcontext(held) if held else self.borrow(parent["path"]) as folder:
                model = _read(folder)
        except FileNotFoundError as error:
            return f"the weights of its adapters are gone ({error})"
        if weights_digest(model) != digest:
            return f"{parent['path']} does not hold the weights of its adapters"
        add_lora(model, *adapter_scale((self.folders[name] / ADAPTER_CONFIG).read_bytes()))
        model.body_(self.trainer.dtype).requires_grad_(False)
        self.bases[digest] = model
        return ""

    def _whole(self, folder: Path) -> HybridForCausalLM:
        return _read(folder).body_(self.trainer.dtype).requires_grad_(False)


def _check(folder: Path, student: HybridConfig, tokenizer: Mapping[str, bytes]) -> dict[str, Any]:
    """A checkpoint's meta data, once it was found whole and of the student's tokens."""
    meta = read_checkpoint(folder)
    config = HybridConfig.from_pretrained(folder)
    if config.vocab_size != student.vocab_size:
        raise CheckpointError(
            f"The teacher in {folder.name} knows {config.vocab_size} tokens and the student "
            f"{student.vocab_size}: a teacher must share the student's tokenizer."
        )
    for name, content in tokenizer.items():
        if name in meta["files"] and (folder / name).read_bytes() != content:
            raise CheckpointError(
                f"The teacher in {folder.name} was trained with another {name} than the student's: "
                "the same number means another token to each."
            )
    return meta


def _read(folder: Path) -> HybridForCausalLM:
    model = HybridForCausalLM(HybridConfig.from_pretrained(folder))
    model.load_state_dict(read_tensors(folder, "model"))
    return model


def _adapters(folder: Path, model: HybridForCausalLM) -> dict[str, nn.Parameter]:
    config = (folder / ADAPTER_CONFIG).read_bytes()
    return adapter_factors(read_tensors(folder, ADAPTERS), config, model)
