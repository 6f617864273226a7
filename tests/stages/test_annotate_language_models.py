"""The pipeline with language models as annotators: a server behind OpenAI's interface, and a model in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer, chat_server, completion, problem
from tiny_llama import make_tiny_llama

from laurel.cli.app import main
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_answers, read_preferences
from laurel.errors import AnnotationError
from laurel.stages import annotate
from laurel.stages.pipeline import STAGE
from shares import annotate_in_shares, merge_shares
from tiny_project import UNTRACKED, Project, lasting_content


def teacher(_: Any, body: dict[str, Any]) -> Any:
    """Prefer the text that speaks of the goal; say it in prose now and then."""
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][-1]["content"])
    worth = ["goal" in first, "goal" in second]
    best = None if worth[0] == worth[1] else 1 if worth[0] else 2
    return web.json_response(completion(f"Well. {json.dumps({'analysis': 'x', 'best_description': best})}"))


def asking(project: Project, url: str, **more: Any) -> Project:
    project.change(
        {
            **UNTRACKED,
            "annotate.annotator": "openai",
            "annotate.openai": {"model": "teacher", "base_url": url},
            "annotate.language_model.responses": str(project.path / "responses.db"),
            "annotate.n_pairs": 30,
            **more,
        }
    )
    return project


@pytest.fixture
def server() -> Any:
    with chat_server() as server:
        server.behave = teacher
        yield server


@pytest.fixture
def project(finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(tmp_path / "p" / "responses.db"))
    return finished.copy(tmp_path / "p", without=["annotate", "train-reward", "train-agents", "evaluate"])


def test_the_whole_chain_with_a_server(
    project: Project, server: ChatServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url)
    monkeypatch.chdir(project.path)
    for stage in ("annotate", "train-reward", "train-agents", "evaluate"):
        assert main([stage]) == 0, capsys.readouterr().err
    made = project.output("annotate")
    manifest = read_manifest(made, "annotate")
    pairs = manifest["counts"]["pairs"]
    assert manifest["usage"]["calls"] == 2 * pairs == len(server.bodies)
    assert manifest["counts"]["ok"] > 0
    answers = read_answers(made)
    assert answers is not None
    assert answers.num_rows == 2 * pairs
    assert read_preferences(made).annotator.startswith("teacher (prompt motif ")
    assert read_json(project.output("evaluate") / "metrics.json")["annotator"] == "openai"
    assert read_json(project.output("train-reward") / "preference" / "quality.json")["heldout_agreement"] is not None

    before = lasting_content(made)
    assert main(["annotate"]) == 0
    assert lasting_content(made) == before, "the same labels, from the store"
    assert len(server.bodies) == 2 * pairs, "nothing is asked twice"
    spent = {key: value for key, value in read_manifest(made)["usage"].items() if value}
    assert spent == {"cached": 2 * pairs}, "no call, no token, no second, no dollar"


def test_shares_of_the_pairs(project: Project, server: ChatServer, tmp_path: Path) -> None:
    params, captions = asking(project, server.url).params, project.output("caption")
    merged = merge_shares(project, annotate_in_shares(project, tmp_path), tmp_path / "merged")
    annotate.run(**STAGE["annotate"].given(params), captions=captions, output=tmp_path / "whole")
    assert lasting_content(merged) == lasting_content(tmp_path / "whole")
    calls = [read_manifest(labels)["usage"]["calls"] for labels in (merged, tmp_path / "whole")]
    assert calls == [len(server.bodies), 0]


def test_a_server_that_is_not_there(project: Project) -> None:
    asking(project, "http://127.0.0.1:9/v1", **{"annotate.openai.retries": 0})
    with pytest.raises(AnnotationError, match=r"127\.0\.0\.1:9"):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=project.output("annotate"),
        )
    assert not project.output("annotate").exists()


def test_too_many_failures_are_reported_with_their_reasons(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def moody(request: Any, body: dict[str, Any]) -> Any:
        user = body["messages"][1]["content"]
        if "goal" in re.findall(r'(?m)^Text 1: "(.*)"$', user)[0]:
            return web.json_response(completion("I like\nboth, in a <way>."))
        return problem(400, "no more than 8 tokens", code="context_length_exceeded") if "wall" in user else None

    server.behave = lambda request, body: moody(request, body) or teacher(request, body)
    asking(project, server.url, **{"annotate.language_model.both_orders": False})
    counts = r"because the annotator failed: [1-9]\d* had no answer, [1-9]\d* had no readable answer, "
    with pytest.raises(AnnotationError, match=counts + r"such as 'I like both, in a <way>\.', .*; at most 5\.0% are"):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=project.output("annotate"),
        )
    reason = "refused with status 400: no more than 8 tokens"
    assert f"teacher gave no answer, for a reason that may recur: {reason}\n" in capsys.readouterr().err


def test_a_key_that_is_not_set(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asking(project, "https://127.0.0.1:9/v1")
    with pytest.raises(AnnotationError, match="OPENAI_API_KEY"):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=project.output("annotate"),
        )


def test_openai_without_a_model(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"annotate.annotator": "openai"})
    assert main(["annotate", "--params", str(project.path / "params.yaml")]) == 2
    assert "annotate has annotator openai and so needs `openai.model`" in capsys.readouterr().err


def test_a_model_in_this_process(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(tmp_path / "responses.db"))
    model = make_tiny_llama(tmp_path / "model", max_position_embeddings=2048)
    changes = {
        **UNTRACKED,
        "annotate.annotator": "huggingface",
        "annotate.huggingface": {"model": str(model), "device": "cpu", "max_tokens": 4},
        "annotate.language_model.prompt": "answer_only",
        "annotate.language_model.responses": str(tmp_path / "responses.db"),
        "annotate.n_pairs": 20,
    }
    project.change({**changes, "annotate.language_model.prompt": "motif"})
    with pytest.raises(AnnotationError, match="mode is score, which compares the probabilities of given answers"):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=project.output("annotate"),
        )
    project.change(changes)
    annotate.run(
        **STAGE["annotate"].given(project.params), captions=project.output("caption"), output=project.output("annotate")
    )
    preferences = read_preferences(project.output("annotate"))
    assert (preferences.status == "ok").all()
    assert len(set(preferences.p_first)) > 10, "soft labels, from log-probabilities"
    assert read_manifest(project.output("annotate"))["usage"]["calls"] == 2 * len(preferences)
