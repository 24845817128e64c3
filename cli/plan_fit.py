"""`caravan plan fit`: which algorithms a model, a cluster and a context length leave, and why."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.plan_input import read_count, read_length, read_model
from workers.local.places import UserError

if TYPE_CHECKING:
    from engine.planner import Architecture, Asked, Cluster


def fit(
    devices: Annotated[str, typer.Option(help="As 8xH100-80; cpu is one core.")],
    context: Annotated[str, typer.Option(help="Tokens of a whole trajectory: 4096, 32k.")],
    model: Annotated[
        str | None,
        typer.Option(help="A shipped model, a config.json, a checkpoint folder or a recipe."),
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="Instead of a model: a dense one of that size, as 34b.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Show this one in full; otherwise the one suggested.")
    ] = None,
    optimizer: Annotated[
        str, typer.Option(help="adamw, adamw8, adamw8_master, adamw_cpu, muon or lora.")
    ] = "adamw",
    engine: Annotated[
        str, typer.Option(help="The sampler while training: sleep, resident, or apart.")
    ] = "sleep",
    sampled: Annotated[
        str | None, typer.Option(help="Tokens of it that are sampled; half of them otherwise.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="Prompts of a step.")] = 64,
    group: Annotated[int, typer.Option(help="Trajectories of a prompt.")] = 8,
    critic: Annotated[
        str | None, typer.Option(help="Parameters of PPO's critic, as 1b; the model's otherwise.")
    ] = None,
    teachers: Annotated[int, typer.Option(help="Teachers of on-policy distillation.")] = 1,
    reference: Annotated[
        bool | None,
        typer.Option(help="Hold a reference for a KL term; otherwise PPO does and others do not."),
    ] = None,
    host_ram: Annotated[str, typer.Option(help="RAM of a node of eight devices, as 2t.")] = "1t",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What fits: memory by phase and component, time, what breaks, what helps, what to take."""
    from cli.plan_fit_tables import show_fit
    from engine.planner import NEEDS, ConfigError, advise
    from engine.planner.report import advice_figures

    if algorithm is not None and algorithm not in NEEDS:
        raise UserError(f"There is no algorithm {algorithm!r}: there are {', '.join(NEEDS)}.")
    tokens = read_length(context, "--context")
    for option, number in (("prompts", prompts), ("group", group), ("teachers", teachers)):
        if number < 1:
            raise UserError(f"--{option} {number} is too few: there must be at least 1.")
    try:
        actor = _model(model, params)
        cluster = _cluster(devices, host_ram)
        asked = _asked(tokens, sampled, optimizer, engine, critic)
        asked = replace(asked, prompts=prompts, group=group, teachers=teachers, reference=reference)
        advice = advise(actor, cluster, asked)
    except ConfigError as error:
        raise UserError(str(error)) from None
    if as_json:
        print(json.dumps({"model": _named(actor), **advice_figures(advice)}))
    else:
        show_fit(actor, advice, algorithm)


def _model(model: str | None, params: str | None) -> "Architecture":
    from engine.planner import sized

    if (model is None) == (params is None):
        raise UserError("Give either --model or --params: one of them says what is trained.")
    if params is not None:
        return sized(read_count(params, "--params"))
    return read_model(str(model))


def _cluster(devices: str, host_ram: str) -> "Cluster":
    from engine.planner import read_cluster

    return read_cluster(devices, host_memory=read_count(host_ram, "--host-ram"))


def _asked(
    context: int, sampled: str | None, optimizer: str, engine: str, critic: str | None
) -> "Asked":
    from engine.planner import OPTIMIZERS, Asked, sized

    for option, value, known in (
        ("--optimizer", optimizer, OPTIMIZERS),
        ("--engine", engine, ("sleep", "resident", "apart")),
    ):
        if value not in known:
            raise UserError(f"{option} {value!r} is not known: there are {', '.join(known)}.")
    return Asked(
        context=context,
        sampled=read_length(sampled, "--sampled") if sampled else max(1, context // 2),
        optimizer=optimizer,  # type: ignore[arg-type]
        engine=engine,  # type: ignore[arg-type]
        critic=sized(read_count(critic, "--critic")) if critic else None,
    )


def _named(model: "Architecture") -> dict[str, Any]:
    from engine.planner import parameters

    return {"name": model.name, "source": model.source, "parameters": parameters(model).total}
