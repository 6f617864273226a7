"""An ensemble of annotators as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from chat_server import ChatServer, completion

from judged_project import chat
from laurel.cli.app import main
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_preferences
from laurel.errors import AnnotationError
from shares import annotate_in_shares, merge_shares
from tiny_project import Project, lasting_content

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
    counts = manifest["counts"]
    assert [counts[key] for key in ("kappa", "kappa_low", "kappa_high")] == [
        found["kappa"]["value"], *found["kappa"]["ci95"],
    ]  # fmt: skip
    assert [sum(member["statuses"].values()) for member in found["members"]] == [manifest["counts"]["pairs"]] * 3
    assert any(note.startswith("Members of the ensemble agree: Fleiss' kappa: ") for note in manifest["notes"])
    assert any(note.startswith("The labels are simulated") for note in manifest["notes"])
    assert read_preferences(out).annotator.startswith("ensemble of 3 (members[0]: scripted (simulated: ")


def test_shares_of_an_ensemble_are_joined_as_if_it_were_one(project: Project, tmp_path: Path) -> None:
    project.change({**ENSEMBLE, "annotate.probe": {"min_score": 0.0}})
    project.run("collect", "caption", "annotate")
    merged = merge_shares(project, annotate_in_shares(project, tmp_path), tmp_path / "merged")
    assert lasting_content(merged) == lasting_content(project.output("annotate"))


def test_a_failing_member_is_reported(project: Project, server: ChatServer) -> None:
    server.behave = lambda *_: web.json_response(completion("Hm."))
    members = [{"annotator": "scripted"}, {"annotator": "openai", "openai": {"model": "m", "base_url": server.url}}]
    project.change({**ENSEMBLE, "annotate.ensemble": {"members": members}})
    project.run("collect", "caption")
    with pytest.raises(AnnotationError, match=r"min_parse_rate.*\n100.0% of 20 pairs have no label .* 20 had too few"):
        project.run("annotate")  # one of two is not an ensemble
    assert server.bodies
    project.change(
        {
            "annotate.ensemble": {"members": [*members, {"annotator": "embedding"}]},
            "annotate.gates": {"min_parse_rate": None},
            "annotate.max_failure_rate": 1.0,
        }
    )
    project.run("annotate")
    manifest = read_manifest(project.output("annotate"))
    assert manifest["counts"]["parse_failed"] == manifest["counts"]["incomplete"] == 0
    unread = [note for note in manifest["notes"] if "0.0% of answers could be read" in note]
    assert any(note.startswith("members[1]: m (prompt motif ") for note in unread)
    asked = [json.dumps(body) for body in server.bodies]
    assert len(set(asked)) == len(asked), "what was answered once is not asked again"


def test_a_dry_run_estimates_each_member(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run("collect", "caption")
    project.change({**ENSEMBLE, "annotate.ensemble": {"members": [chat(server, "m"), {"annotator": "scripted"}]}})
    capsys.readouterr()
    assert main(["annotate", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("member 1 of 2\n")
    assert "40 distinct (both orders, 1 vote each)" in told
    assert "scripted works in this process" in told
    assert not server.bodies


def test_members_share_one_budget(project: Project, server: ChatServer) -> None:
    project.run("collect", "caption")
    members = [chat(server, "m"), chat(server, "n")]
    budget = {"max_calls": 60, "on_limit": "continue"}
    project.change({**ENSEMBLE, "annotate.ensemble": {"members": members}, "annotate.budget": budget})
    project.run("annotate")
    manifest = read_manifest(project.output("annotate"))
    assert len(server.bodies) == manifest["usage"]["calls"] == 60
    assert manifest["counts"]["pairs"] == 10, "40 questions to one member, 20 to the other"
    assert any("10 of 20 pairs were judged" in note for note in manifest["notes"])
