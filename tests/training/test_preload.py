"""What worker processes are to find imported is what they import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from laurel.params import EnvParams, parse_params
from laurel.training.preload import Work, preload
from minimal_params import MINIMAL

GRID = {"id": "laurel/GridWorld-v0", "kwargs": {"size": 2, "goal": [1, 1], "max_episode_steps": 2}}
WORK = {
    "play": "import laurel.evaluation.play, laurel.agents.checkpoint; from laurel.agents.actors import checkpoint",
    "reward": "import laurel.rewards.stored, laurel.rewards.training, laurel.data.own_preferences",
    "train": "import laurel.training.arms, threadpoolctl",
}
"""Work of a process -> what it cannot do without."""
AFTER = """
import importlib, sys
for name in sys.argv[1].split(","):
    importlib.import_module(name)
before = set(sys.modules)
import laurel.cli.app, laurel.rewards.methods.shuffled_labels
import numpy, pyarrow, safetensors.numpy, safetensors.torch, torch
safetensors.torch.save(dict(weight=torch.ones(1)))
pyarrow.array([1]).fill_null(0).to_numpy()
{work}
print([name for name in sorted(set(sys.modules) - before) if not name.startswith("pyarrow.")])
"""

ACTED = """
import pathlib
from laurel.llm.causal import load_causal
from laurel.llm.tiny_model import write_tiny_model
local = load_causal(str(write_tiny_model(pathlib.Path(sys.argv[2]), ["left", "right"], width=16, heads=2)))
"""
TUNED = f"""{ACTED}
from laurel.llm.trl_tuning import Pair, Tuning, imitate, learn_from_pairs
imitate(local, [("go", "left")] * 2, Tuning(), 0)
learn_from_pairs(local, [Pair("go", "left", "right")] * 2, "dpo", Tuning(), 0)
"""
LANGUAGE_MODEL = {"algorithm": "language_model", "language_model": {"loss": "dpo"}}
SB3 = {"engine": "sb3", "sb3": {"algorithm": "DQN"}}
LEARNED = "import stable_baselines3; torch.optim.Adam([torch.zeros(1, requires_grad=True)])"
LARGE = {"transformers", "trl", "peft", "datasets", "sympy", "scipy", "accelerate", "stable_baselines3"}
"""Packages that take long to import."""


@pytest.mark.parametrize(
    ("work", "agent", "code"),
    [
        ("train", LANGUAGE_MODEL, TUNED),
        ("play", {"actor": "language_model"}, ACTED),
        ("play", SB3, LEARNED),
    ],
    ids=["tuned", "played", "sb3"],
)
def test_what_an_arm_needs_is_imported_before(work: Work, agent: dict[str, Any], code: str, tmp_path: Path) -> None:
    params = parse_params({**MINIMAL, "env": GRID, "arms": {"acting": {"reward": None, "agent": agent}}}, "a test")
    modules = ",".join(preload(work, params.env, params.resolved_arms.values()))
    command = [sys.executable, "-c", AFTER.format(work=code), modules, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert LARGE & {name.partition(".")[0] for name in ast.literal_eval(done.stdout)} == set()


@pytest.mark.parametrize("work", get_args(Work))
def test_workers_have_nothing_left_to_import(work: Work) -> None:
    modules = ",".join(preload(work, EnvParams(id="CartPole-v1")))
    script = AFTER.format(work=WORK[work])
    done = subprocess.run([sys.executable, "-c", script, modules], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
