"""The actions of `laurel annotate` as a user meets them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laurel.cli import main
from laurel.data.directory import read_json, read_manifest
from laurel.data.preferences import read_preferences
from laurel.errors import AnnotationError
from laurel.stages import annotate, merge_preferences
from tiny_project import UNTRACKED, Project, lasting_content

sys.path.insert(0, str(Path(__file__).parent / "llm"))
web = pytest.importorskip("aiohttp.web")
from chat_server import ChatServer, chat_server, completion  # noqa: E402

SMALL = {
    **UNTRACKED,
    "env.id": "MiniGrid-DoorKey-5x5-v0",
    "env.backend": "gymnasium",
    "collect.steps": 120,
    "annotate.annotator": "scripted",
    "annotate.n_pairs": 20,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project.create(tmp_path / "p", SMALL)
    monkeypatch.chdir(project.path)
    return project


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        server.behave = judge
        yield server


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


# -- probe --------------------------------------------------------------------------------------------------------
def test_probe_prints_what_was_asked_and_the_score(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", "probe"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("asked  scripted (simulated: oracle teacher")
    assert "about  MiniGrid-DoorKey-5x5-v0\n" in told
    assert "score  10 of 10 right: 100% (95% interval 72% to 100%)" in told
    project.change({"annotate.scripted": {"error_rate": 1.0}})
    assert main(["annotate", "probe"]) == 0, "a bad score is a result"
    assert "score  0 of 10 right" in capsys.readouterr().out


def test_probe_takes_params_on_either_side(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.path / "params.yaml").rename(project.path / "other.yaml")
    assert main(["annotate", "probe", "--params", "other.yaml"]) == 0
    assert main(["annotate", "--params", "other.yaml", "probe"]) == 0
    capsys.readouterr()
    assert main(["annotate", "probe"]) == 2
    assert "params.yaml: no such file" in capsys.readouterr().err


def test_probe_asks_a_model_once(project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, server)
    assert main(["annotate", "probe"]) == 0
    told = capsys.readouterr().out
    assert "asked  m (prompt motif " in told
    assert "score  10 of 10 right" in told
    asked = len(server.bodies)
    assert asked == 20, "both orders"
    assert main(["annotate", "probe"]) == 0
    assert "used   0 calls, 40 cached" in capsys.readouterr().out
    assert len(server.bodies) == asked


def test_probe_of_an_environment_without_questions(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"env.id": "Pendulum-v1", "annotate.annotator": "embedding"})
    assert main(["annotate", "probe"]) == 2
    assert "laurel: env.id: there are no questions with known answers for Pendulum-v1." in capsys.readouterr().err


def test_a_gate_stops_the_stage_before_any_pair_is_asked(project: Project, server: ChatServer) -> None:
    asking(project, server)
    server.behave = lambda *_: web.json_response(completion('{"analysis": "", "best_description": 1}'))
    project.change({"annotate.probe": {"min_score": 0.8}})
    project.run("collect", "caption")
    with pytest.raises(
        AnnotationError,
        match=r"knows too little of MiniGrid-DoorKey-5x5-v0 .* 0 of 10 right: 0% .* but at least 80% is wanted "
        r"\(annotate\.probe\.min_score\)",
    ):
        project.run("annotate")
    assert len(server.bodies) == 20, "the probe's alone"
    assert not project.output("annotate").exists()


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_a_gate_that_is_passed_notes_the_score(project: Project, least: float) -> None:
    project.change({"annotate.probe": {"min_score": least}})
    project.run("collect", "caption", "annotate")
    counts = read_manifest(project.output("annotate"))["counts"]
    assert (counts["probe_score"], counts["probe_right"], counts["probe_questions"]) == (1.0, 10, 10)
    assert counts["pairs"] == len(read_preferences(project.output("annotate")))


def test_an_environment_without_questions_passes_with_a_note(project: Project) -> None:
    project.change({"env.id": "MiniGrid-Empty-5x5-v0", "annotate.probe": {"min_score": 1.0}})
    project.run("collect", "caption", "annotate")
    notes = read_manifest(project.output("annotate"))["notes"]
    assert any(note.startswith("The annotator was not probed: there are no questions") for note in notes)


# -- ensemble -----------------------------------------------------------------------------------------------------
ENSEMBLE = {
    "annotate.annotator": "ensemble",
    "annotate.scripted": {"error_rate": 0.2},
    "annotate.ensemble": {
        "members": [{"annotator": "scripted"}, {"annotator": "embedding"}, {"annotator": "scripted"}]
    },
}


def test_an_ensemble_votes_and_reports_how_far_it_agrees(project: Project) -> None:
    project.change({**ENSEMBLE, "annotate.n_pairs": 60})
    project.run("collect", "caption", "annotate")
    out = project.output("annotate")
    manifest, found = read_manifest(out), read_json(out / "agreement.json")
    assert found["kind"] == "fleiss"
    assert found["kappa"]["of"] == manifest["counts"]["pairs"]
    assert len(found["pairwise"]) == 3
    assert [sum(member["statuses"].values()) for member in found["members"]] == [manifest["counts"]["pairs"]] * 3
    assert any(note.startswith("Members of the ensemble agree: Fleiss' kappa: ") for note in manifest["notes"])
    assert any(note.startswith("The labels are simulated") for note in manifest["notes"])
    assert read_preferences(out).annotator.startswith("ensemble of 3 (members[0]: scripted (simulated: ")


def test_shares_of_an_ensemble_are_joined_as_if_it_were_one(project: Project, tmp_path: Path) -> None:
    project.change({**ENSEMBLE, "annotate.probe": {"min_score": 0.0}})
    project.run("collect", "caption", "annotate")
    params, captions = project.params, project.output("caption")
    shares = [tmp_path / "a", tmp_path / "b"]
    for number, share in enumerate(shares):
        annotate.run(params, captions, output=share, shard=(number, 2))
    merge_preferences.run(params, captions, shards=shares, output=tmp_path / "merged")
    assert lasting_content(tmp_path / "merged") == lasting_content(project.output("annotate"))


def test_a_member_that_fails_does_not_go_unsaid(project: Project, server: ChatServer) -> None:
    server.behave = lambda *_: web.json_response(completion("Hm."))
    members = [{"annotator": "scripted"}, {"annotator": "openai", "openai": {"model": "m", "base_url": server.url}}]
    project.change({**ENSEMBLE, "annotate.ensemble": {"members": members}})
    project.run("collect", "caption", "annotate")
    manifest = read_manifest(project.output("annotate"))
    assert manifest["counts"]["parse_failed"] == 0
    (note,) = [note for note in manifest["notes"] if "no vote of" in note]
    assert note.startswith("100% of the pairs have no vote of members[1]: m (prompt motif ")
    assert any("kappa: undefined (0 pairs)" in note for note in manifest["notes"])
    assert manifest["usage"]["calls"] == manifest["usage"]["members.1.calls"] == len(server.bodies) > 0
