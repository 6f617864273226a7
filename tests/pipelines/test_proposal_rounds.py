"""Language-model actors whose proposals are sampled in tasks of their own: the graph, and the run of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_project import lasting

from laurel.cli.app import main
from laurel.errors import DataError, ParamsError
from laurel.params import Params, parse_params
from laurel.pipelines.estimate import estimate
from laurel.pipelines.machines import sampler
from laurel.pipelines.template import compiled, constant
from laurel.stages import merge_agents, propose, train_agents
from laurel.stages.merge_agents import Branch
from laurel.stages.pipeline import STAGE
from laurel.stages.proposal_rounds import ProposalRounds, branches_beside
from laurel.training.arms import Part
from tiny_project import Project, lasting_content

ACTOR = {
    "n_envs": 32,
    "n_steps": 3,
    "shards": 2,
    "imitation_share": 1.0,
    "critic": "table",
    "proposals": 4,
    "learning_rate": 2e-3,
}
"""A round is 96 steps."""
CONTENT: dict[str, Any] = {
    "tracking.enabled": False,
    "env": {
        "id": "laurel/GridWorld-v0",
        "kwargs": {
            **{"size": 2, "goal": [1, 1], "actions": "sequence", "max_moves": 2, "slip": 0.2},
            "max_episode_steps": 2,
        },
    },
    "collect": {"steps": 200, "n_envs": 4},
    "arms": {
        "lm": {"reward": {}, "label": "no reward", "agent": {"algorithm": "language_model", "language_model": ACTOR}},
        "random_policy": None,
    },
    "agent": {"seeds": [0], "steps": 2 * 96},
    "evaluate": {"episodes": 2, "n_envs": 2, "bootstrap": 20, "animation_steps": 0},
}


def params(arms: dict[str, Any], seeds: tuple[int, ...] = (0, 1), **sections: Any) -> Params:
    agent = {"seeds": seeds, "steps": 3 * 96, "algorithm": "language_model", "language_model": ACTOR}
    return parse_params(
        {**{name: CONTENT[name] for name in ("env", "collect")}, "agent": agent, "arms": arms, **sections}, "params"
    )


def own(**settings: Any) -> dict[str, Any]:
    return {"other": {"reward": None, "agent": {"language_model": settings}}}


LM, PPO = {"reward": None}, {"reward": None, "agent": {"algorithm": "ppo"}}


def test_the_graph() -> None:
    both = params({"lm": LM, "ppo": PPO})
    rounds = ProposalRounds.of(both)
    assert rounds is not None
    assert ([str(agent) for agent in rounds.agents], rounds.first, rounds.rounds) == (["lm 0", "lm 1"], 1, 3)
    spec = compiled(both, "image")
    written = constant(spec, "plan", "rounds")
    table = estimate(spec, both, branches_beside(both, written, 0), region=None).splitlines()
    counts = {row.split()[0]: row.split()[1] for row in table if row}
    assert {name: counts[name] for name in ("train-agents", "train-round", "propose", "merge-agents")} == {
        "train-agents": "1", "train-round": "6", "propose": "8", "merge-agents": "1",
    }  # fmt: skip
    assert [str(branch) for branch in branches_beside(both, written, 0)] == ["ppo 0,1"]
    assert [branch.arm for branch in branches_beside(both, "", 0)] == ["lm", "ppo"], "a graph without rounds takes any"

    alone = params({"lm": LM, "random_policy": None})
    spec = compiled(alone, "image")
    assert branches_beside(alone, constant(spec, "plan", "rounds"), 0) == []
    assert "train-agents" not in {row.split()[0] for row in estimate(spec, alone, [], region=None).splitlines() if row}
    with pytest.raises(ParamsError, match=r"The pipeline was compiled with agents, rounds or shards of .* Compile it"):
        branches_beside(params({"lm": LM}, seeds=(0,)), json.dumps(rounds.write()), 0)
    assert ProposalRounds.of(params({"ppo": PPO})) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (own(n_steps=1), "The arms lm, other have .* but differ in rounds"),
        ({"lm": own(n_envs=2, n_steps=4)["other"]}, "lm would be trained in 36 rounds, but at most 32"),
    ],
)
def test_invalid_proposal_rounds_are_refused(
    tmp_path: Path, changes: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = params({"lm": LM, **changes})
    with pytest.raises(ParamsError, match=sentence):
        ProposalRounds.of(refused)
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps(refused.dump()))
    assert main(["pipeline", "compile", "-o", str(tmp_path / "p.yaml"), "--params", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_task_that_samples_has_one_accelerator() -> None:
    resources = {"train-agents": {"accelerator": "L4", "accelerators": 4}}
    four = params({"lm": LM}, pipeline={"resources": resources})
    assert (sampler(four).accelerator, sampler(four).accelerators) == ("L4", 1)
    served = {"model": "owner/model", "serve": {}}
    assert sampler(params(own(**served), pipeline={"resources": resources})).accelerators == 4


def test_rounds_from_files_are_the_stage(tmp_path: Path) -> None:
    """As tasks of the graph call them, with lineage: the result has the same manifest."""
    project = Project.create(tmp_path / "p", CONTENT)
    project.run("collect", "caption", "annotate", "train-reward", "train-agents")
    every, inputs = STAGE["train-agents"].given(project.params), project.inputs("train-agents")
    given = Branch("lm", (0,)).narrow(every)
    first, proposals, last = tmp_path / "first", [tmp_path / "1", tmp_path / "0"], tmp_path / "last"
    train_agents.run(**given, **inputs, output=first, part=Part(1))
    for path in proposals:
        propose.run(first, path, int(path.name), **given)
    with pytest.raises(DataError, match="Missing: proposals of shard 1"):
        train_agents.run(**given, **inputs, output=last, part=Part(2, first, proposals[1:]))
    train_agents.run(**given, **inputs, output=last, part=Part(2, first, proposals))
    merge_agents.run(**every, **inputs, shards=[last], output=tmp_path / "agents")
    assert lasting_content(tmp_path / "agents") == lasting_content(project.output("train-agents"))
    with pytest.raises(DataError, match='holds the output of "train-agents-part", but that of "train-agents" is'):
        STAGE["evaluate"].run(project.params, **{**project.inputs("evaluate"), "agents": first}, output=tmp_path / "r")


@pytest.mark.slow
def test_the_run_gives_the_same_agents(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", CONTENT)
    project.run()
    done = project.laurel("pipeline", "run", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "propose lm 0 round 2 shard 1: done (" in done.stderr
    (packed,) = (project.path / "out" / "steps").glob("*/merge-agents/agents")
    merged = shutil.copytree(packed, tmp_path / "merged")
    shutil.unpack_archive(merged / "files.zip", merged)
    (merged / "files.zip").unlink()
    whole = project.output("train-agents")
    assert lasting(merged) == lasting(whole)
    assert lasting_content(merged) == lasting_content(whole)
    reports = [project.output("evaluate"), project.path / "out" / "reports"]
    assert len({(path / "metrics.json").read_text() for path in reports}) == 1
