"""Every annotator is asked whether success at the task is better than another outcome, before anything else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import chat_server, problem

from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.show import describe_directory
from laurel.envs import adapter_for
from laurel.errors import RefusedLabelsError
from laurel.stages import estimate_annotate
from laurel.stages.label_quality import questions_about_success
from laurel.tracking.server import connect
from shares import annotate_in_shares, merge_shares
from tiny_project import UNTRACKED, Project, lasting_content
from tracked import make_params

ASKED: dict[str, Any] = {**UNTRACKED, "annotate.probe": {}, "collect.steps": 600}
TURNED = {"annotate.embedding": {"goal": "You bump into a wall.", "anti_goal": "You reach the goal."}}


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("captioned") / "p", ASKED)
    project.run("collect", "caption")
    return project


@pytest.fixture
def project(captioned: Project, tmp_path: Path) -> Project:
    return captioned.copy(tmp_path / "p")


def test_a_judge_that_prefers_failure_is_stopped_before_any_pair(project: Project) -> None:
    project.change(TURNED)
    with pytest.raises(RefusedLabelsError) as caught:
        project.run("annotate")
    said = str(caught.value)
    assert said.startswith("0.0% of questions with known answers that were decided (")
    assert '"You bump into a wall."' in said
    assert "annotate.embedding.goal" in said
    assert not project.output("annotate").exists()
    refused = project.output("annotate").with_name("preferences-refused")
    assert f"laurel show {refused}" in said
    quality = read_json(refused / "quality.json")
    assert quality["success_preferred"]["value"] == 0.0
    assert quality["success_preferred"]["above"][0] == "You bump into a wall."
    assert not (refused / "pairs.parquet").exists(), "no pair was asked about"
    shown = describe_directory(refused)
    assert re.search(r"success at the task preferred to another outcome +0\.0% ", shown)
    assert "gate: at least 50%, not passed: success at the task preferred" in shown

    project.change({"annotate.gates": {"min_success_preferred": None}})
    project.run("annotate")
    (note,) = read_manifest(project.output("annotate"))["notes"]
    assert "it ranks" in note
    assert not refused.exists()


def test_the_answers_stand_with_the_labels(project: Project, tmp_path: Path) -> None:
    project.run("annotate")
    out = project.output("annotate")
    found = read_json(out / "quality.json")
    assert found["success_preferred"]["value"] > 0.5
    assert found["gates"]["success_preferred"] == {
        "gate": "min_success_preferred", "low": 0.5, "high": 1.0, "passed": True,
    }  # fmt: skip
    assert "success at the task preferred to another outcome" in describe_directory(out)
    merged = merge_shares(project, annotate_in_shares(project, tmp_path), tmp_path / "merged")
    assert lasting_content(merged) == lasting_content(out)


@pytest.mark.usefixtures("database")
def test_a_refused_judge_is_a_failed_run_with_its_figures(project: Project) -> None:
    project.change({**TURNED, "tracking.enabled": True})
    with pytest.raises(RefusedLabelsError):
        project.run("annotate")
    client, experiment = connect("laurel")
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FAILED"
    assert run.data.metrics["success_preferred"] == 0.0
    refused = project.output("annotate").with_name("preferences-refused")
    assert read_manifest(refused)["mlflow_run_id"] == run.info.run_id


def test_questions_about_success_are_in_the_estimate(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    chat = {"annotate.annotator": "openai", "annotate.openai": {"model": "m", "base_url": "http://127.0.0.1:9/v1"}}
    project.change({**chat, "annotate.n_pairs": 10, "annotate.language_model.responses": "r.db"})
    said = estimate_annotate.run(project.params, project.output("caption"))
    n = int(re.findall(r"(\d+) of the pairs, judged first, compare success at the task", said)[0])
    assert n > 2
    assert re.search(rf"pairs +{10 + n}\b", said)


def test_missing_answers_are_those_about_pairs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked: list[None] = []

    def behave(request: web.Request, body: dict[str, Any]) -> web.Response | None:
        """Refuse the fourth question, of two about success in both orders, and the ninth."""
        asked.append(None)
        return problem(400, "not this one") if len(asked) in (4, 9) else None

    with chat_server() as server:
        server.behave, server.plan = behave, lambda body: ("", [], "1")
        openai = {"model": "m", "base_url": server.url, "max_in_flight": 1}
        project.change({"annotate.annotator": "openai", "annotate.openai": openai, "annotate.n_pairs": 20})
        project.change({"annotate.language_model": {"prompt": "answer_only"}, "annotate.max_failure_rate": 1.0})
        project.change({"annotate.probe": {"success_questions": 2}})
        with pytest.raises(RefusedLabelsError, match="preferred the text shown first"):
            project.run("annotate")
    found = read_json(project.output("annotate").with_name("preferences-refused") / "quality.json")
    assert round(found["failure_rate"]["value"] * found["failure_rate"]["of"]) == 1
    assert [entry["answers"] for entry in found["missing"]] == [1]


def test_an_environment_without_a_caption_of_success_says_so(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", {**ASKED, "env.id": "CartPole-v1"})
    project.run("collect", "caption", "annotate")
    notes = read_manifest(project.output("annotate"))["notes"]
    assert any(
        note.endswith("the adapter of CartPole-v1 names no caption that says that the task is solved.")
        for note in notes
    )
    assert "success_preferred" not in read_json(project.output("annotate") / "quality.json")


def test_captions_without_the_adapters_words_for_success_are_said_to_lack_them() -> None:
    params = make_params(env={"id": "CartPole-v1"})
    adapter = adapter_for(params.env)
    adapter.success_words = ("reach the end",)
    _, why_not = questions_about_success(0, params.annotate, adapter, ["The pole leans left."])
    assert why_not.endswith("no caption has the words for success of the adapter of CartPole-v1 (success_words).")
