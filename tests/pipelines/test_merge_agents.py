"""Agents that were trained branch by branch, joined into what one stage writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_project import SMALL, lasting

from laurel.data.json_file import write_json
from laurel.data.manifest import RUN, digest_directory, read_manifest
from laurel.errors import DataError
from laurel.params import Params, parse_params
from laurel.stages import merge_agents, train_agents
from laurel.stages.merge_agents import Branch, branches
from laurel.stages.pipeline import STAGE
from laurel.training.checkpoint import read_run
from tiny_project import Project, set_run_facts


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Every stage called in turn, all arms at once."""
    project = Project.create(tmp_path_factory.mktemp("direct") / "p", SMALL)
    project.run("collect", "caption", "annotate", "train-reward", "train-agents")
    return project


def shards_of(whole: Path, params: Params, place: Path, seeds_per_step: int | None = None) -> list[Path]:
    """Take what all arms' training wrote apart, into what training each branch alone writes."""
    manifest = read_manifest(whole)
    made = []
    for branch in branches(params.arms, params.agent.seeds, seeds_per_step):
        path = place / str(branch)
        path.mkdir(parents=True)
        trained = (whole / branch.arm).is_dir()
        if trained:
            for seed in branch.seeds:
                shutil.copytree(whole / branch.arm / f"seed-{seed}", path / branch.arm / f"seed-{seed}")
        agent = {**manifest["params"]["agent"], "seeds": list(branch.seeds)}
        arms = {branch.arm: params.used("arms")["arms"][branch.arm]}
        write_json(
            path / "manifest.json",
            {
                **manifest,
                "params": {**manifest["params"], "arms": arms, "agent": agent},
                "digest": digest_directory(path),
                "counts": {**manifest["counts"], "arms": int(trained), "seeds": len(branch.seeds)},
                "notes": [note for note in manifest["notes"] if f"arm {branch.arm} " in note],
            },
        )
        made.append(path)
    return made


def merge(direct: Project, shards: list[Path], output: Path, params: Params | None = None) -> None:
    merge_agents.run(
        **STAGE["train-agents"].given(params or direct.params),
        **direct.inputs("train-agents"),
        shards=shards,
        output=output,
    )


@pytest.mark.parametrize("seeds_per_step", [None, 1])
def test_merged_shards_are_the_whole(direct: Project, tmp_path: Path, seeds_per_step: int | None) -> None:
    whole = direct.output("train-agents")
    shards = shards_of(whole, direct.params, tmp_path / "shards", seeds_per_step)
    merge(direct, shards[::-1], tmp_path / "merged")
    assert lasting(tmp_path / "merged") == lasting(whole)
    assert digest_directory(tmp_path / "merged") == read_manifest(whole)["digest"]


def test_what_the_branches_took_is_added_up(direct: Project, tmp_path: Path) -> None:
    shards = shards_of(direct.output("train-agents"), direct.params, tmp_path / "shards")
    for path in shards:
        set_run_facts(path, seconds=1000.0, usage={"calls": 2})
    merge(direct, shards, tmp_path / "merged")
    merged = read_manifest(tmp_path / "merged")
    assert merged["seconds"] // 1000 == merged["usage"]["calls"] / 2 == len(shards)


def test_what_agents_asked_a_model_is_told_for_every_branch(direct: Project, tmp_path: Path) -> None:
    shards = shards_of(direct.output("train-agents"), direct.params, tmp_path / "shards")
    agents = [agent for path in shards for agent in sorted(path.glob("*/seed-*"))]
    for agent in agents:
        about = {"model": "tiny", "states": 4, "unread": 2, "calls": 6, "asker": str(agent)}
        write_json(agent / RUN, {**read_run(agent), "accounts": {"hints": about}})
    merge(direct, shards, tmp_path / "merged")
    notes = read_manifest(tmp_path / "merged")["run_notes"]
    assert len(notes) == len(agents) > 1
    for agent in agents:
        (note,) = (
            note for note in notes if f"trained {agent.parent.name} {agent.name.replace('-', ' ')} asked" in note
        )
        assert "tiny for hints about 4 distinct states" in note
        assert "2 states had no answer that could be read" in note


def test_notes_stand_in_the_order_of_the_stage(direct: Project, tmp_path: Path) -> None:
    from laurel.envs import adapter_for
    from laurel.rewards.arms import skipped_arms
    from laurel.rewards.method import RewardContext

    arms = ("shuffled_labels", *direct.params.arm_names, "oracle")  # of which the first and the last are left out
    params = parse_params({**direct.params.dump(), "arms": list(arms)}, "params")
    no_oracle = adapter_for(params.env.model_copy(update={"id": "Pendulum-v1"}))
    notes = list(skipped_arms(params.arms, RewardContext.of(params), no_oracle).values())
    assert len(notes) == 2
    whole = shutil.copytree(direct.output("train-agents"), tmp_path / "whole")
    manifest = read_manifest(whole)
    write_json(whole / "manifest.json", {**manifest, "notes": notes})
    merge(direct, shards_of(whole, params, tmp_path / "shards"), tmp_path / "merged", params)
    assert read_manifest(tmp_path / "merged")["notes"] == notes


