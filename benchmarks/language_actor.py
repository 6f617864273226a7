"""How well and how fast a tiny language model learns to act: greedy success from all 60 starts of a 4 x 4 grid.

A two-layer Llama with random weights writes lists of up to eight moves; one answer must lead to the goal. There is
one training for each loss and seed, on one thread; the first training of a process includes the import of TRL.
SmolLM2 is trained by --model smollm2 --losses simpo --seeds 1 --rounds 8 with the --settings in its record;
--ablations measures what single defaults contribute to SimPO. Run it with: python benchmarks/language_actor.py
"""

import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue
from record import ONE_THREAD, about, command_line, load_average, write

from laurel.agents.actor import View
from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import load_policy
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.agents.learner import PolicyNetwork
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.grid_world import GridWorld
from laurel.params import EnvParams
from laurel.params.language_actor import LanguageActorParams
from laurel.params.training import ShapingParams
from laurel.training.curve import read_rows
from laurel.training.loop import train
from laurel.training.task import Task

GRID: dict[str, JsonValue] = {
    "size": 4,
    "goal": [1, 1],
    "heading": True,
    "actions": "sequence",
    "max_moves": 8,
    "slip": 0.0,
}
TARGET, TARGET_OF_OTHERS, TARGET_OF_SMOLLM2 = 0.95, 0.9, 0.8
SECONDS = {"tiny": 60, "smollm2": 30 * 60}
"""Maximum CPU seconds of a training, so that other work on the core does not count."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "gamma 0": {"gamma": 0.0},
    "imitation_share 1": {"imitation_share": 1.0},
    "anneal false": {"anneal": False},
    "imitation 0.1": {"imitation": 0.1},
}
"""Changes of a single default; with gamma 0 answers to a state are ranked by their reward alone."""


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--losses", nargs="+", default=["simpo", "dpo", "kto"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first of the seeds")
    parser.add_argument("--rounds", type=int, default=12, help="the random first one among them")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, each on one thread")
    parser.add_argument("--settings", type=json.loads, default={}, help="others of agent.language_model, as JSON")
    parser.add_argument("--ablations", action="store_true", help="train with each of the ABLATIONS, by SimPO")
    options = parser.parse_args()
    load = f"{load_average()} before the run"
    if options.ablations:
        ablations(options.seeds, options.rounds, options.jobs, load)
        return
    wanted = [
        (options.model, loss, seed, options.rounds, options.settings)
        for loss in options.losses
        for seed in range(options.first, options.first + options.seeds)
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        runs = list(pool.map(trained, *zip(*wanted, strict=True)))
    means = {loss: float(np.mean([run["success"] for run in runs if run["loss"] == loss])) for loss in options.losses}
    value, others = means[options.losses[0]], [means[loss] for loss in options.losses[1:]]
    target = TARGET if options.model == "tiny" else TARGET_OF_SMOLLM2
    longest = {loss: max(run["cpu_seconds"] for run in runs if run["loss"] == loss) for loss in options.losses}
    limit = SECONDS.get(options.model, SECONDS["smollm2"])
    in_time = max(longest.values()) <= limit
    met = value >= target and in_time and all(mean >= TARGET_OF_OTHERS for mean in others)
    told = ", ".join(f"{loss} {mean:.2f} in {longest[loss]:.0f} s at most" for loss, mean in means.items())
    explanation = {} if met else {"why": f"by loss: {told}"}
    write(
        "language_actor" if options.model == "tiny" else f"language_actor_{Path(options.model).name}",
        {
            "value": round(value, 3),
            "unit": f"share of 60 starts solved by one answer after training by {options.losses[0]}, mean over seeds",
            "target": f">= {target}"
            + (f", other losses >= {TARGET_OF_OTHERS}" if others else "")
            + f"; each training in {limit} s of a core",
            "met": met,
            "peer": "; ".join(
                [
                    *([f"the same of {', '.join(options.losses[1:])}"] if others else []),
                    "seconds of a core that the longest training took by each loss",
                ]
            ),
            "peer_value": [*(round(mean, 3) for mean in others), list(longest.values())],
            "runs": runs,
            **explanation,
        },
        about("torch", "transformers", "trl", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def ablations(seeds: int, rounds: int, jobs: int, load: str) -> None:
    """Train with all defaults and without single ones; write the success of each."""
    variants = {"defaults": {}, **ABLATIONS}
    wanted = [("tiny", "simpo", seed, rounds, changed) for changed in variants.values() for seed in range(seeds)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        runs = list(pool.map(trained, *zip(*wanted, strict=True)))
    by_variant = {name: runs[place * seeds : (place + 1) * seeds] for place, name in enumerate(variants)}
    means = {
        name: round(float(np.mean([run["success"] for run in variant_runs])), 3)
        for name, variant_runs in by_variant.items()
    }
    write(
        "language_actor_ablations",
        {
            "value": means.pop("defaults"),
            "unit": "share of 60 starts solved by one answer after training by simpo with defaults, mean over seeds",
            "target": "-",
            "met": None,
            "peer": "the same with one default changed",
            "peer_value": means,
            "runs": [{"changed": name, **run} for name, variant_runs in by_variant.items() for run in variant_runs],
        },
        about("torch", "transformers", "trl", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def trained(model: str, loss: str, seed: int, rounds: int, chosen: dict[str, Any]) -> dict[str, Any]:
    """Train an actor; return from how many starts it reaches the goal, and what that took."""
    torch.set_num_threads(1)
    env = EnvParams(id="laurel/GridWorld-v0", kwargs={**GRID, "max_episode_steps": 1})
    adapter = adapter_for(env)
    settings = LanguageActorParams.model_validate({"model": model, "loss": loss, **chosen})
    update_steps = settings.n_envs * settings.n_steps
    task = Task(loss, seed, 0, env, settings, ShapingParams(), rounds * update_steps, checkpoint_steps=update_steps)
    untrained = success_of(initial_policy(adapter, settings, 0, seed), adapter)
    imitated, aside, done = 0.0, [0.0, 0.0], 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "agent")

        def follow(steps: int) -> None:
            """Try the model when its random rounds are over; that takes no time of the training."""
            nonlocal imitated, done
            done += steps
            show(folder, steps)
            if steps and done == settings.imitation_rounds * update_steps:
                begun = clocks()
                imitated = success_of(load_policy(folder), adapter)
                aside[:] = [end - start for end, start in zip(clocks(), begun, strict=True)]

        started = clocks()
        train(task, adapter, None, folder, follow)
        spent = [end - start - excluded for end, start, excluded in zip(clocks(), started, aside, strict=True)]
        policy, curve = load_policy(folder), read_rows(folder)
    assert isinstance(policy, LanguageModelPolicy)
    found = {
        "loss": loss,
        "seed": seed,
        **from_every_start(policy, adapter),
        "success_before": untrained,
        "success_after_imitation": imitated,
        **dict(zip(("seconds", "cpu_seconds"), spent, strict=True)),
    }
    run = {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}
    run["sampled"] = [row["success_rate"] and round(row["success_rate"], 3) for row in curve]
    return run


def clocks() -> tuple[float, float]:
    """Return the time of the clock and of this process's core, in seconds."""
    return time.perf_counter(), time.process_time()


def success_of(policy: PolicyNetwork, adapter: EnvAdapter) -> float:
    """Return the share of starts from which the likeliest answer reaches the goal."""
    assert isinstance(policy, LanguageModelPolicy)
    return float(from_every_start(policy, adapter)["success"])


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
    shortest, solved, surplus = world.moves_to_goal(), [], []
    for start, proposal in zip(starts.tolist(), proposals, strict=True):
        world.reset(seed=0, options={"state": start})
        taken = 0
        for taken, move in enumerate(proposal.moves or (), 1):
            if world.step(np.int64(move))[2]:
                solved.append(start)
                surplus.append(taken - int(shortest[start]))
                break
    unread = sum(proposal.moves is None for proposal in proposals)
    return {
        "success": len(solved) / len(starts),
        "moves_over_shortest": float(np.mean(surplus)) if surplus else None,
        "tokens": float(np.mean([proposal.tokens for proposal in proposals])),
        "parse_rate": 1 - unread / len(starts),
    }


if __name__ == "__main__":
    main()
