"""Teachers: final checkpoints of earlier stages, frozen, in the type of products."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.spec.opd import TeacherSpec
from engine.training.checkpoint import CheckpointError, read_checkpoint, read_tensors


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model without gradients, and what it teaches."""

    spec: TeacherSpec
    model: HybridForCausalLM


def load_teacher(
    spec: TeacherSpec,
    folder: Path,
    student: HybridConfig,
    tokenizer: Mapping[str, bytes],
    dtype: torch.dtype,
) -> Teacher:
    """The teacher in a checkpoint folder; `tokenizer` holds the files of the student's.

    Raises CheckpointError where it is damaged, or reads other tokens than the student.
    """
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
    model = HybridForCausalLM(config)
    model.load_state_dict(read_tensors(folder, "model"))
    return Teacher(spec, model.body_(dtype).requires_grad_(False))
