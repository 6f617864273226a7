"""A suite: the runs that its axes make, and its page of those that are there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

from installed import EXAMPLES, install
from laurel.cli.app import main
from laurel.data.directory import KEY_LENGTH, RUN
from laurel.data.json_file import digest_json
from laurel.data.replacing import lock_of
from laurel.errors import DataError, LaurelError, ParamsError, StageError
from laurel.evaluation.summary import estimated
from laurel.params.suite import Suite, load_suite
from laurel.stages import suite as suite_module
from laurel.stages.pipeline import STAGES
from laurel.stages.project import run_project
from laurel.stages.suite import markdown_page, run_suite, write_page
from minimal_params import MINIMAL
from tiny_project import REPOSITORY, TINY, Project, read_json

SUITES = sorted((REPOSITORY / "benchmarks" / "suites").glob("*.yaml"))
MADE = [file for file in SUITES if file.with_suffix(".json").exists()]


def written(folder: Path, **content: Any) -> Path:
    file = folder / "tried.yaml"
    file.write_text(yaml.safe_dump({"title": "What is tried", **content}, sort_keys=False))
    return file


def test_runs_are_the_product_of_the_axes(tmp_path: Path) -> None:
    axes = {
        "environment": {"Pole": {}, "Lake": {"env": {"id": "FrozenLake-v1"}, "agent": {"steps": 3000}}},
        "judge": {"MiniLM": {}, "progress": {"annotate": {"annotator": "scripted"}, "agent": {"steps": 5000}}},
    }
    suite = load_suite(written(tmp_path, params=MINIMAL, axes=axes))
    assert [run.name for run in suite.runs] == ["Pole.MiniLM", "Pole.progress", "Lake.MiniLM", "Lake.progress"]
    assert [run.params.env.id for run in suite.runs] == ["CartPole-v1", "CartPole-v1", "FrozenLake-v1", "FrozenLake-v1"]
    assert [run.params.agent.steps for run in suite.runs] == [2000, 5000, 3000, 5000], "later axes override earlier"
    assert suite.runs[3].params.annotate.annotator == "scripted"
    assert suite.runs[3].params.agent.seeds == (0, 1), "the rest of a section stays"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"axes": {}}, "axes.*is empty"),
        ({"axes": {"judge": {"../up": {}}}}, 'has the name "../up"'),
        ({"params": MINIMAL, "axes": {"judge": {"one": {"agent": {"step": 1}}}}}, r"tried\.yaml: one: agent\.step"),
        ({"axes": {"judge": {"one": {}}}, "seeds": 3}, "seeds"),
    ],
)
def test_invalid_suites_are_refused(content: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=says):
        load_suite(written(tmp_path, **content))


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return load_suite(written(tmp_path, params=TINY, axes={"judge": {"first": {}, "second": {"seed": 1}}}))


def test_the_page_shows_finished_runs(
    suite: Suite, finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails does not keep the others from running, and the page names it."""

    def run(params_file: Path, folder: Path) -> None:
        if folder.name == "first":
            raise StageError("collect failed.", "The <b>gate</b>\nrefused the labels.")
        finished.copy(folder)
        for stage, usage in (("train-reward", {"calls": 7, "cost_usd": 1.5}), ("train-agents", {"calls": 3})):
            place = finished.output(stage).relative_to(finished.path)
            run_file = folder / place / RUN
            run_file.write_text(json.dumps({**read_json(run_file), "usage": usage}))
        params_file.write_text((finished.path / "params.yaml").read_text())
        monkeypatch.setattr("laurel.stages.project._run", lambda *_: None)
        run_project(params_file, folder)
        monkeypatch.setattr(suite_module, "up_to_date", lambda _stage, _params, place: place == folder)

    monkeypatch.setattr(suite_module, "run_project", run)
    said: list[str] = []
    assert run_suite(suite, tmp_path / "work", tmp_path / "out", "laurel benchmark", report=said.append) == ["first"]
    assert said == ["first (1 of 2)", "first: collect failed.", "second (2 of 2)"]
    page = (tmp_path / "out" / "tried.md").read_text()
    assert "\n- first failed: The &lt;b>gate&lt;/b> refused the labels.\n" in page
    assert "Not finished" not in page
    assert "## second" in page
    assert ". 10 model calls in all stages, $1.50. " in page
    found = read_json(tmp_path / "out" / "tried.json")
    assert found["not run"] == ["first"]
    assert found["failed"]["first"]["reason"] == "The <b>gate</b>\nrefused the labels."
    arms = read_json(finished.output("evaluate") / "metrics.json")["arms"]
    assert found["runs"]["second"]["metrics"]["arms"] == arms
    success = arms["preference"]["success"]
    assert f"| second | {estimated(arms['extrinsic']['success'])}" in page
    assert f"{estimated(success)}, {arms['preference']['solved']['seeds']} of 2" in page
    took = f"{sum(seconds for seconds in found['runs']['second']['seconds'].values() if seconds is not None):,.0f}"
    assert f" | 2k | {took} | 10 | $1.50 |\n" in page, "what a row of the table took"

    assert "calls and their cost are those of all language models that are asked." in page
    del found["runs"]["second"]["counts_all_calls"]  # as an earlier version wrote it
    assert "those of annotators, without models that act or hint." in markdown_page(suite, found)
    found["runs"]["second"]["counts_all_calls"] = True
    found["runs"]["second"]["unpriced"] = 2
    some = markdown_page(suite, found)
    assert "10 model calls in all stages, at least $1.50: 2 answers came without a token count. " in some
    assert " | 10 | at least $1.50 |\n" in some
    del found["runs"]["second"]["unpriced"]

    elsewhere = tmp_path / "elsewhere"
    write_page(suite, elsewhere, tmp_path / "out", "laurel benchmark")
    assert read_json(tmp_path / "out" / "tried.json") == found, "its folder is gone, its place on the page is kept"
    renamed = replace(suite, runs=tuple(replace(run, levels={"teacher": run.name}) for run in suite.runs))
    write_page(renamed, elsewhere, tmp_path / "out", "laurel benchmark")
    assert "| teacher | extrinsic |" in (tmp_path / "out" / "tried.md").read_text(), "an axis has another name"
    other = replace(suite, runs=tuple(replace(run, content={**run.content, "seed": 7}) for run in suite.runs))
    with pytest.raises(ParamsError, match=r"^Run second of .*tried\.json: .* They would be lost\."):
        write_page(other, elsewhere, tmp_path / "out", "laurel benchmark", may_drop=False)
    assert read_json(tmp_path / "out" / "tried.json")["not run"] == ["first"], "nothing was written"
    write_page(other, elsewhere, tmp_path / "out", "laurel benchmark")
    assert read_json(tmp_path / "out" / "tried.json")["not run"] == ["first", "second"]
    assert "- Not finished: first, second." in (tmp_path / "out" / "tried.md").read_text(), (
        "their parameters are others"
    )


