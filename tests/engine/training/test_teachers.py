"""Teachers from checkpoints: what they share with a student and with each other, and what not."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.lora import weights_digest
from engine.planner.architecture import Architecture
from engine.planner.configs import from_spec
from engine.planner.run_memory import adapter_parameters, teacher_bytes, trainer_memory
from engine.planner.stages import teachers_held
from engine.spec import LoraSpec, SftStage, SynthesiseStage
from engine.spec.lineage import TrainedStage
from engine.spec.opd import OpdStage, TeacherSpec
from engine.training import trainer as module
from engine.training.checkpoint import CheckpointError
from engine.training.distillation import opd_step
from engine.training.supervised import sft_step
from engine.training.teachers import Teacher, load_teachers
from engine.training.trainer import Trainer
from tests.engine.training.samples import (
    FLAT,
    SFT,
    VOCABULARY,
    gradients,
    make_groups,
    make_trainer,
)
from tests.engine.training.test_distillation import make_lessons

TOKENIZER = {"tokenizer.json": b"ours"}
LOUD = FLAT.model_copy(update={"lr": 3e-2})
RANKS = {2: 3, 3: 6}  # of the adapters of two teachers, by the number of their stage


def learn(trainer: Trainer, stage: TrainedStage, seed: int, folder: Path, parent: str) -> str:
    """Trains a few steps; the name of the checkpoint."""
    trainer.begin(stage)
    for number in range(3):
        sft_step(trainer, [one for group in make_groups(seed + number) for one in group])
    trainer.save(folder, {"parent": {"path": parent} if parent else None}, TOKENIZER)
    return folder.name


def sft(rank: int | None = None) -> SftStage:
    lora = None if rank is None else LoraSpec(rank=rank, alpha=5.0)
    return SftStage(steps=20, optimizer=LOUD, lora=lora)


@pytest.fixture(scope="module", params=[1, 3])
def experts(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, experts: int) -> Path:
    """Checkpoints: a cold start, two teachers of adapters and a whole one from it, and one of
    adapters on other weights."""
    folder = tmp_path_factory.mktemp("run")
    trainer = make_trainer(experts=experts)
    learn(trainer, sft(), 0, folder / "1", "")
    for number, rank in (*RANKS.items(), (4, None)):
        trainer.load_weights(folder / "1")
        learn(trainer, sft(rank), 10 * number, folder / f"{number}", "1")
    learn(trainer, sft(2), 50, folder / "5", "4")
    return folder


def taught(
    run: Path, names: Sequence[int], lora: LoraSpec | None, said: list[str], **how: Any
) -> tuple[Trainer, list[Teacher]]:
    """A student that begins with the cold start, and its teachers."""
    student = make_trainer(**how)
    student.load_weights(run / "1")
    # A weight and no category, so that all teach everything.
    specs = [TeacherSpec(stage=name, weight=1 / (1 + at)) for at, name in enumerate(names)]
    student.begin(OpdStage(teachers=specs, steps=20, optimizer=FLAT, lora=lora))

    def borrow(name: str):
        return nullcontext(run / name)

    checkpoints = [f"{name}" for name in names]
    return student, load_teachers(student, specs, checkpoints, borrow, TOKENIZER, said.append)


def whole(run: Path, found: list[Teacher]) -> list[Teacher]:
    """The same teachers as their checkpoints hold them with adapters taken in."""
    made = []
    for teacher in found:
        model = type(teacher.model).from_pretrained(run / f"{teacher.spec.stage}")
        made.append(Teacher(teacher.spec, model.requires_grad_(False)))
    return made


def shape(trainer: Trainer) -> Architecture:
    return from_spec(trainer.spec.model, "small")


def copies(trainer: Trainer) -> bool:
    return trainer.policy.compute is not trainer.policy.model


def unknown_tokens(trainer: Trainer) -> int:
    """Bytes of one embedding that the specification allows and no tokenizer of these tests has."""
    model = shape(trainer)
    return 4 * (model.vocab_size - VOCABULARY) * model.width


def planned(trainer: Trainer) -> int:
    """What the planner says of the teachers of the stage, in the run that made the checkpoints."""
    line = {2: (1, RANKS[2]), 3: (1, RANKS[3]), 4: (1, None), 5: (4, 2)}
    trained = [sft(rank).model_copy(update={"start_from": at}) for at, rank in line.values()]
    assert trainer.stage is not None
    student = trainer.stage.model_copy(update={"start_from": 1})
    stages = [SynthesiseStage(), sft(), *trained, student]
    return teacher_bytes(
        shape(trainer), str(trainer.dtype).removeprefix("torch."), teachers_held(stages, 6)
    )


def held_bytes(trainer: Trainer, found: list[Teacher]) -> dict[str, int]:
    """Bytes of what teachers hold beside the student, and of the student itself."""
    own = [*trainer.policy.model.parameters(), *trainer.policy.compute.parameters()]
    theirs = [p for one in found for p in [*one.model.parameters(), *(one.adapters or {}).values()]]
    bytes_of = {id(p): p.nbytes for p in [*own, *theirs]}
    student = {id(p) for p in own}
    return {
        "student": sum(size for at, size in bytes_of.items() if at in student),
        "teachers": sum(size for at, size in bytes_of.items() if at not in student),
    }


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_teachers_of_a_students_base_are_held_as_adapters_alone(
    run: Path, experts: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "choose_precision", lambda one: (getattr(torch, one), "as asked"))
    lora, said = LoraSpec(rank=4, alpha=8.0), list[str]()
    student, found = taught(run, [2, 3], lora, said, precision=precision, experts=experts)
    assert [one.model is student.policy.compute for one in found] == [True, True]
    assert all("adapters alone, on the student's weights" in one for one in said)
    held = held_bytes(student, found)
    factors = sum(adapter_parameters(shape(student), rank) for rank in RANKS.values())
    assert held["teachers"] == planned(student) == (2 if copies(student) else 4) * factors
    own = trainer_memory(shape(student), precision, FLAT, lora)
    gradients_of_copy = 2 * adapter_parameters(shape(student), lora.rank)
    copied = own.copy - gradients_of_copy if copies(student) else 0
    assert held["student"] == own.weights + copied - unknown_tokens(student)


def test_a_step_with_shared_teachers_is_a_step_with_whole_ones(run: Path, experts: int) -> None:
    results = []
    for shared in (True, False):
        student, found = taught(run, [2, 3, 4], LoraSpec(rank=4, alpha=8.0), [], experts=experts)
        assert [one.adapters is not None for one in found] == [True, True, False]
        groups, _ = make_lessons(3)
        steps = [opd_step(student, found if shared else whole(run, found), groups)]
        before = {name: p.grad for name, p in student.model.named_parameters() if p.requires_grad}
        steps.append(opd_step(student, found if shared else whole(run, found), groups))
        results.append((steps, before))
    (steps, grads), (expected, known) = results
    assert grads.keys() == known.keys() and all("lora_" in name for name in grads)
    for found_step, known_step in zip(steps, expected, strict=True):
        for name in ("loss", "divergence", "divergence/stage-2", "divergence/stage-3", "grad_norm"):
            assert found_step[name] == pytest.approx(known_step[name], rel=1e-4), name
    assert steps[0]["divergence/stage-2"] > 1e-3


def test_teachers_share_one_copy_where_the_students_weights_move(run: Path, experts: int) -> None:
    said: list[str] = []
    student, found = taught(run, [2, 3, 2], None, said, experts=experts)
    assert found[0].model is found[1].model is found[2].model
    assert found[0].model is not student.policy.compute
    assert all("on one copy of the teachers' weights" in one for one in said)
    one_copy = planned(student) - unknown_tokens(student)
    assert (
        held_bytes(student, found)["teachers"] == one_copy < 2 * held_bytes(student, [])["student"]
    )
    ids = torch.arange(12)[None]
    with torch.no_grad():
        for teacher, same in zip(found, whole(run, found), strict=True):
            with teacher.present() as present:
                assert torch.allclose(present(ids).logits, same.model(ids).logits, atol=1e-5)
    groups, _ = make_lessons(3)
    before = weights_digest(found[0].model)
    opd_step(student, found, groups)
    assert weights_digest(found[0].model) == before  # the student's step moved no teacher
    assert any(bool(grad.any()) for grad in gradients(student).values())


def test_adapters_of_other_weights_are_held_whole_with_a_word(run: Path, experts: int) -> None:
    said: list[str] = []
    _, found = taught(run, [2, 5], LoraSpec(rank=4), said, experts=experts)
    assert [one.adapters is not None for one in found] == [True, False]
    assert "stage 5 is held as a whole model: neither the student nor another teacher" in said[1]
    _, (alone,) = taught(run, [2], None, said, experts=experts)
    assert alone.adapters is None  # one copy either way: the plainer one


@pytest.mark.parametrize("gone", [False, True])
def test_a_base_that_is_gone_or_another_one_is_not_taken_for_it(
    run: Path, experts: int, gone: bool
) -> None:
    student = make_trainer(experts=experts)
    student.load_weights(run / "1")
    specs = [TeacherSpec(stage=2), TeacherSpec(stage=3)]
    student.begin(OpdStage(teachers=specs, steps=20, optimizer=FLAT))

    def borrow(name: str):
        if gone and name == "1":
            raise FileNotFoundError("1 is not there")
        return nullcontext(run / ("4" if name == "1" else name))

    said: list[str] = []
    found = load_teachers(student, specs, ["2", "3"], borrow, TOKENIZER, said.append)
    assert [one.adapters for one in found] == [None, None]
    expected = "are gone (1 is not there)" if gone else "1 does not hold the weights"
    assert all(expected in one for one in said), said


def test_teachers_whose_stages_began_with_no_checkpoint_are_held_whole_with_a_word(
    tmp_path: Path,
) -> None:
    for stage in (2, 3):
        learn(make_trainer(), sft(2), 10 * stage, tmp_path / f"{stage}", "")
    specs, said = [TeacherSpec(stage=2), TeacherSpec(stage=3)], list[str]()
    student = make_trainer()
    student.begin(OpdStage(teachers=specs, steps=20, optimizer=FLAT))

    def borrow(name: str):
        return nullcontext(tmp_path / name)

    found = load_teachers(student, specs, ["2", "3"], borrow, TOKENIZER, said.append)
    assert [one.adapters for one in found] == [None, None]
    assert all("no checkpoint holds the weights" in one for one in said), said


def test_a_resumed_stage_refuses_adapters_of_other_weights(run: Path, experts: int) -> None:
    trainer = make_trainer(experts=experts)
    trainer.load_weights(run / "4")
    trainer.begin(sft(RANKS[2]))
    with pytest.raises(CheckpointError, match="trained on other weights"):
        trainer.load(run / "2")
    trainer.load_weights(run / "1")
    trainer.begin(sft(RANKS[2]))
    trainer.load(run / "2")


def test_a_teacher_is_a_final_checkpoint_with_the_students_tokenizer(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.begin(SFT)
    trainer.save(tmp_path / "stage-1", {}, TOKENIZER)
    spec = TeacherSpec(stage=1)

    def load(tokenizer: dict[str, bytes]) -> Teacher:
        def borrow(name: str):
            return nullcontext(tmp_path / name)

        (found,) = load_teachers(trainer, [spec], ["stage-1"], borrow, tokenizer, print)
        return found

    found = load(TOKENIZER)
    assert not any(p.requires_grad for p in found.model.parameters())
    assert torch.equal(found.model.head_weight, trainer.model.head_weight)
    with pytest.raises(CheckpointError, match=r"another tokenizer\.json than the student's"):
        load({"tokenizer.json": b"other"})
    trainer.model.config.vocab_size += 1
    said = f"stage-1 knows {VOCABULARY} tokens and the student {VOCABULARY + 1}"
    with pytest.raises(CheckpointError, match=said):
        load(TOKENIZER)
