"""`laurel annotate compare`: judges side by side."""

from __future__ import annotations

import io
import os
import re
import signal
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from chat_server import ChatServer, problem

from judged_project import chat, judge
from laurel.cli.app import main
from laurel.data.gold import GoldFile, Task
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.envs import adapter_for
from laurel.tracking.server import connect
from tiny_project import Project, lasting_content


def grid(project: Project, **content: Any) -> str:
    (project.path / "grid.yaml").write_text(yaml.safe_dump(content))
    return "grid.yaml"


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
    gold.add("You turn.", "You move.", "first", "uncertain")
    asked = grid(
        project, models=[{"annotator": "scripted"}, {"annotator": "scripted", "scripted": {"error_rate": 1.0}}]
    )
    assert main(["annotate", "compare", "--grid", asked, "--gold", "gold.jsonl", "--output", "there"]) == 0
    source = "the gold labels in gold.jsonl (without 1 of pairs that were chosen as uncertain)"
    assert f"on 1 pair, by {source}." in capsys.readouterr().out
    assert [row["accuracy"] for row in read_json(project.path / "there" / "leaderboard.json")["rows"]] == [1.0, 0.0]
    assert main(["annotate", "compare", "--grid", asked, "--gold", "none.jsonl"]) == 2
    assert "laurel: none.jsonl: no such file." in capsys.readouterr().err


def test_gold_labels_are_those_of_the_annotators_goal(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `annotate review` files them; judges of the grid with another goal are named."""
    project.change({"annotate.annotator": "embedding", "annotate.embedding.goal": "Turn around all day."})
    project.run("collect", "caption")
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    assert main(["annotate", "review", "--gold", "gold.jsonl", "--preferences", "none"]) == 0
    asked = grid(project, models=[{}, {"name": "other", "annotator": "scripted"}])
    capsys.readouterr()
    assert main(["annotate", "compare", "--grid", asked, "--gold", "gold.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "on 2 pairs, by the gold labels in gold.jsonl." in said
    assert said.count("so its figures say little") == 1
    goal = adapter_for(project.params.env).goal
    assert f'other judged by the goal "{goal}", but the gold labels are for "Turn around all day.", so' in said


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
    assert "All 1 judges failed. The first: Sentence encoder" in capsys.readouterr().err
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
    assert [row["calls"] for row in rows] == [10, 5], "also those of a judge that failed"
    assert read_manifest(project.path / "data" / "leaderboard")["usage"]["calls"] == 15
    assert len(server.bodies) == 15


def test_what_a_stopped_comparison_asked_counts(project: Project, server: ChatServer) -> None:
    project.run("collect", "caption")

    def press(request: Any, body: dict[str, Any]) -> Any:
        if len(server.bodies) == 14:  # in the midst of the second judge
            os.kill(os.getpid(), signal.SIGINT)
        return judge(request, body)

    server.behave = press
    asked = ["annotate", "compare", "--grid", grid(project, pairs=5, models=[chat(server, "a"), chat(server, "b")])]
    assert main(asked) == 130
    assert main(asked) == 0
    usage = read_manifest(project.path / "data" / "leaderboard")["usage"]
    assert (usage["calls"], usage["cached"]) == (len(server.bodies), 0)


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
    single = grid(project, pairs=12, models=[dear], prompts=["motif"])
    assert main(["annotate", "compare", "--grid", single]) == 0
    assert len(server.bodies) == 24, "as many as was said"
    asked = grid(project, pairs=12, models=models[:2], prompts=["motif", "chain_of_thought"])
    found = table(tried(asked, capsys))
    assert [found[name]["calls"] for name in names[:4]] == ["0", "24", "24", "24"]
    assert found["in all"]["stored"] == "24"
    project.change({"annotate.budget": {"max_calls": 71, "max_minutes": 5.0}})
    told = tried(asked, capsys)
    assert "max_calls 71: may be reached, and then unfinished judges fail" in told
    assert "max_minutes 5.0: it is unknown whether that suffices" in told


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


@pytest.mark.usefixtures("database")
def test_compare_logs_a_run_for_each_judge(project: Project) -> None:
    project.run("collect", "caption")
    project.change({"tracking.enabled": True})
    asked = grid(project, pairs=5, models=[{"annotator": "scripted"}, {"annotator": "embedding"}])
    assert main(["annotate", "compare", "--grid", asked]) == 0
    client, experiment = connect("laurel")
    runs = client.search_runs([experiment])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    cells = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in cells} == {parent.info.run_id}
    own = {run.data.tags["model"]: run.data.tags["annotator"] for run in cells}
    assert own == {"models[0] scripted": "scripted", "models[1] embedding": "embedding"}, "not that of params.yaml"
    assert max(run.data.metrics["accuracy"] for run in cells) == 1.0
    assert all(run.info.status == "FINISHED" for run in runs)
