"""The ingest API: what run drivers and device samplers call, with tokens of their own."""

import json
from typing import IO, Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import NinjaAPI, Schema
from ninja.parser import Parser
from ninja.security import HttpBearer
from pydantic import Field

from engine.records.events import Devices
from engine.spec.code import MAX_CODE_VERSION
from webapp import live, storage
from webapp.accounts.credentials import is_sampler_token
from webapp.experiments import services
from webapp.experiments.models import Checkpoint, DatasetVersion, StageDataset
from webapp.monitoring.ingest import parsing
from webapp.monitoring.ingest.devices import store_devices
from webapp.monitoring.ingest.finish import finish as finish_attempt
from webapp.monitoring.ingest.heartbeat import heartbeat as take_heartbeat
from webapp.monitoring.ingest.storing import check_token, store
from webapp.problems import RefusedError
from webapp.rest.problem_json import answer_with_problems

MAX_BLOB_BYTES = 64 * 2**20
Text = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


class AttemptBearer(HttpBearer):
    """Takes any token of an attempt's form; whose it is, is read inside the transaction."""

    openapi_name = "attempt token"

    async def authenticate(self, request: HttpRequest, token: str) -> str | None:
        return token if token.startswith("cva_") else None


class SamplerBearer(HttpBearer):
    openapi_name = "sampler token"

    async def authenticate(self, request: HttpRequest, token: str) -> str | None:
        return token if is_sampler_token(token) else None


class PackedJson(Parser):
    """JSON that may be packed, whatever call it belongs to."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(_plain(request))
        return found


api = NinjaAPI(
    title="Caravan ingest",
    version="1",
    parser=PackedJson(),
    urls_namespace="ingest",
    auth=AttemptBearer(),
    docs_url=None,
    openapi_url=None,
)
answer_with_problems(api)


class RedeemIn(Schema):
    attempt: Text
    ticket: Text
    code_version: Annotated[str, Field(max_length=MAX_CODE_VERSION)] = ""


class ResumeOut(Schema):
    checkpoint_path: str
    stage: int
    step: int
    version: int


class OriginOut(ResumeOut):
    """A checkpoint of another run, which this one starts from."""

    id: str
    run_id: str
    storage: str = Field(description="Of that run")


class RedeemOut(Schema):
    token: str
    run_id: str
    attempt_id: str
    attempt_number: int
    spec: dict[str, Any]
    dry_run: bool = Field(description="Stand-ins for rewards: every stage takes its step")
    code_version: str = Field(description="That the run was launched with")
    resume: ResumeOut | None
    origin: OriginOut | None
    storage: str
    heartbeat_s: int


@api.post("/tickets/redeem", response=RedeemOut, auth=None)
async def redeem(request: HttpRequest, data: RedeemIn) -> dict[str, Any]:
    """Exchange a one-time ticket for the attempt's token."""
    given = await sync_to_async(services.redeem)(data.attempt, data.ticket, data.code_version)
    origin = given.origin
    return {
        "token": given.token,
        "run_id": given.run.pk,
        "attempt_id": given.attempt.pk,
        "attempt_number": given.attempt.number,
        "spec": given.run.spec,
        "dry_run": given.run.is_dry_run,
        "code_version": given.run.code_version,
        "resume": given.resume and _position(given.resume),
        "origin": origin
        and {
            **_position(origin),
            "id": origin.pk,
            "run_id": origin.run_id,
            "storage": storage.run_folder(origin.run_id),
        },
        "storage": services.storage_of(given.run),
        "heartbeat_s": services.HEARTBEAT_S,
    }


def _position(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_path": checkpoint.path,
        "stage": checkpoint.stage,
        "step": checkpoint.step,
        "version": checkpoint.policy_version,
    }


class HeartbeatIn(Schema):
    phase: Annotated[str, Field(max_length=40)]
    stage: Count
    step: Count


class HeartbeatOut(Schema):
    command: Literal["run", "stop", "interrupt"]
    pause_rollouts: bool
    pause_training: bool


@api.post("/heartbeat", response=HeartbeatOut)
async def heartbeat(request: HttpRequest, data: HeartbeatIn) -> Any:
    """Say that the attempt is alive and where it stands; the answer says what is wished of it."""
    answer = await sync_to_async(take_heartbeat)(_token(request), data.phase, data.stage, data.step)
    if answer.changed:
        await live.publish(live.run_topic(answer.run.pk), live.project_topic(answer.run.project_id))
    return answer


class RejectedOut(Schema):
    index: int
    field: str
    message: str


class EventsOut(Schema):
    accepted: int
    duplicates: int
    rejected: list[RejectedOut]


@api.post("/events", response=EventsOut)
async def events(request: HttpRequest) -> Any:
    """Store a batch of events: {"items": [...]}, plain, gzip or zstd."""
    body = _plain(request)
    outcome = await sync_to_async(lambda token: store(token, parsing.parse(body)))(_token(request))
    await live.publish(live.run_topic(outcome.run_id))
    return outcome


@api.put("/blobs/{sha256}", response={200: None, 201: None})
async def put_blob(request: HttpRequest, sha256: str) -> Any:
    """Store bytes under their SHA-256 for the attempt's run; twice changes nothing."""
    if not storage.SHA256.fullmatch(sha256):
        raise RefusedError("A blob is named by its SHA-256 in lower-case hex.")
    body = request.body
    if len(body) > MAX_BLOB_BYTES:
        raise RefusedError(f"A blob has at most {MAX_BLOB_BYTES:,} bytes.", status=413)

    def put() -> int:
        attempt = check_token(_token(request))
        return 201 if services.put_upload(attempt.run_id, body, sha256) else 200

    return HttpResponse(status=await sync_to_async(put)())


@api.get("/datasets/{version_id}", response={200: None})
async def get_dataset(request: HttpRequest, version_id: str) -> StreamingHttpResponse:
    """The rows of a dataset version that a stage of the attempt's run learns from, as
    zstd-compressed JSON lines."""

    def find() -> tuple[DatasetVersion, IO[bytes]]:
        run_id = check_token(_token(request)).run_id
        for named in StageDataset.objects.filter(run=run_id).select_related("version"):
            if named.version_id == version_id:
                return named.version, storage.open_blob(named.version.blob)
        raise RefusedError("No stage of this run learns from such a dataset version.", status=404)

    version, file = await sync_to_async(find)()
    return storage.attachment(storage.chunks(file), f"{version.pk}.jsonl.zst", version.size)


class FinishIn(Schema):
    state: Literal["succeeded", "stopped", "failed", "interrupted"]
    reason: str = ""
    summary: dict[str, Any] = {}


@api.post("/finish", response=dict[str, Any])
async def finish(request: HttpRequest, data: FinishIn) -> dict[str, Any]:
    """The driver's last word; its token is revoked with it."""
    await sync_to_async(finish_attempt)(_token(request), data.state, data.reason, data.summary)
    return {}


class DevicesIn(Schema):
    items: Annotated[list[Devices], Field(max_length=1000)]


@api.post("/devices", response=dict[str, int], auth=SamplerBearer())
async def devices(request: HttpRequest, data: DevicesIn) -> dict[str, int]:
    """Utilisation and memory of the devices of one or more nodes."""
    stored = await sync_to_async(store_devices)(data.items)
    await live.publish(live.CLUSTER)
    return {"accepted": stored}


def _plain(request: HttpRequest) -> bytes:
    return parsing.decompress(request.body, request.headers.get("Content-Encoding", ""))


def _token(request: HttpRequest) -> str:
    return str(request.auth)  # type: ignore[attr-defined]
