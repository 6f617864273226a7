"""Rewards and agents of finished runs in each other's environments."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from laurel.cli.app import main
from laurel.data.json_file import read_json
from laurel.data.manifest import read_manifest
from laurel.errors import DataError, ParamsError
from laurel.params import load_params, parse_params
from laurel.params.rewards import method_of, resolved
from laurel.rewards.functions import CaptionReward
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.stored import StoredRewards
from laurel.stages import transfer
from laurel.stages.project import REPORTS
from minimal_params import MINIMAL
from tiny_project import Project


def stored(project: Project, **content: Any) -> Any:
    settings = {"kind": "stored", "path": str(project.output("train-reward")), **content}
    return resolved({"other": settings}, ())["other"]


def test_a_stored_reward_is_the_same_as_where_it_was_made(rewarded: Project, tmp_path: Path) -> None:
    context = RewardContext.of(rewarded.params)
    settings = stored(rewarded, digest=read_manifest(rewarded.output("train-reward"))["digest"])
    method, adapter = method_of(settings), context.adapter
    assert method.check(context, adapter) is None
    method.fit(context, Inputs(tmp_path, tmp_path, tmp_path), adapter, 0, tmp_path)
    elsewhere = method_of(settings.model_copy(update={"path": "gone"}))
    found = elsewhere.load(tmp_path, adapter, 0.5)
    original = StoredRewards.read(rewarded.output("train-reward")).load("preference", 0, adapter, 0.5)
    assert isinstance(found, CaptionReward)
    assert isinstance(original, CaptionReward)
    assert found.known
    assert (found.known, found.threshold) == (original.known, original.threshold)
    assert list(elsewhere.table(tmp_path, 0.5).texts) == list(found.known)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"name": "preferenc"}, r'holds no reward preferenc. Did you mean "preference"'),
        ({"digest": "0" * 64}, r"its digest is .*, but the params require 0{64}"),
        ({"name": "random_reward"}, r"its reward random_reward is made separately for each agent's seed"),
        ({"path": "gone"}, r"gone"),
    ],
)
def test_missing_inputs_are_refused(rewarded: Project, content: dict[str, Any], sentence: str) -> None:
    settings, context = stored(rewarded, **content), RewardContext.of(rewarded.params)
    with pytest.raises(DataError, match=sentence):
        method_of(settings).check(context, context.adapter)


def test_a_stored_reward_that_was_changed_is_refused(rewarded: Project, tmp_path: Path) -> None:
    project, context = rewarded.copy(tmp_path / "p"), RewardContext.of(rewarded.params)
    weights = next((project.output("train-reward") / "preference").glob("*.safetensors"))
    weights.write_bytes(bytes(weights.stat().st_size))
    with pytest.raises(DataError, match=r"is not what laurel train-reward wrote|holds other files"):
        method_of(stored(project)).check(context, context.adapter)


def test_a_reward_that_each_agent_learns_is_refused(rewarded: Project, tmp_path: Path) -> None:
    project = rewarded.copy(tmp_path / "p")
    project.change({"arms": {"online": {"reward": "online"}}})
    project.run("annotate", "train-reward")
    context = RewardContext.of(project.params)
    with pytest.raises(DataError, match=r"its reward online is learned while agents are trained, and each agent has"):
        method_of(stored(project, name="online")).check(context, context.adapter)


def test_a_page_says_how_many_seeds_each_run_has() -> None:
    record: dict[str, Any] = {
        **{"command": "laurel transfer a b", "date": "2026-01-01", "version": "1"},
        **{"arms": {"a": "preference", "b": "preference"}, "seeds": {"a": 1, "b": 3}},
        **{"agents": {}, "rewards": {}, "same_weights": [], "label_sets": {}, "controls": {}},
    }
    assert "Arm preference, 1 seed (a), 3 seeds (b); rows: made or trained there" in transfer.page(record)


@pytest.fixture
def runs(finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(transfer, "up_to_date", lambda *_: True)
    return [finished.copy(tmp_path / name).path for name in ("first", "second")]


@pytest.mark.usefixtures("own_process")
def test_two_matrices_are_filled_and_finished_cells_are_not_repeated(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = []

    def run_project(file: Path, folder: Path) -> None:
        params = load_params(file)
        trained.append((folder.name, params.rewards["transferred"]))
        shutil.copytree(runs[0] / REPORTS, folder / REPORTS, dirs_exist_ok=True)
        for file, read, write in (
            (folder / REPORTS / "results.parquet", pd.read_parquet, pd.DataFrame.to_parquet),
            (folder / REPORTS / "curves.csv", pd.read_csv, pd.DataFrame.to_csv),
        ):
            of_arm = read(file).query("arm == 'preference'")
            write(of_arm.assign(arm="transferred"), file, index=False)

    monkeypatch.setattr(transfer, "run_project", run_project)
    arguments = ["transfer", *map(str, runs), "--work", str(tmp_path / "work"), "-o", str(tmp_path / "page.md")]
    assert main(arguments) == 0
    assert [name for name, _ in trained] == ["first.to.second", "second.to.first"]
    assert trained[0][1].path == str(runs[0] / "data/reward")  # type: ignore[attr-defined]
    assert trained[0][1].digest == read_manifest(runs[0] / "data/reward")["digest"]  # type: ignore[attr-defined]
    found = read_json(tmp_path / "page.json")
    metrics = read_json(runs[0] / REPORTS / "metrics.json")["arms"]["preference"]
    assert found["rewards"]["first"]["first"]["success"] == metrics["success"]
    assert found["agents"]["first"]["first"]["success"]["mean"] == pytest.approx(metrics["success"]["mean"]), (
        "at home, agents play the same episodes as in the run"
    )
    assert found["agents"]["first"]["first"]["return"]["ci95"] == pytest.approx(metrics["return"]["ci95"])
    for cell in ("success", "return", "solved"):
        assert found["rewards"]["first"]["second"][cell] == metrics[cell], "the range of returns is that of all arms"
    assert found["agents"]["first"]["second"] == found["agents"]["first"]["first"], "the environments are the same"
    page = (tmp_path / "page.md").read_text()
    assert page.count("\n| first |") == 2
    assert "| random_policy |" in page
    assert "The rewards of first, second have the same weights" in page, "one is a copy of the other"
    assert "label set" not in page
    several = transfer.page({**found, "label_sets": {"second": 3}})
    assert (
        "The run second has 3 label sets: its own agents, on the diagonal, are each paid the reward of their seed's "
        "label set, and agents elsewhere all that of label set 0." in several
    )

    def fail(*_: Any) -> None:
        raise AssertionError("done again")

    play = transfer.play
    monkeypatch.setattr(transfer, "play", fail)
    assert main(arguments) == 0
    monkeypatch.setattr(transfer, "run_project", fail)
    assert main([*arguments, "--agents-only"]) == 0
    monkeypatch.setattr(transfer, "play", play)
    before = (tmp_path / "page.json").read_text()
    for table in (tmp_path / "work/agents").glob("first.to.*"):
        table.write_bytes(table.read_bytes()[:500])  # as after a power failure
    assert main([*arguments, "--agents-only"]) == 0
    assert (tmp_path / "page.json").read_text() == before, "damaged tables are played again"
    assert read_json(tmp_path / "page.json")["rewards"]["first"].keys() == {"first"}
    assert capsys.readouterr().out.endswith("page.md\n")
    monkeypatch.setattr(transfer, "play", fail)
    monkeypatch.setattr(transfer, "run_project", run_project)
    assert main([*arguments, "--rewards-only"]) == 0
    assert read_json(tmp_path / "page.json")["rewards"] == found["rewards"]
    assert (tmp_path / "page.md").read_text().count("\n| first |") == 1


def test_agents_that_do_not_fit_another_environment_name_the_way_out(runs: list[Path], tmp_path: Path) -> None:
    origin, target = transfer.read_sources(runs, None)
    env = target.params.env.model_copy(update={"id": "CartPole-v1"})
    target = replace(target, params=target.params.model_copy(update={"env": env}))
    with pytest.raises(DataError, match=r"An agent fits only .* To try rewards alone: --rewards-only\."):
        transfer.play(origin, target, tmp_path / "table.parquet", lambda _: None)


def test_runs_that_cannot_be_compared_are_refused(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParamsError, match="there must be two or more"):
        transfer.read_sources(runs[:1], None)
    with pytest.raises(ParamsError, match=r"extrinsic is not one. --arm may be one of preference"):
        transfer.read_sources(runs, "extrinsic")
    monkeypatch.setattr(transfer, "up_to_date", lambda *_: False)
    with pytest.raises(DataError, match="is not a finished run: collect is not up to date"):
        transfer.read_sources(runs, None)
    params = load_params(runs[0] / "params.yaml")
    params = params.model_copy(update={"env": params.env.model_copy(update={"id": "own_world:World-v0"})})
    monkeypatch.setattr(transfer, "load_params", lambda _: params)
    (runs[0] / "own_world.py").touch()
    with pytest.raises(DataError, match=r"collect is not up to date. The working folder has no own_world.py"):
        transfer.read_sources(runs, None)
    (runs[0] / "own_world.py").unlink()
    labelled = params.model_copy(update={"env": load_params(runs[1] / "params.yaml").env})
    labelled = labelled.model_copy(
        update={"annotate": labelled.annotate.model_copy(update={"gold": Path("gold.jsonl")})}
    )
    monkeypatch.setattr(transfer, "load_params", lambda _: labelled)
    (runs[0] / "gold.jsonl").touch()
    with pytest.raises(DataError, match=r"The working folder has no gold.jsonl, which its params name: run this"):
        transfer.read_sources(runs, None)
    monkeypatch.chdir(tmp_path)
    Path("gold.jsonl").write_text("of another run")
    with pytest.raises(DataError, match=r"Its params name gold.jsonl, and the one in the working folder differs from"):
        transfer.read_sources(runs, None)


def test_places_that_cannot_be_written_are_refused_before_anything_is_played(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Any] = []
    monkeypatch.setattr(transfer, "run_jobs", lambda jobs, *_: played.append(jobs))
    sources = transfer.read_sources(runs, None)
    (file := tmp_path / "file").touch()
    agents = runs[0] / "data/agents"
    content = sorted(agents.rglob("*"))
    for work, output, sentence in (
        (agents, tmp_path / "page.md", r'the output of the stage "train-agents", which would then count as changed'),
        (file, tmp_path / "page.md", r"file: cannot be written"),
        (tmp_path, agents / "page.md", r"which would then count as changed"),
        (tmp_path, file / "page.md", r"page.md: cannot be written"),
    ):
        with pytest.raises(DataError, match=sentence):
            transfer.transfer(sources, work, output, "laurel transfer", print, train=False)
    no_reward = [replace(source, arm=replace(source.arm, reward={"gone": 1.0})) for source in sources]
    with pytest.raises(DataError, match=r"data/reward: holds no reward gone"):
        transfer.transfer(no_reward, tmp_path, tmp_path / "page.md", "laurel transfer", print)
    assert not played
    assert sorted(agents.rglob("*")) == content


def test_a_method_without_a_reward_is_skipped(runs: list[Path]) -> None:
    """Such as an agent with hints, whose role is method, too."""
    for folder in runs:
        content = yaml.safe_load((folder / "params.yaml").read_text())
        hinted = {"reward": None, "agent": {"ppo": {"hints": {"actor": "llm_policy"}}}}
        content["arms"] = {"hinted": hinted, "preference": {"reward": "preference"}}
        (folder / "params.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert [source.arm.name for source in transfer.read_sources(runs, None)] == ["preference"] * 2
    with pytest.raises(ParamsError, match=r"and hinted is not one. --arm may be one of preference\."):
        transfer.read_sources(runs, "hinted")
    for folder in runs:
        content["arms"] = {"hinted": hinted, "oracle": {"reward": "oracle"}}
        (folder / "params.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ParamsError, match=r"no arm with the role method is one. --arm may be one of oracle\."):
        transfer.read_sources(runs, None)


def test_agents_are_played_again_after_the_own_environment_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = parse_params(MINIMAL, "p")
    origin = transfer.Source("a", tmp_path, params, next(iter(params.resolved_arms.values())), {})
    changed_params = params.model_copy(update={"env": params.env.model_copy(update={"id": "mine:Lake-v0"})})
    keys = []
    for size in (4, 8):
        Path("mine.py").write_text(f"SIZE = {size}\n")
        keys.append(transfer._key(origin, "digest", changed_params))
    assert len(set(keys)) == 2
