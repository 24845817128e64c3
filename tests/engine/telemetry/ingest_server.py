"""A real HTTP server in place of ingest: it stores what arrives and misbehaves on demand."""

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

Answer = tuple[int, dict[str, Any] | bytes]


class IngestServer:
    """`behave` decides about a call before it is stored: an answer, or None to store it."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int], dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.datasets: dict[str, bytes] = {}  # by id of the version
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.duplicates = 0
        self.command = "run"
        self.pause_rollouts = False
        self.pause_training = False
        self.redeems: dict[str, Any] = {}
        self.token = "token"
        self.behave: Callable[[str, dict[str, Any]], Answer | None] = lambda path, body: None
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def until(self, condition: Callable[[], Any], timeout_s: float = 20.0) -> None:
        """Wait until the condition holds after some call. Fails after the time."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), "it did not happen in time"

    def forget(self) -> None:
        """As before the first call, for the next attempt; what is stored by hash stays."""
        self.calls.clear()
        self.events.clear()
        self.command = "run"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        found = sorted(self.events.items())
        return [event for _, event in found if event["kind"] == kind]

    def answer(self, method: str, path: str, token: str, raw: bytes) -> Answer:
        if path != "tickets/redeem" and token != f"Bearer {self.token}":
            return 401, {"title": "unknown token"}
        body = json.loads(raw) if method == "POST" else {}
        with self.changed:
            self.calls.append((path, body))
            self.changed.notify_all()
        if refused := self.behave(path, body):
            return refused
        with self.changed:
            try:
                return self._store(path, body, raw)
            finally:
                self.changed.notify_all()

    def _store(self, path: str, body: dict[str, Any], raw: bytes) -> Answer:
        if path == "events":
            new = {(item["source"], item["seq"]): item for item in body["items"]}
            self.duplicates += len(new.keys() & self.events.keys())
            for item in new.values():
                if item["kind"] == "trajectories":
                    assert item["shard"] in self.blobs, "a row arrived before its shard"
            self.events.update(new)
            return 200, {"accepted": len(new), "duplicates": 0, "rejected": []}
        if path.startswith("blobs/"):
            assert hashlib.sha256(raw).hexdigest() == path.removeprefix("blobs/")
            self.blobs[path.removeprefix("blobs/")] = raw
            return 201, {}
        if path.startswith("datasets/"):
            found = self.datasets.get(path.removeprefix("datasets/"))
            return (404, {"detail": "not of this run"}) if found is None else (200, found)
        if path == "tickets/redeem":
            return 200, self.redeems
        if path == "heartbeat":
            latches = {
                "pause_rollouts": self.pause_rollouts,
                "pause_training": self.pause_training,
            }
            return 200, {"command": self.command, **latches}
        return 200, {}


def _handler(server: IngestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Content-Encoding") == "zstd":
                raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=2**26)
            path = self.path.removeprefix("/ingest/v1/")
            token = self.headers.get("Authorization", "")
            status, answer = server.answer(self.command, path, token, raw)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the client gave up

        def do_GET(self) -> None:
            self.do_POST()

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
