"""What worker processes are to find imported is what they import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

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


TUNED = """
from laurel.llm.causal import load_causal
from laurel.llm.tiny_model import write_tiny_model
from laurel.llm.trl_tuning import Pair, Tuning, imitate, learn_from_pairs
local = load_causal(str(write_tiny_model(pathlib.Path(sys.argv[2]), ["left", "right"], width=16, heads=2)))
if sys.argv[3] == "train":
    imitate(local, [("go", "left")] * 2, Tuning(), 0)
    learn_from_pairs(local, [Pair("go", "left", "right")] * 2, "dpo", Tuning(), 0)
"""


@pytest.mark.parametrize("work", ["train", "play"])
def test_language_models_are_imported_by_the_server(work: Work, tmp_path: Path) -> None:
    arm = {"reward": None, "agent": {"algorithm": "language_model", "language_model": {"loss": "dpo"}}}
    base = {"reward": None, "agent": {"actor": "language_model"}}
    params = parse_params(
        {**MINIMAL, "env": GRID, "arms": {"lm": arm} if work == "train" else {"base": base}}, "a test"
    )
    modules = ",".join(preload(work, params.env, params.resolved_arms.values()))
    script = AFTER.format(work=f"import pathlib{TUNED}")
    command = [sys.executable, "-c", script, modules, str(tmp_path), work]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    left = {name.split(".")[0] for name in ast.literal_eval(done.stdout)}
    assert left & {"transformers", "trl", "peft", "datasets", "sympy", "scipy", "accelerate"} == set()


@pytest.mark.parametrize("work", get_args(Work))
def test_workers_have_nothing_left_to_import(work: Work) -> None:
    modules = ",".join(preload(work, EnvParams(id="CartPole-v1")))
    script = AFTER.format(work=WORK[work])
    done = subprocess.run([sys.executable, "-c", script, modules], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
