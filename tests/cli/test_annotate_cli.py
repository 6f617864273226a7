"""The actions of `laurel annotate` as a user meets them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from aiohttp import web
from chat_server import ChatServer, chat_server, completion, problem

from laurel.cli.app import main
from laurel.data.directory import read_json, read_manifest
from laurel.data.gold import GoldFile, Task
from laurel.data.preferences import read_preferences
from laurel.envs import adapter_for
from laurel.errors import AnnotationError
from laurel.stages import annotate, merge_preferences
from laurel.stages.pipeline import STAGE
from laurel.tracking.runs import connect
from tiny_project import UNTRACKED, Project, lasting_content

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
    project.change({"env.id": "MiniGrid-Playground-v0", "annotate.probe": {"min_score": 1.0}})
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
    params, captions = project.params, project.output("caption")
    shares = [tmp_path / "a", tmp_path / "b"]
    for number, share in enumerate(shares):
        annotate.run(**STAGE["annotate"].given(params), captions=captions, output=share, shard=(number, 2))
    merge_preferences.run(
        **STAGE["annotate"].given(params), captions=captions, shards=shares, output=tmp_path / "merged"
    )
    assert lasting_content(tmp_path / "merged") == lasting_content(project.output("annotate"))


def test_a_member_that_fails_does_not_go_unsaid(project: Project, server: ChatServer) -> None:
    server.behave = lambda *_: web.json_response(completion("Hm."))
    members = [{"annotator": "scripted"}, {"annotator": "openai", "openai": {"model": "m", "base_url": server.url}}]
    project.change({**ENSEMBLE, "annotate.ensemble": {"members": members}})
    project.run("collect", "caption")
    with pytest.raises(AnnotationError, match=r"min_parse_rate.*\n100% of 20 pairs have no label .* 20 too few"):
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


def test_a_dry_run_says_what_each_member_would_take(
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


# -- compare ------------------------------------------------------------------------------------------------------
def grid(project: Project, **content: Any) -> str:
    (project.path / "grid.yaml").write_text(yaml.safe_dump(content))
    return "grid.yaml"


def chat(server: ChatServer, model: str) -> dict[str, Any]:
    return {"annotator": "openai", "openai": {"model": model, "base_url": server.url}}


def test_compare_ranks_judges_and_survives_one_that_fails(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def behave(request: Any, body: dict[str, Any]) -> Any:
        if body["model"] == "gone":
            return problem(404, "The model `gone` does not exist")
        return judge(request, body)

    server.behave = behave
    project.run("collect", "caption")
    capsys.readouterr()
    models = [
        {"annotator": "scripted", "scripted": {"error_rate": 1.0}, "name": "liar"},
        chat(server, "wise"),
        chat(server, "gone"),
    ]
    asked = grid(project, pairs=12, models=models, prompts=["motif", "chain_of_thought"], temperatures=[0.0, 0.5])
    assert main(["annotate", "compare", "--grid", asked]) == 0
    told = capsys.readouterr().out
    out = project.path / "data" / "leaderboard"
    found = read_json(out / "leaderboard.json")
    rows = found["rows"]
    assert found["about"] == "Judges of MiniGrid-DoorKey-5x5-v0 on 12 pairs, by the hand-written progress of " + (
        "MiniGrid-DoorKey-5x5-v0."
    )
    assert [row["model"] for row in rows] == ["models[1] wise"] * 4 + ["liar"] + ["models[2] gone"] * 4
    assert [(row["prompt"], row["temperature"]) for row in rows[:4]] == [
        ("motif", 0.0), ("motif", 0.5), ("chain_of_thought", 0.0), ("chain_of_thought", 0.5),
    ]  # fmt: skip
    assert [row["accuracy"] for row in rows[:5]] == [1.0] * 4 + [0.0]
    assert [row["as_good_as_best"] for row in rows[:5]] == [True] * 4 + [False]
    assert {(row["calls"], row["cached"], row["parse_rate"], row["swap_consistency"]) for row in rows[:4]} == {
        (24, 0, 1.0, 1.0)
    }
    assert all('has no model "gone"' in row["failure"] for row in rows[5:])
    assert told.startswith(found["about"])
    assert "| liar (simulated)" in told
    assert "models[2] gone, motif, temperature 0 failed: http://127.0.0.1" in told
    assert (out / "leaderboard.md").read_text() in told
    assert pq.read_table(out / "leaderboard.parquet").num_rows == 9
    judged = pq.read_table(out / "judgements.parquet").to_pylist()
    assert len(judged) == 5 * 12
    assert all((row["p_first"] == 1.0) == (row["known"] == "first") for row in judged if row["model"].endswith("wise"))

    calls = len(server.bodies)
    server.behave = lambda *_: problem(404, "gone")
    assert main(["annotate", "compare", "--grid", asked]) == 0, "what was asked once is in the store"
    again = read_json(out / "leaderboard.json")["rows"]
    assert [row["accuracy"] for row in again[:5]] == [1.0] * 4 + [0.0]
    assert {(row["calls"], row["cached"]) for row in again[:4]} == {(0, 24)}
    assert len(server.bodies) - calls <= 4 * 32, "those of the model that is gone"


def test_compare_with_gold_labels(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("collect", "caption")
    capsys.readouterr()
    adapter = adapter_for(project.params.env)
    gold = GoldFile(project.path / "gold.jsonl", Task(adapter.env_id, adapter.goal))
    gold.add("You turn.", "You reach the goal.", "first", "uniform")  # a person who likes to turn
    asked = grid(
        project, models=[{"annotator": "scripted"}, {"annotator": "scripted", "scripted": {"error_rate": 1.0}}]
    )
    assert main(["annotate", "compare", "--grid", asked, "--gold", "gold.jsonl", "--output", "there"]) == 0
    assert "on 1 pair, by the gold labels in gold.jsonl." in capsys.readouterr().out
    assert [row["accuracy"] for row in read_json(project.path / "there" / "leaderboard.json")["rows"]] == [1.0, 0.0]
    assert main(["annotate", "compare", "--grid", asked, "--gold", "none.jsonl"]) == 2
    assert "laurel: none.jsonl: no such file." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"models": []}, "grid.yaml: models is empty, but must have at least one entry."),
        (
            {"models": [{}], "promts": []},
            'grid.yaml: promts is unknown. Did you mean "prompts"? Allowed here: pairs, models, prompts, ',
        ),
        ({"models": [{"annotator": "scriptd"}]}, 'grid.yaml: models[0]: annotator is "scriptd", but must be one of'),
        ({"models": [{"scripted": {"betta": 1}}]}, "grid.yaml: models[0]: scripted.betta is unknown. Did you mean"),
        ({"models": [{"annotator": "openai"}]}, "grid.yaml: models[0]: it has annotator openai and so needs"),
        ({"models": [{}], "prompts": ["motif", "motif"]}, "grid.yaml: prompts names motif twice"),
        ({"models": [{}], "temperatures": [-1.0]}, "grid.yaml: temperatures[0] is -1.0, but must be greater than or"),
    ],
)
def test_grids_that_are_refused(
    project: Project, capsys: pytest.CaptureFixture[str], content: dict[str, Any], says: str
) -> None:
    assert main(["annotate", "compare", "--grid", grid(project, **content)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("laurel: grid.yaml: ")
    assert says in told


def test_nothing_is_written_where_every_judge_fails(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("collect", "caption")
    capsys.readouterr()
    asked = grid(project, models=[{"annotator": "embedding", "embedding": {"model": "./nowhere"}}])
    assert main(["annotate", "compare", "--grid", asked]) == 2
    assert "None of 1 judges could be asked. The first: Sentence encoder" in capsys.readouterr().err
    assert not (project.path / "data" / "leaderboard").exists()


def test_judges_share_one_budget_and_one_that_it_does_not_reach_for_fails(project: Project, server: ChatServer) -> None:
    project.run("collect", "caption")
    project.change({"annotate.budget": {"max_calls": 15, "on_limit": "continue"}})
    asked = grid(project, pairs=5, models=[chat(server, "a"), chat(server, "b")])
    assert main(["annotate", "compare", "--grid", asked]) == 0
    rows = read_json(project.path / "data" / "leaderboard" / "leaderboard.json")["rows"]
    assert [row["model"] for row in rows] == ["models[0] a", "models[1] b"]
    assert rows[0]["failure"] is None
    assert rows[1]["failure"].startswith("The budget of 15 calls (annotate.budget.max_calls) is spent")
    assert len(server.bodies) == 15


def table(told: str) -> dict[str, dict[str, str]]:
    """Read what a dry run says of each judge."""
    heads, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if "|" in line
    )
    return {judge: dict(zip(heads[1:], said, strict=True)) for judge, *said in rows}


def tried(asked: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    assert main(["annotate", "compare", "--grid", asked, "--dry-run", *more]) == 0
    told = capsys.readouterr().out
    assert told.endswith("Nothing was asked, and nothing was written.\n")
    return told


def test_compare_can_be_tried_without_asking(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.path / "prices.yaml").write_text(
        "- {model: dear, date: 2026-01-31, source: 'https://x', input: 1000, output: 0}"
    )
    project.run("collect", "caption")
    project.change({"annotate.budget": {"prices": "prices.yaml", "max_calls": 100, "max_cost": 999.0}})
    dear = chat(server, "dear")
    models = [dear, {**chat(server, "new"), "openai": {**dear["openai"], "model": "new", "max_tokens": 100}}]
    models += [{**dear, "name": "again"}, {"annotator": "scripted"}, {"annotator": "huggingface", "name": "no words"}]
    asked = grid(project, pairs=12, models=models, prompts=["motif", "chain_of_thought"])
    before = lasting_content(project.path)
    told = tried(asked, capsys)
    assert lasting_content(project.path) == before
    assert not server.bodies
    assert told.startswith("Judges of MiniGrid-DoorKey-5x5-v0 on 12 pairs, by the hand-written progress of ")
    found = table(told)
    names = [f"{model}, {prompt}, temperature 0" for model in ("models[0] dear", "models[1] new", "again")
             for prompt in ("motif", "chain_of_thought")]  # fmt: skip
    scored = ["no words, motif", "no words, chain_of_thought"]
    assert list(found) == [*names, "models[3] scripted", *scored, "in all"]
    assert [found[name]["calls"] for name in names] == ["24"] * 4 + ["0"] * 2, "the same judge asks nothing anew"
    assert found["again, motif, temperature 0"]["stored"] == "24"
    assert found["models[3] scripted"]["calls"] == found["models[3] scripted"]["tokens in"] == "0"
    assert found["models[3] scripted"]["money"] == "$0.00"
    assert found[scored[0]]["questions"] == "would fail"
    assert "no words, motif would fail: annotate.huggingface.mode is score" in told
    total = found["in all"]
    assert total["calls"] == "96"
    assert number(total["tokens in"]) == pytest.approx(sum(number(found[name]["tokens in"]) for name in names), abs=4)
    assert number(found[names[2]]["tokens out"]) == 24 * 100
    assert re.fullmatch(r"\$\d+\.\d+ at most", found[names[0]]["money"])
    assert (found[names[2]]["money"], total["money"]) == ("unknown", "unknown")
    assert total["minutes"] == "unknown"
    assert "\nmax_calls 100: suffices\n$999.00 cannot be enforced: the price is unknown " in told
    assert "\nPrices of dear are of 2026-01-31: https://x\n" in told

    project.change({"annotate.budget": {"prices": "prices.yaml"}})
    one = grid(project, pairs=12, models=[dear], prompts=["motif"])
    assert main(["annotate", "compare", "--grid", one]) == 0
    assert len(server.bodies) == 24, "as many as was said"
    asked = grid(project, pairs=12, models=models[:2], prompts=["motif", "chain_of_thought"])
    found = table(tried(asked, capsys))
    assert [found[name]["calls"] for name in names[:4]] == ["0", "24", "24", "24"]
    assert found["in all"]["stored"] == "24"
    project.change({"annotate.budget": {"max_calls": 71, "max_minutes": 5.0}})
    told = tried(asked, capsys)
    assert "max_calls 71: may be reached, and then judges that are not through fail" in told
    assert "max_minutes 5.0: whether that suffices is unknown" in told


def number(text: str) -> float:
    return float(re.findall(r"[\d,]+", text)[0].replace(",", ""))


def test_a_try_of_compare_adds_up_minutes_and_money(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.path / "prices.yaml").write_text(
        "- {model: m, date: 2026-01-31, source: 'https://x', input: 1000, output: 0, batch: 0.5}"
    )
    project.run("collect", "caption")
    project.change({"annotate.budget": {"prices": "prices.yaml", "max_minutes": 5.0}})
    slow = {"model": "m", "base_url": server.url, "requests_per_minute": 12}
    models = [
        {"name": "slow", "annotator": "openai", "openai": slow},
        {"name": "later", "annotator": "openai", "openai": {**slow, "mode": "batch"}, "language_model": {"votes": 2}},
    ]
    told = tried(grid(project, pairs=12, models=models), capsys)
    slow_row, later, total = table(told).values()
    assert (slow_row["minutes"], later["minutes"], total["minutes"]) == ("2.0", "1,440.0", "1,442.0")
    money = [float(re.findall(r"\$([\d.]+)", row["money"])[0]) for row in (slow_row, later, total)]
    assert later["calls"] == "24", "of two votes one is the first judge's"
    assert money[1] == pytest.approx(money[0] / 2, abs=0.01), "as many new questions at half the price"
    assert money[2] == pytest.approx(money[0] + money[1], abs=0.02)
    assert "A round of batches may take 1,440 minutes." in told
    assert "max_minutes 5.0: may be reached" in told


def test_a_stage_that_is_tried_does_not_compare(project: Project, server: ChatServer) -> None:
    project.run("collect", "caption")
    asked = grid(project, pairs=5, models=[chat(server, "a")])
    assert main(["annotate", "--dry-run", "compare", "--grid", asked]) == 0
    assert not server.bodies
    assert not (project.path / "data" / "leaderboard").exists()


def test_compare_logs_a_run_for_each_judge(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project.path / 'm.db'}")
    project.run("collect", "caption")
    project.change({"tracking.enabled": True})
    asked = grid(project, pairs=5, models=[{"annotator": "scripted"}, {"annotator": "embedding"}])
    assert main(["annotate", "compare", "--grid", asked]) == 0
    client, experiment = connect("laurel")
    runs = client.search_runs([experiment])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    cells = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in cells} == {parent.info.run_id}
    assert {run.data.tags["model"] for run in cells} == {"models[0] scripted", "models[1] embedding"}
    assert max(run.data.metrics["accuracy"] for run in cells) == 1.0
    assert all(run.info.status == "FINISHED" for run in runs)
