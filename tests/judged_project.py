"""A project in DoorKey, and a server that judges by a few words."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web
from chat_server import ChatServer, completion

from tiny_project import UNTRACKED, Project

SMALL = {
    **UNTRACKED,
    "env.id": "MiniGrid-DoorKey-5x5-v0",
    "env.backend": "gymnasium",
    "collect.steps": 120,
    "annotate.annotator": "scripted",
    "annotate.n_pairs": 20,
}


def judge(_: Any, body: dict[str, Any]) -> Any:
    """Prefer the text that comes nearer to the goal, as far as a few words tell."""
    first, second = (
        json.loads(quoted) for quoted in re.findall(r'(?m)^Text [12]: (".*")$', body["messages"][-1]["content"])
    )
    worth = [sum(words in text for words in ("goal", "pick up", "unlock")) for text in (first, second)]
    best = None if worth[0] == worth[1] else 1 if worth[0] > worth[1] else 2
    return web.json_response(completion(json.dumps({"analysis": "", "best_description": best})))


def asking(project: Project, server: ChatServer) -> None:
    project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "m", "base_url": server.url}})


def chat(server: ChatServer, model: str) -> dict[str, Any]:
    return {"annotator": "openai", "openai": {"model": model, "base_url": server.url}}
