"""Calls of language models that act, hint and reward are in the usage of the stages that ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_server import chat_server

from laurel.data.manifest import read_manifest
from tiny_project import UNTRACKED, Project


def test_a_server_counts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(body: dict[str, Any]) -> tuple[str, list[str], str]:
        return str(len(server.bodies)), [], "down"

    hints = {"actor": "llm_policy", "options": {"judge": "main"}}
    changes = {
        **UNTRACKED,
        "env.id": "FrozenLake-v1",
        "arms": {
            "hinted": {"reward": None, "agent": {"ppo": {"hints": hints}}},
            "bonus": {"reward": "llm_hints"},
            "llm_policy": {"reward": None, "agent": {"actor": "llm_policy", "options": {"goal": "Go down."}}},
        },
        "rewards": {"llm_hints": {"options": {"judge": "main"}}},
    }
    with chat_server() as server:
        server.plan = chosen
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        project = Project.create(tmp_path / "p", {**changes, **asking})
        monkeypatch.chdir(project.path)
        project.run("collect", "caption", "annotate", "train-reward")
        for stage in ("train-agents", "evaluate"):
            before = len(server.bodies)
            project.run(stage)
            usage = read_manifest(project.output(stage))["usage"]
            assert usage["calls"] == len(server.bodies) - before > 0
            assert usage["input_tokens"] == 5 * usage["calls"]