def test_arms_with_their_own_agents(direct: Project, tmp_path: Path) -> None:
    """Their seeds are divided, too, and a branch has one arm, of which it says that all of its agents are like that."""
    nothing, sb3 = {"reward": None, "extrinsic": 0}, {"engine": "sb3", "sb3": {"algorithm": "DQN"}}
    content = direct.params.dump()
    content["arms"] = {"a": {"reward": None}, "b": nothing, "c": nothing, "d": {"reward": None, "agent": sb3}}
    params = parse_params({**content, "agent": {**content["agent"], "seeds": [0, 1], "steps": 64}}, "params")
    given, inputs = STAGE["train-agents"].given(params), direct.inputs("train-agents")
    train_agents.run(**given, **inputs, output=tmp_path / "whole")
    divided = {tmp_path / str(branch): branch for branch in branches(params.arms, params.agent.seeds, 1)}
    for shard, branch in divided.items():
        train_agents.run(**branch.narrow(given), **inputs, output=shard, branch=True)
    merge(direct, list(divided), tmp_path / "merged", params)
    assert lasting(tmp_path / "merged") == lasting(tmp_path / "whole")
    notes = read_manifest(tmp_path / "merged")["notes"]
    assert notes[0].startswith("Agents of d were trained by DQN of stable_baselines3")
    assert notes[1].startswith("Agents of b, c learn from no reward at all")


def test_shards_that_do_not_fit(direct: Project, tmp_path: Path) -> None:
    params = direct.params
    shards = shards_of(direct.output("train-agents"), params, tmp_path / "shards")
    output = tmp_path / "merged"
    with pytest.raises(
        DataError, match=r"Missing: agents of preference with seed 0, agents of preference with seed 1\. Make"
    ):
        merge(direct, [path for path in shards if "preference" not in path.name], output)
    twice = shutil.copytree(tmp_path / "shards" / "extrinsic 0,1", tmp_path / "again")
    with pytest.raises(
        DataError, match=r"again: holds agents of extrinsic with seed 0, and so does .*shards/extrinsic 0,1"
    ):
        merge(direct, [*shards, twice], output)
    with pytest.raises(DataError, match="agents of extrinsic,preference,random_policy"):
        merge(direct, [direct.output("train-agents")], output)
    fewer = params.model_copy(update={"agent": params.agent.model_copy(update={"seeds": (1,)})})
    with pytest.raises(DataError, match="with seed 0, which these parameters do not ask for"):
        merge(direct, shards, output, fewer)
    longer = params.model_copy(update={"agent": params.agent.model_copy(update={"steps": 512})})
    with pytest.raises(DataError, match=r"was made with agent\.steps 256, but it is 512"):
        merge(direct, shards, output, longer)
    assert not output.exists()


def test_lineage_passes_through_the_merge_step(
    direct: Project, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    shards = shards_of(direct.output("train-agents"), direct.params, tmp_path / "shards")
    for path in shards:
        set_run_facts(path, mlflow_run_id=f"run of {path.name}")
    tracking = direct.params.tracking.model_copy(update={"enabled": True})
    merge(direct, shards, tmp_path / "merged", direct.params.model_copy(update={"tracking": tracking}))
    tags = MlflowClient(database).get_run(read_manifest(tmp_path / "merged")["mlflow_run_id"]).data.tags
    assert tags["stage"] == "merge-agents"
    lineage = (tags["upstream.preference.0"], tags["upstream.extrinsic.0"])
    assert lineage == ("run of preference 0,1", "run of extrinsic 0,1")


def test_agents_that_could_not_be_logged_are_logged_by_the_merger(
    direct: Project, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    shards = shards_of(direct.output("train-agents"), direct.params, tmp_path / "shards")
    (logged,) = [path for path in shards if "extrinsic" in path.name]
    set_run_facts(logged, mlflow_run_id="there")
    tracking = direct.params.tracking.model_copy(update={"enabled": True})
    merge(direct, shards, tmp_path / "merged", direct.params.model_copy(update={"tracking": tracking}))
    client = MlflowClient(database)
    parent = read_manifest(tmp_path / "merged")["mlflow_run_id"]
    runs = client.search_runs([client.get_run(parent).info.experiment_id], f"tags.mlflow.parentRunId = '{parent}'")
    assert sorted(run.info.run_name for run in runs) == ["preference seed 0", "preference seed 1"]


def test_a_branch(direct: Project) -> None:
    branch = Branch.read({"arm": "extrinsic", "seeds": [1.0]})
    assert str(branch) == "extrinsic 1"
    narrowed = branch.narrow(dict(direct.params))
    assert ([arm.name for arm in narrowed["arms"]], narrowed["agent"].seeds) == (["extrinsic"], (1,))
    assert Branch.read(branch.write()) == branch
