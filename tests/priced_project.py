"""A project on the frozen lake whose annotator asks a server on this machine, at prices of its own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aiohttp import web
from chat_server import completion

from laurel.cli.app import main
from laurel.data.manifest import read_manifest
from laurel.llm.responses import ResponseStore
from laurel.stages import annotate
from laurel.stages.pipeline import STAGE
from tiny_project import Project

PAIRS = 40


def teacher(_: Any, body: dict[str, Any]) -> Any:
    """Prefer the longer text."""
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][-1]["content"])
    best = {"analysis": "x", "best_description": 1 if len(first) > len(second) else 2}
    return web.json_response(completion(json.dumps(best)))


def asking(project: Project, url: str, **more: Any) -> Project:
    """Have a project ask a server; keys of `more` are of the section annotate, with _ for a dot."""
    settings = {"model": "teacher", "base_url": url, **more.pop("openai", {})}
    prices = project.path / "prices.yaml"
    prices.write_text("- {model: teacher, date: 2026-01-31, source: 'https://x', input: 100, output: 1000, batch: 0.5}")
    budget = {"prices": str(prices), **more.pop("budget", {})}
    project.change(
        {
            "annotate.annotator": "openai",
            "annotate.openai": settings,
            "annotate.budget": budget,
            "annotate.language_model.responses": "kept/responses.db",
            **{f"annotate.{key}": value for key, value in more.items()},
        }
    )
    return project


def run(project: Project) -> dict[str, Any]:
    annotate.run(
        **STAGE["annotate"].given(project.params), captions=project.output("caption"), output=project.output("annotate")
    )
    return read_manifest(project.output("annotate"))


def kept_costs(project: Project) -> list[float | None]:
    """Return what each answer cost by the store of answers."""
    with ResponseStore(project.path / project.params.annotate.language_model.responses) as store:
        return [row["cost_usd"] for row in store.rows()]


def forecast(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run the dry run; return what it says, by the first word or two of each line."""
    capsys.readouterr()
    assert main(["annotate", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Nothing was asked, and nothing was written."
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines[:-1] if "  " in line)  # type: ignore[misc]
