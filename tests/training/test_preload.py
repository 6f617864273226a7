"""What worker processes are to find imported is what they import."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from laurel.params import EnvParams
from laurel.training.preload import Work, preload

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


@pytest.mark.parametrize("work", get_args(Work))
def test_workers_have_nothing_left_to_import(work: Work) -> None:
    modules = ",".join(preload(work, EnvParams(id="CartPole-v1")))
    script = AFTER.format(work=WORK[work])
    done = subprocess.run([sys.executable, "-c", script, modules], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
