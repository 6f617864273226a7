"""Annotation killed at any moment resumes: stored answers are never asked for again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer, chat_server, completion, problem

from laurel.data.manifest import read_manifest
from laurel.errors import AnnotationError
from laurel.llm.responses import LEASE_SECONDS, ResponseStore
from laurel.stages import annotate
from laurel.stages.pipeline import STAGE
from tiny_project import UNTRACKED, Project, lasting_content

PAIRS, KILLS = 150, 3


def answer(body: dict[str, Any]) -> str:
    """Prefer the text that speaks of the goal, in words that no other question gets; some cannot be read at first."""
    asked = json.dumps(body["messages"])
    mark = hashlib.sha256(asked.encode()).hexdigest()
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][1]["content"])
    if len(body["messages"]) == 2 and int(mark, 16) % 7 == 0:
        return f"Hm, {mark}."
    worth = ["goal" in first, "goal" in second]
    best = None if worth[0] == worth[1] else 1 if worth[0] else 2
    return json.dumps({"analysis": mark, "best_description": best})


def stored(path: Path) -> set[str]:
    """Return the answers in a store, which say what they answer."""
    with sqlite3.connect(path) as connection:
        return {text for (text,) in connection.execute("SELECT text FROM responses")}


def killed_after(project: Project, server: ChatServer, requests: int, delay: float) -> None:
    """Run the stage until the server has seen so many more requests, and kill it within some seconds."""
    before = len(server.bodies)
    process = project.start("annotate")
    while len(server.bodies) < before + requests:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)


def test_a_stopped_runs_calls_and_seconds_count(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", UNTRACKED)
    project.run("collect", "caption")
    with chat_server() as server:
        server.behave = lambda request, body: (
            problem(401, "no more") if len(server.bodies) > 20 else web.json_response(completion(answer(body)))
        )
        settings = {"model": "teacher", "base_url": server.url, "max_in_flight": 1}
        project.change({"annotate.annotator": "openai", "annotate.openai": settings, "annotate.n_pairs": 30})
        project.change({"annotate.feedback_seeds": 2, "annotate.probe.success_questions": 0})

        def run() -> None:
            annotate.run(
                **STAGE["annotate"].given(project.params),
                captions=project.output("caption"),
                output=project.output("annotate"),
            )

        with pytest.raises(AnnotationError, match="401"):
            run()
        (noted,) = project.path.glob("data/.preferences.*.spent.json")
        spent = json.loads(noted.read_text())
        assert spent["usage"]["calls"] == 20
        noted.write_text(json.dumps({**spent, "seconds": 1000.0}))
        project.change({"annotate.budget.max_calls": 1000})
        server.behave = lambda request, body: web.json_response(completion(answer(body)))
        run()
    made = read_manifest(project.output("annotate"))
    assert made["usage"]["calls"] == len(server.bodies) - 1, "the refused one was not answered"
    assert made["seconds"] > 1000
    assert not noted.exists()


@pytest.mark.slow
def test_each_answer_is_paid_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    responses = tmp_path / "responses.db"
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(responses))
    project = Project.create(tmp_path / "p", {**UNTRACKED, "caption.segment_length": 2})
    project.run("collect", "caption")
    with chat_server() as server:
        server.latency = 0.02
        server.behave = lambda request, body: web.json_response(completion(answer(body)))
        asked = {"model": "teacher", "base_url": server.url, "max_in_flight": 4}
        project.change(
            {
                "annotate.annotator": "openai",
                "annotate.openai": asked,
                "annotate.n_pairs": PAIRS,
                "annotate.language_model.responses": str(responses),
            }
        )
        for _ in range(KILLS):
            known = stored(responses) if responses.exists() else set()
            before = len(server.bodies)
            killed_after(project, server, rng.randrange(40, 80), rng.random() * 0.05)
            assert known.isdisjoint(answer(body) for body in server.bodies[before:])
            assert known < stored(responses), "each of the killed runs got on"
            assert not project.output("annotate").exists()
        known, before = stored(responses), len(server.bodies)
        began = time.monotonic()
        project.laurel("annotate", check=True)
        assert time.monotonic() - began < LEASE_SECONDS / 2, "claims of a killed process are free at once"
        assert known.isdisjoint(answer(body) for body in server.bodies[before:])
        assert len(stored(responses)) == len(ResponseStore(responses))
        usage = read_manifest(project.output("annotate"))["usage"]
        unseen = len(server.bodies) - usage["calls"]
        assert 0 <= unseen <= KILLS * 40, "killed runs' calls count, but for those of their last tenth of a second"
        assert usage["cached"] <= unseen
        again = len(server.bodies) - len(stored(responses))
        assert again <= KILLS * 4, "what was on its way when the run was killed, and no more"

        monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(tmp_path / "other.db"))
        undisturbed = project.copy(tmp_path / "q", {"annotate.language_model.responses": str(tmp_path / "other.db")})
        annotate.run(
            **STAGE["annotate"].given(undisturbed.params),
            captions=undisturbed.output("caption"),
            output=undisturbed.output("annotate"),
        )
    labels = [lasting_content(run.output("annotate")) for run in (project, undisturbed)]
    for content in labels:
        del content["manifest.json"]  # names the store
    assert labels[0] == labels[1]
    assert labels[0].keys() >= {"pairs.parquet", "preferences.parquet", "answers.parquet"}