def test_a_run_that_another_process_is_running_is_left_out(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed at the stage that the other one was at, and the page said so until the next start."""
    ran: list[str] = []
    monkeypatch.setattr(suite_module, "run_project", lambda _file, folder: ran.append(folder.name))
    said: list[str] = []
    (tmp_path / "work").mkdir()
    with FileLock(lock_of(tmp_path / "work" / "first")):
        left = run_suite(suite, tmp_path / "work", tmp_path / "out", "laurel benchmark", report=said.append)
    assert (left, ran) == (["first"], ["second"])
    assert "first: another process is running it, so this one leaves it out." in said
    assert "failed" not in read_json(tmp_path / "out" / "tried.json")
    assert run_suite(suite, tmp_path / "work", tmp_path / "out", "laurel benchmark", report=said.append) == []


def test_the_page_says_what_a_failed_run_was_paid_for(
    suite: Suite, finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of its finished stages, and of the one that failed."""
    finished.copy(tmp_path / "work" / "first")
    run_file = tmp_path / "work/first/data/preferences" / RUN
    run_file.write_text(json.dumps({**read_json(run_file), "usage": {"calls": 7, "cost_usd": 1.5}}))
    spent = {"seconds": 1.0, "usage": {"calls": 5, "cost_usd": 0.25, "unpriced": 2}}
    (tmp_path / f"work/first/data/.reward.{'0' * KEY_LENGTH}.spent.json").write_text(json.dumps(spent))
    done, first = [stage.name for stage in STAGES[:3]], tmp_path / "work" / "first"
    monkeypatch.setattr(suite_module, "up_to_date", lambda stage, _, place: place == first and stage.name in done)

    def run(_file: Path, folder: Path) -> None:
        raise StageError("train-reward failed.", "A limit." if folder.name == "first" else "No key.")

    monkeypatch.setattr(suite_module, "run_project", run)
    run_suite(suite, tmp_path / "work", tmp_path / "out", "laurel benchmark", report=lambda _: None)
    page = (tmp_path / "out" / "tried.md").read_text()
    paid = "It had made 12 model calls until then, at least $1.75: 2 answers came without a token count."
    assert f"- first failed: A limit. {paid}\n- second failed: No key.\n" in page
    write_page(suite, tmp_path / "elsewhere", tmp_path / "out", "laurel benchmark")
    assert (tmp_path / "out" / "tried.md").read_text() == page, "also where its folder is not"


def test_a_strangers_method_of_one_file_is_a_column_of_a_suites_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of docs/tutorials/reward-method.md, and the name that its package gives it."""
    site = tmp_path / "site"
    install(site, "my_method", {"laurel.rewards": {"forward": "forward"}})
    (site / "forward.py").write_text((EXAMPLES / "forward.py").read_text())
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    small = {"collect": {"steps": 300, "n_envs": 4}, "tracking": {"enabled": False}}
    arms = {"arms": {"extrinsic": {}, "forward": {"reward": "forward"}}, "rewards": {"forward": {"bonus": 2}}}
    agent = {"agent": {"seeds": [0], "steps": 256, "workers": 1, "ppo": {"n_envs": 4, "n_steps": 32, "hidden": [8]}}}
    evaluate = {"evaluate": {"episodes": 1, "n_envs": 1, "animation_steps": 0}}
    file = written(tmp_path, params={**TINY, **small, **arms, **agent, **evaluate}, axes={"task": {"room": {}}})
    assert main(["benchmark", str(file), "--work", str(tmp_path / "work")]) == 0
    page = (tmp_path / "tried.md").read_text()
    assert "| task | extrinsic | forward | steps |" in page
    assert "| **forward** |" in page, "it is the method that the page is about"
    assert read_json(tmp_path / "tried.json")["runs"]["room"]["metrics"]["arms"]["forward"]["role"] == "method"


def test_a_result_of_other_params_is_not_shown(suite: Suite, finished: Project, tmp_path: Path) -> None:
    finished.copy(tmp_path / "first")
    assert suite_module.result(suite.runs[0], tmp_path / "first") is not None
    assert suite_module.result(suite.runs[1], tmp_path / "first") is None, "it was made with another seed"


def test_an_unknown_run_is_refused_with_the_list(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(LaurelError, match=r'no run "firts"\. Did you mean "first"\? It has first, second\.'):
        run_suite(suite, tmp_path, tmp_path, "laurel benchmark", only=["firts"], report=print)


def test_a_page_that_cannot_be_written_is_refused_before_the_runs(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_module, "run_project", lambda *_, **__: pytest.fail("it ran"))
    (file := tmp_path / "file").touch()
    with pytest.raises(DataError, match="file: cannot be written"):
        run_suite(suite, tmp_path / "work", file, "laurel benchmark", report=print)


def test_pairs_without_a_preference_are_not_left_out_of_those_that_differ() -> None:
    oracle = {"pairs": 60, "agreement": {"value": 1.0, "ci95": [0.7, 1.0], "of": 10}, "undecided": 50}
    judge = {"annotator": "J", "oracle": oracle}
    assert suite_module._judge(judge, 1) == (
        "J, which agrees with hand-written progress on 10 of 10 pairs that differ in it, and has no preference in 50 "
        "more"
    )
    oracle["undecided"] = 0
    assert suite_module._judge(judge, 10).startswith(
        "J (the first of 10 label sets), which agrees with hand-written progress on 10 of 10 pairs"
    )


def test_accuracy_is_next_to_the_agents() -> None:
    file = REPOSITORY / "benchmarks" / "suites" / "outcome.yaml"
    suite, found = load_suite(file), read_json(file.with_suffix(".json"))
    run = found["runs"]["low_payoff.MiniLM"]["metrics"]
    rates = {name: {"value": 0.5, "ci95": [0.25, 0.75], "of": n} for name, n in (("accuracy", 12), ("right_order", 34))}
    draws = [{"reward": "drawn", "label_set": n, "judge": "J", "goals": 5, "sensible": 0.2 + n / 5} for n in (0, 1)]
    ordered = {"reward": "ordered", "label_set": 0, "right_order": rates["right_order"]}
    run["reward"] = {"by": [*draws, ordered, {"reward": "unknown", "label_set": 0, "accuracy": None}]}
    page = markdown_page(suite, found).split("## low_payoff.MiniLM")[1].split("## ")[0]
    assert [line for line in page.splitlines() if line.startswith("- Reward ")] == [
        "- Reward drawn, by J: 1 of 5 goals are met by a caption that is hand-written progress.",
        "- Reward ordered: 50% [25%, 75%] of 34 pairs of captions are in the order of hand-written progress.",
    ]
    # Of an experiment with a single reward:
    run["reward"] = {"judge": None, "outcomes": 22, "unanswered": 2, "yes": 0.95, "accuracy": rates["accuracy"]}
    run["arms"]["outcome"]["rewards"] = ["answers"]
    assert (
        "\n- Reward answers: 50% [25%, 75%] of 12 outcomes whose answer was not given are labelled right; of all 20 "
        "outcomes with an answer, 19 are labelled yes.\n" in markdown_page(suite, found)
    )


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_suites_of_the_repository_fit(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", str(file), "--list"]) == 0
    assert capsys.readouterr().out


def test_the_list_of_suites_has_each_with_figures_of_its_page_and_its_date() -> None:
    text = (SUITES[0].parent / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[(\w+)\](.*)$", text, re.MULTILINE))
    assert [*rows] == [file.stem for file in MADE]
    for file in MADE:
        shown = "".join(page.read_text(encoding="utf-8") for page in file.parent.glob(f"{file.stem}[.-]*md"))
        figures = re.findall(r"(?:\d\.\d\d|\d+%) \[.*?\]", rows[file.stem])
        assert figures, file.stem
        assert [figure for figure in figures if figure not in shown] == [], file.stem
        dates = [run["made"]["date"] for run in read_json(file.with_suffix(".json"))["runs"].values()]
        assert rows[file.stem].endswith(f" {max(dates)} |")


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.stem)
def test_a_page_is_that_of_its_record_and_of_its_suite(file: Path) -> None:
    suite, found = load_suite(file), read_json(file.with_suffix(".json"))
    made = {run.name: digest_json(run.content) for run in suite.runs if run.name not in found["not run"]}
    assert {name: run["params"] for name, run in found["runs"].items()} == made, "they were run with these params"
    page = markdown_page(suite, found)
    assert file.with_suffix(".md").read_text(encoding="utf-8") == page, f"laurel benchmark {file} --page"
