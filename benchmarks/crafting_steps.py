"""Steps per second of laurel/Crafting-v0 with random actions, compared with Crafter, which renders an image of each
step.

Each runs in one process, in turns. Crafter's resets are timed separately; Laurel's are part of its steps. Run it
with: python benchmarks/crafting_steps.py
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from record import about, command_line, load_average, write

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from environment import peer_python

import laurel.envs.builtin  # noqa: F401  registers it

TARGET = 20_000
N_ENVS = 64
CRAFTER = "crafter==1.8.3"


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="of all environments at once (default: 2000)")
    parser.add_argument("--peer-steps", type=int, default=1000, help="of Crafter (default: 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="of both, in turns (default: 3)")
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    python = peer_python("crafter", (CRAFTER, "numpy<2.3", "setuptools<81"))
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(_rate(arguments.steps))
        peer = [str(python), "benchmarks/peers/crafter_steps.py", str(arguments.peer_steps)]
        theirs.append(json.loads(subprocess.run(peer, check=True, capture_output=True, text=True).stdout))  # noqa: S603
    rate = float(np.median(ours))
    peer_rate = float(np.median([run["steps_a_second"] for run in theirs]))
    found: dict[str, Any] = {
        "value": round(rate),
        "unit": f"steps/s of laurel/Crafting-v0, {N_ENVS} worlds in one process, resets included",
        "target": f">= {TARGET:,}",
        "met": rate >= TARGET,
        "peer": "steps/s of Crafter 1.8.3, without resets; its seconds per reset; speed-up over it",
        "peer_value": [
            round(peer_rate),
            round(float(np.median([run["reset_seconds"] for run in theirs])), 2),
            round(rate / peer_rate),
        ],
    }
    write("crafting_steps", found, about("numpy", "gymnasium", "laurel-rl", remarks=(load,), crafter="1.8.3"))


def _rate(steps: int) -> float:
    """Return the steps a second of all worlds together; a row that only resets a world takes time and is no step."""
    envs = gym.make_vec("laurel/Crafting-v0", num_envs=N_ENVS, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 17, (steps, N_ENVS))
    resets, done, begun = 0, np.zeros(N_ENVS, np.bool_), time.perf_counter()
    for action in actions:
        resets += int(done.sum())
        _, _, terminated, truncated, _ = envs.step(action)
        done = terminated | truncated
    return (actions.size - resets) / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
