"""Stages import what they use: not what other stages, methods or algorithms need, and not once for each worker.

As the packaged params have it: each of these imports costs a run up to some processor seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from laurel.stages.pipeline import STAGES
from tiny_project import UNTRACKED, Project

SPY = """
import os, sys

FIRST = os.getpid()

def process():
    if os.getpid() == FIRST:
        return "server"
    return "films" if sys.modules["multiprocessing.process"].current_process().name == "films" else "worker"

class Spy:
    @staticmethod
    def find_spec(name, path=None, target=None):
        with open(os.environ["IMPORTED"], "a") as file:
            file.write(f"{process()} {name}\\n")

sys.meta_path.insert(0, Spy)
"""
"""Writes what a command, the server that its workers are forked from (neither is itself a fork) and workers import.

The process that makes the films is the only one of its kind: what it imports, no other has to."""
ARMS = ["extrinsic", "preference", "random_reward", "shuffled_labels", "oracle", "random_policy"]
NEVER = {"transformers", "torch._dynamo", "sympy", "sklearn", "stable_baselines3", "Box2D", "peft", "mlflow", "optuna"}
TRAINING = {"laurel.training.loop", "laurel.agents.learner", "laurel.agents.ppo"}
UNUSED = {
    "collect": {"torch", "scipy", *TRAINING},
    "caption": {"torch", "scipy", "matplotlib", "envpool", *TRAINING},
    "annotate": {"scipy.stats", "matplotlib", "envpool", *TRAINING},
    "train-reward": {"scipy.stats", "matplotlib", "envpool", *TRAINING},
    "train-agents": {"scipy.stats", "tokenizers", "laurel.training.sb3"},
    "evaluate": {"envpool", "tokenizers", "laurel.training.sb3"},
}
"""Stage -> what it does without, besides NEVER. MLflow, which tracked runs need, brings some of it along."""
SHARED = ("laurel.", "torch.", "pandas.", "numpy.", "scipy.", "pyarrow.", "safetensors")
"""What the names begin with of what workers find imported."""


class Imported(NamedTuple):
    """Names of modules."""

    anywhere: set[str]
    by_workers: set[str]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Imported]:
    """Run each stage as a command; return what its processes import."""
    root: Path = tmp_path_factory.mktemp("imports")
    (root / "sitecustomize.py").write_text(SPY)
    project = Project.create(root / "p", {**UNTRACKED, "arms": ARMS, "agent.seeds": [0], "collect.steps": 1000})
    return {stage.name: imported_by(project, stage.name, root) for stage in STAGES}


def imported_by(project: Project, command: str, root: Path) -> Imported:
    log = root / f"{command}.txt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IMPORTED", str(log))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        done = project.laurel(command)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    return Imported({name for _, name in lines}, {name for who, name in lines if who == "worker"})


@pytest.mark.parametrize("name", UNUSED)
def test_a_stage_imports_only_what_it_uses(imported: dict[str, Imported], name: str) -> None:
    anywhere = imported[name].anywhere
    assert {"numpy", "pyarrow", f"laurel.stages.{name.replace('-', '_')}"} <= anywhere, "imports are seen"
    assert anywhere & (NEVER | UNUSED[name]) == set()


def test_checks_before_a_stage_import_no_language_model(tmp_path: Path) -> None:
    """Every stage checks the whole run: its actors, and the judges of its rewards."""
    (tmp_path / "sitecustomize.py").write_text(SPY)
    (tmp_path / "config.json").write_text("{}")
    arms = {
        "lm": {"reward": None, "agent": {"actor": "language_model"}},
        "chat": {"reward": None, "agent": {"actor": "llm_policy"}},
        "hints": {"reward": "llm_hints"},
        "outcome": {"reward": "outcome"},
    }
    huggingface = {
        "annotate.annotator": "huggingface",
        "annotate.huggingface": {"model": str(tmp_path), "mode": "generate"},
    }
    env = {"env": {"id": "FrozenLake-v1"}, "rewards": {}, "agent.seeds": [0], "collect.steps": 100}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **env, **huggingface, "arms": arms})
    anywhere = imported_by(project, "collect", tmp_path).anywhere
    assert anywhere & {"torch", "transformers", "scipy", "mlflow"} == set()


def test_the_check_of_a_run_without_outputs_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SPY)
    anywhere = imported_by(Project.create(tmp_path / "p", {**UNTRACKED, "arms": ARMS}), "check", tmp_path).anywhere
    assert "laurel.stages.preflight" in anywhere, "imports are seen"
    assert anywhere & {"torch", "transformers", "mlflow"} == set()


@pytest.mark.parametrize("name", ["train-reward", "evaluate"])
def test_workers_import_nothing_that_the_next_one_needs_as_well(imported: dict[str, Imported], name: str) -> None:
    assert "laurel.agents.algorithms.ppo" in imported["train-agents"].by_workers, "a worker's imports are seen"
    assert sorted(module for module in imported[name].by_workers if module.startswith(SHARED)) == []
