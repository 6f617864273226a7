"""`laurel annotate probe`, and the gate that goes by it."""

from __future__ import annotations

import re

import pytest
from aiohttp import web
from chat_server import ChatServer, completion

from judged_project import asking
from laurel.cli.app import main
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_preferences
from laurel.errors import AnnotationError
from tiny_project import Project


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


def test_probe_tells_its_cost_without_the_rounding_of_sums(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server)
    (project.path / "prices.yaml").write_text("- {model: m, date: 2026-01-31, source: x, input: 1000, output: 100}")
    project.change({"annotate.budget": {"prices": "prices.yaml"}})
    assert main(["annotate", "probe"]) == 0
    told = capsys.readouterr().out
    assert ", $0.102 cost\n" in told, told.splitlines()[-1]  # 20 times 0.0051


@pytest.mark.parametrize("both_orders", [True, False])
def test_probe_can_be_tried_without_asking(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str], both_orders: bool
) -> None:
    asking(project, server)
    project.change({"annotate.language_model.both_orders": both_orders})
    for command in (["annotate", "probe", "--dry-run"], ["annotate", "--dry-run", "probe"]):
        assert main(command) == 0
        told = capsys.readouterr().out
        assert re.search(r"^calls +20, and one more", told, re.MULTILINE)
        assert told.endswith("Nothing was asked, and nothing was written.\n")
    assert not server.bodies
    assert main(["annotate", "probe"]) == 0
    assert len(server.bodies) == 20
    capsys.readouterr()
    assert main(["annotate", "probe", "--dry-run"]) == 0
    assert re.search(r"^calls +0, and one more", capsys.readouterr().out, re.MULTILINE)


def test_probe_of_an_environment_without_questions(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.change({"env.id": "Pendulum-v1", "annotate.annotator": "embedding"})
    assert main(["annotate", "probe"]) == 2
    assert capsys.readouterr().err == (
        "laurel: env.id: there are no questions with known answers for Pendulum-v1; they come with environments of "
        "Gymnasium, MiniGrid and Laurel. Compare the annotator with your own labels instead: laurel annotate review "
        "--gold FILE.\n"
    )


def test_a_gate_stops_the_stage_before_any_pair_is_asked(project: Project, server: ChatServer) -> None:
    asking(project, server)
    server.behave = lambda *_: web.json_response(completion('{"analysis": "", "best_description": 1}'))
    project.change({"annotate.probe": {"min_score": 0.8}})
    project.run("collect", "caption")
    with pytest.raises(
        AnnotationError,
        match=r"knows too little about MiniGrid-DoorKey-5x5-v0 .* 0 of 10 right: 0% .* but at least 80% is required "
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
    project.change({"env.id": "MiniGrid-Playground-v0", "annotate.probe": {"min_score": 1.0}})
    project.run("collect", "caption", "annotate")
    notes = read_manifest(project.output("annotate"))["notes"]
    assert any(note.startswith("The annotator was not probed: there are no questions") for note in notes)
