"""REST of running episodes: a run's list of them, and one of them turn by turn."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from engine.records.events import RunningEpisode
from engine.records.trajectory import StepField
from webapp.accounts import access
from webapp.experiments.models import Run
from webapp.reviews import episodes

router = Router(tags=["trajectories"])


class WorkerOut(Schema):
    """What a worker plays. Times are in seconds since 1970."""

    worker: str
    running: int = Field(description="Episodes, listed or not")
    told_at: float
    silent: bool = Field(description="Not heard of for a while: the list may be out of date")
    episodes: list[RunningEpisode]


class RunningOut(Schema):
    workers: list[WorkerOut]


class EndOut(Schema):
    reason: str = Field(
        description="A stop reason; `dropped`: with its stage; `cut_off`: with its attempt"
    )
    reward: float | None
    success: bool | None


class TurnOut(Schema):
    index: int
    text: str
    answer: str | None = None
    tool: str | None = None
    arguments: str | None = Field(None, description="JSON; null: they could not be parsed")
    result: str = ""
    error: str | None = None
    duration_s: float = 0.0
    more: dict[StepField, int] = Field({}, description="What is cut here, and its whole size")


class EpisodeOut(Schema):
    """An episode that can be followed. A number missing in the turns was not published."""

    trajectory: str
    attempt: int
    worker: str
    task: str
    category: str
    purpose: str
    prompt: str
    started_at: float
    told_at: float
    turns: int
    tokens: int = Field(description="Sampled so far")
    end: EndOut | None
    stored: bool = Field(description="Whether its replay is there")


class EpisodeDetail(Schema):
    cursor: int = Field(description="From here the topic episode.RUN.TRAJECTORY goes on")
    episode: EpisodeOut
    turns: list[TurnOut]


@router.get("/runs/{run_id}/episodes", response=RunningOut)
def list_episodes(request: HttpRequest, run_id: str) -> Any:
    """Episodes that a run plays now; of the `followed` ones the turns can be read."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return {"workers": episodes.playing(run)}


@router.get("/runs/{run_id}/episodes/{trajectory}", response=EpisodeDetail)
def get_episode(request: HttpRequest, run_id: str, trajectory: str) -> Any:
    """One episode and its turns so far, cut for people; kept for half an hour after its end."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return episodes.detail(run, access.found_or_404(episodes.find(run, trajectory)))
