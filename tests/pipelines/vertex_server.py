"""A loopback server in the place of Google Cloud: Vertex AI, Storage, Artifact Registry, Secret Manager, and tokens.

It keeps every request, and answers as it is told: first each answer of a queue, then the last one of it again.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]
"""Status and JSON content, or bytes as they are; a status of 0 breaks the connection."""
ROUTES = {
    "create": r"POST /v1/projects/[^/]+/locations/[^/]+/pipelineJobs",
    "list": r"GET /v1/projects/[^/]+/locations/[^/]+/pipelineJobs",
    "schedules": r"GET /v1/projects/[^/]+/locations/[^/]+/schedules",
    "get": r"GET /v1/projects/[^/]+/locations/[^/]+/pipelineJobs/[^/:]+",
    "cancel": r"POST /v1/projects/[^/]+/locations/[^/]+/pipelineJobs/[^/:]+:cancel",
    "schedule": r"POST /v1/projects/[^/]+/locations/[^/]+/schedules",
    "bucket": r"GET /storage/v1/b/[^/]+",
    "token": r"POST /token",
    "manifest": r"GET /v2/.+/manifests/[^/]+",
    "blob": r"GET /v2/.+/blobs/[^/]+",
    "secret": r"GET /v1/projects/[^/]+/secrets/[^/]+/versions/[^/]+:access",
}


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    route: str
    path: str
    query: dict[str, list[str]]
    body: Any
    headers: dict[str, str]
    """With names in lower case."""


@dataclass
class VertexServer:
    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))

    def says(self, route: str, *answers: Answer) -> None:
        """Queue answers; the last one is given again and again."""
        self.answers[route] = list(answers)

    def of(self, route: str) -> list[Received]:
        return [request for request in self.received if request.route == route]

    def answer(self, request: Received) -> Answer:
        queue = self.answers[request.route]
        if queue:
            return queue.pop(0) if len(queue) > 1 else queue[0]
        match request.route:
            case "create":
                name = f"{request.path.removeprefix('/v1/')}/{request.query['pipelineJobId'][0]}"
                return 200, {**request.body, "name": name, "state": "PIPELINE_STATE_PENDING"}
            case "schedule":
                return 200, {"name": f"{request.path.removeprefix('/v1/')}/77", "state": "ACTIVE"}
            case "bucket":
                return 200, {"name": request.path.rpartition("/")[2], "location": "EUROPE-WEST4"}
            case "token":
                return 200, {"access_token": "loopback-token", "expires_in": 3600, "token_type": "Bearer"}
            case "manifest":
                return 200, {"config": {"digest": "sha256:c0"}}
            case "blob":
                return image_config(variables=["LAUREL_REVISION=abc", "NVIDIA_VISIBLE_DEVICES=all"])
            case "cancel" | "list" | "schedules":
                return 200, {}
            case _:
                return error(404, "nothing here")


def error(status: int, message: str, name: str = "") -> Answer:
    """Return an error as Google's APIs give it."""
    return status, {"error": {"code": status, "message": message, "status": name}}


def image_config(architecture: str = "amd64", variables: Sequence[str] = ("LAUREL_REVISION=abc",)) -> Answer:
    """Return an image's configuration as a registry gives it."""
    return 200, {"architecture": architecture, "config": {"Env": ["PATH=/usr/bin", *variables]}}


def job(state: str, *tasks: dict[str, Any], message: str = "") -> Answer:
    """Return a job as Vertex AI gives it."""
    content: dict[str, Any] = {"name": "projects/demo-project/locations/europe-west4/pipelineJobs/laurel-1"}
    content["state"] = f"PIPELINE_STATE_{state}"
    content["jobDetail"] = {"taskDetails": [{"taskId": str(i), **task} for i, task in enumerate(tasks, start=1)]}
    if message:
        content["error"] = {"code": 9, "message": message}
    return 200, content


def task(name: str, state: str, message: str = "", job: str = "") -> dict[str, Any]:
    """Return a task of a job."""
    content: dict[str, Any] = {"taskName": name, "state": state}
    if message:
        content["error"] = {"code": 9, "message": message}
    if job:
        content["executorDetail"] = {"containerDetail": {"mainJob": job}}
    return content


@contextmanager
def serving(server: Any, routes: dict[str, str] = ROUTES) -> Iterator[Any]:
    """Serve on a free port of this machine until the block ends.

    Args:
        server: has `url`, which is set, `received`, which requests are added to, and `answer`.
        routes: name -> method and path, as a regular expression.
    """

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(raw) if raw else None
            except ValueError:
                body = raw.decode(errors="replace")
            headers = {name.lower(): value for name, value in self.headers.items()}
            line = f"{self.command} {parts.path}"
            route = next((name for name, form in routes.items() if re.fullmatch(form, line)), line)
            request = Received(route, parts.path, parse_qs(parts.query), body, headers)
            server.received.append(request)
            status, content = server.answer(request)
            if not status:
                self.close_connection = True
                return
            payload = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815  the names that http.server looks for

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
