"""How well and how fast a tiny language model learns to act: greedy success from all 60 starts of a 4 x 4 grid.

A Llama of two layers with random weights writes lists of up to eight moves; one answer must lead to the goal.
One training for each loss and seed, on one thread; the time holds the imports of TRL. SmolLM2 is trained by --model
smollm2 --losses simpo --seeds 1 --rounds 8 with the --settings that its record names as its command.
Run it with: python benchmarks/language_actor.py
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import ONE_THREAD, about, command_line, load_average, write

from laurel.agents.actor import View
from laurel.agents.checkpoint import load_policy
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.grid_world import GridWorld
from laurel.params import EnvParams
from laurel.params.language_actor import LanguageActorParams
from laurel.params.training import ShapingParams
from laurel.training.curve import read_rows
from laurel.training.loop import train
from laurel.training.task import Task

GRID = {"size": 4, "goal": [1, 1], "heading": True, "actions": "sequence", "max_moves": 8, "slip": 0.0}
TARGET, TARGET_OF_OTHERS, TARGET_OF_SMOLLM2 = 0.95, 0.9, 0.8
MINUTES = 30
"""Of a core, for SmolLM2; whether others need it at the same time does not count."""


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--losses", nargs="+", default=["simpo", "dpo", "kto"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=12, help="the random first one among them")
    parser.add_argument("--settings", type=json.loads, default={}, help="others of agent.language_model, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = f"{load_average()} before the run"
    env = EnvParams(id="laurel/GridWorld-v0", kwargs={**GRID, "max_episode_steps": 1})
    adapter, runs = adapter_for(env), []
    for loss in options.losses:
        for seed in range(options.seeds):
            settings = LanguageActorParams.model_validate({"model": options.model, "loss": loss, **options.settings})
            steps = options.rounds * settings.n_envs * settings.n_steps
            each = steps if options.model == "tiny" else steps // options.rounds
            task = Task(loss, seed, 0, env, settings, ShapingParams(), steps, checkpoint_steps=each)
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch, "agent")
                started, worked = time.perf_counter(), time.process_time()
                train(task, adapter, None, folder, partial(show, folder))
                spent = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked}
                policy, curve = load_policy(folder), read_rows(folder)
            assert isinstance(policy, LanguageModelPolicy)
            found = {"loss": loss, "seed": seed, **from_every_start(policy, adapter), **spent}
            runs.append({key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()})
            if each < steps:
                runs[-1]["sampled"] = [row["success_rate"] and round(row["success_rate"], 3) for row in curve]
    means = {loss: float(np.mean([run["success"] for run in runs if run["loss"] == loss])) for loss in options.losses}
    value, others = means[options.losses[0]], [means[loss] for loss in options.losses[1:]]
    target = TARGET if options.model == "tiny" else TARGET_OF_SMOLLM2
    in_time = options.model == "tiny" or all(run["cpu_seconds"] <= MINUTES * 60 for run in runs)
    met = value >= target and in_time and all(mean >= TARGET_OF_OTHERS for mean in others)
    why = {} if met else {"why": "by loss: " + ", ".join(f"{loss} {mean:.2f}" for loss, mean in means.items())}
    write(
        "language_actor" if options.model == "tiny" else f"language_actor_{Path(options.model).name}",
        {
            "value": round(value, 3),
            "unit": f"of 60 starts solved by one answer after training by {options.losses[0]}, mean over seeds",
            "target": f">= {target}"
            + (f", other losses >= {TARGET_OF_OTHERS}" if others else "")
            + ("" if options.model == "tiny" else f" in {MINUTES} minutes of a core"),
            "met": met,
            "peer": "the same of " + ", ".join(options.losses[1:]) if others else None,
            "peer_value": [round(mean, 3) for mean in others] or None,
            "runs": runs,
            **why,
        },
        about("torch", "transformers", "trl", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def show(folder: Path, _steps: int) -> None:
    """Write how far a training is, if it has come to its first checkpoint."""
    if folder.exists():
        rows = read_rows(folder)
        shown = ("success_rate", "policy", "examples", "alike", "tokens")
        figures = ", ".join(f"{name} {rows[-1][name]:.3g}" for name in shown if rows[-1].get(name) is not None)
        sys.stderr.write(f"round {len(rows)}, {time.process_time():.0f} s of a core: {figures}\n")


def from_every_start(policy: LanguageModelPolicy, adapter: EnvAdapter) -> dict[str, Any]:
    """Return the share of starts from which the likeliest answer reaches the goal, and moves over the shortest way."""
    world = GridWorld(**GRID)  # type: ignore[arg-type]
    starts = np.flatnonzero(world.initial_state_distrib)
    states = View(adapter, starts[:, None].astype(adapter.observation_dtype)).text
    proposals = policy.propose(adapter, states, np.random.default_rng(0), greedy=True)
    shortest, solved, more = world.moves_to_goal(), [], []
    for start, one in zip(starts.tolist(), proposals, strict=True):
        world.reset(seed=0, options={"state": start})
        taken = 0
        for taken, move in enumerate(one.moves or (), 1):
            if world.step(np.int64(move))[2]:
                solved.append(start)
                more.append(taken - int(shortest[start]))
                break
    unread = sum(one.moves is None for one in proposals)
    return {
        "success": len(solved) / len(starts),
        "moves_over_shortest": float(np.mean(more)) if more else None,
        "tokens": float(np.mean([one.tokens for one in proposals])),
        "parse_rate": 1 - unread / len(starts),
    }


if __name__ == "__main__":
    main()
