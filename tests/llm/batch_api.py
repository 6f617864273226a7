"""OpenAI's Batch API on the loopback interface: files, batches, and what can become of them.

A batch is answered when it is looked at for the `patience`-th time, as `outcome` says. What a line meets is written in
its last message, e.g. "7 500,400": status 500 in the first batch, 400 in the second, an answer in the third.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from chat_server import completion, problem, serving


class BatchAPI:
    """What a test sets and reads."""

    def __init__(self) -> None:
        self.url = ""
        self.patience = 1
        """Looks at a batch until it has ended."""
        self.outcomes: list[str] = []
        """Of the batches in order, e.g. completed, expired, cancelled, failed:code:message; completed once used up."""
        self.missing: set[str] = set()
        """Kinds of requests that find nothing here: upload, create, look, list, content."""
        self.unwell: Counter[str] = Counter()
        """How many of the next requests of a kind get status 500; `create` and `lost` (created, but not said)."""
        self.usage: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.names: list[str] = []
        self.batches: dict[str, dict[str, Any]] = {}
        self.looks: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        """How often each question was in a batch that was answered."""
        self.headers: list[dict[str, str]] = []
        self.moved = ""
        """Another address to which uploads are sent on."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.post("/v1/batches", self.create),
            web.get("/v1/batches", self.list),
            web.get("/v1/batches/{id}", self.look),
        ]

    def _fault(self, kind: str, request: web.Request) -> web.Response | None:
        self.headers.append(dict(request.headers))
        if self.moved:
            return web.Response(status=308, headers={"Location": self.moved})
        if kind in self.missing:
            return problem(404, "Not Found")
        if self.unwell[kind]:
            self.unwell[kind] -= 1
            return problem(500, "out of order")
        return None

    async def upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        if fault := self._fault("upload", request):
            return fault
        assert form["purpose"] == "batch"
        field = form["file"]
        assert isinstance(field, web.FileField)
        self.names.append(field.filename)
        return web.json_response(self._file(field.file.read()))

    def _file(self, content: bytes) -> dict[str, Any]:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return {
            "id": name, "object": "file", "bytes": len(content), "created_at": 1, "filename": "x", "purpose": "batch",
            "status": "processed",
        }  # fmt: skip

    async def content(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        return self._fault("content", request) or web.Response(body=self.files[name])

    async def create(self, request: web.Request) -> web.Response:
        if fault := self._fault("create", request):
            return fault
        body = await request.json()
        assert (body["endpoint"], body["completion_window"]) == ("/v1/chat/completions", "24h")
        name = f"batch_{len(self.batches)}"
        self.batches[name] = {
            "id": name, "object": "batch", "endpoint": body["endpoint"], "input_file_id": body["input_file_id"],
            "completion_window": "24h", "status": "validating", "created_at": int(time.time()),
            "metadata": body["metadata"],
            "request_counts": {"total": len(self.lines(body["input_file_id"])), "completed": 0, "failed": 0},
        }  # fmt: skip
        if self.unwell["lost"]:
            self.unwell["lost"] -= 1
            return problem(500, "created, but who knows")
        return web.json_response(self.batches[name])

    def lines(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[file].splitlines()]

    async def list(self, request: web.Request) -> web.Response:
        if fault := self._fault("list", request):
            return fault
        latest_first = list(self.batches.values())[::-1]
        return web.json_response({"object": "list", "data": latest_first, "has_more": False})

    async def look(self, request: web.Request) -> web.Response:
        if fault := self._fault("look", request):
            return fault
        name = request.match_info["id"]
        if name not in self.batches:
            return problem(404, "No such batch")
        self.looks[name] += 1
        batch = self.batches[name]
        if batch["status"] in ("validating", "in_progress"):
            batch["status"] = "in_progress"
            if self.looks[name] >= self.patience:
                self._end(batch, self.outcomes.pop(0) if self.outcomes else "completed")
        return web.json_response(batch)

    def _end(self, batch: dict[str, Any], outcome: str) -> None:
        status, _, rest = outcome.partition(":")
        batch["status"] = status
        if status == "failed":
            code, _, message = rest.partition(":")
            errors = [{"code": code, "message": message, "line": 1, "param": None}]
            batch["errors"] = {"object": "list", "data": errors}
            return
        lines = self.lines(batch["input_file_id"])
        answered = lines if status == "completed" else lines[: len(lines) // 2]
        said = [self._answer(line) for line in answered]
        said += [
            {
                "id": "r", "custom_id": line["custom_id"], "response": None,
                "error": {"code": "batch_expired", "message": "This request could not be executed in time."},
            }
            for line in lines[len(answered) :]
            if status == "expired"
        ]  # fmt: skip
        good = [outcome for outcome in said if outcome["response"] and outcome["response"]["status_code"] == 200]
        bad = [outcome for outcome in said if outcome not in good]
        batch["request_counts"] = {"total": len(lines), "completed": len(good), "failed": len(bad)}
        for key, some in (("output_file_id", good), ("error_file_id", bad)):
            if some:
                batch[key] = self._file("\n".join(map(json.dumps, some)).encode())["id"]

    def _answer(self, line: dict[str, Any]) -> dict[str, Any]:
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        name, _, faults = line["body"]["messages"][-1]["content"].partition(" ")
        planned = [fault for fault in faults.split(",") if fault]
        self.asked[name] += 1
        body: Any = completion(f"answer {name}")
        status = 200
        if self.asked[name] <= len(planned):
            fault = planned[self.asked[name] - 1]
            if fault == "broken":
                body = {"choices": []}
            elif fault == "empty":
                body = {**completion(), "choices": []}
            elif fault in line["body"]:  # a field that is not taken
                status = 400
                other = " Use 'max_completion_tokens' instead." if fault == "max_tokens" else ""
                body = {"error": {"message": f"Unsupported parameter: '{fault}'.{other}", "param": fault}}
            else:
                status, body = int(fault), {"error": {"message": "no luck", "code": "x"}}
        response = {"status_code": status, "request_id": "q", "body": body}
        return {"id": "r", "custom_id": line["custom_id"], "response": response, "error": None}


@contextmanager
def batch_api() -> Iterator[BatchAPI]:
    """Run a server for the time of a block."""
    api = BatchAPI()
    app = web.Application(client_max_size=10**9)
    app.add_routes(api.routes())
    with serving(app) as api.url:
        yield api
