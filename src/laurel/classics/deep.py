"""`laurel classics deep`: deep RL agents on tasks that show the strength of each; a figure and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.episodes import WINDOW, Episodes
from laurel.arrays import DoubleArray
from laurel.classics.lessons import save
from laurel.data.json_file import write_json
from laurel.data.written import written_whole
from laurel.envs import EnvAdapter, make_reference
from laurel.envs.builtin import CATCH, POSITION_ONLY
from laurel.envs.vector import make_vector
from laurel.evaluation.formats import markdown
from laurel.evaluation.reward_curves import draw_rewards, mean_over_runs
from laurel.evaluation.style import MUTED, drawing
from laurel.params import EnvParams
from laurel.params.algorithms import A2CParams, AlgorithmParams, DQNParams, PPOParams, ReinforceParams
from laurel.seeding import derive_seed, generator

GRID = 1_000
"""Steps between two points of a curve."""

CARTPOLE: dict[str, Any] = {"n_epochs": 10, "gamma": 0.98, "gae_lambda": 0.8, "entropy_coef": 0.0}
"""Of PPO's settings in RL Baselines3 Zoo for CartPole-v1 those of returns and entropy; the Zoo has 20 epochs."""
PENDULUM: dict[str, Any] = {"n_epochs": 10, "gamma": 0.9, "gae_lambda": 0.95, "entropy_coef": 0.0}
"""The same of those for Pendulum-v1, with their number of epochs."""


@dataclass(frozen=True, slots=True)
class Task:
    """An environment, the agents that learn it, and the limits of its figure."""

    title: str
    env_id: str
    agents: Mapping[str, AlgorithmParams]
    steps: int
    """Environment steps of each run."""
    limits: tuple[float, float]
    """Lowest return that is drawn, and the highest possible one."""
    goal: float
    """Return from which the task counts as learned."""


TASKS = (
    Task(
        "CartPole",
        "CartPole-v1",
        {
            "PPO": PPOParams(**CARTPOLE),
            "A2C": A2CParams(),
            "REINFORCE": ReinforceParams(),
            "DQN": DQNParams(),
        },
        steps=150_000,
        limits=(0, 500),
        goal=475,
    ),
    Task(
        "CartPole, velocities hidden",
        POSITION_ONLY,
        {"recurrent PPO": PPOParams(recurrent=True, **CARTPOLE), "plain PPO": PPOParams(**CARTPOLE)},
        steps=150_000,
        limits=(0, 500),
        goal=195,
    ),
    Task(
        "Pendulum, continuous",
        "Pendulum-v1",
        {"Gaussian PPO": PPOParams(n_envs=16, n_steps=128, batch_size=256, anneal=True, **PENDULUM)},
        steps=200_000,
        limits=(-1500, 0),
        goal=-250,
    ),
    Task(
        "Catch, from pixels",
        CATCH,
        {"PPO with filters": PPOParams(network="cnn", n_envs=16), "PPO without": PPOParams(network="mlp", n_envs=16)},
        steps=30_000,
        limits=(-1, 1),
        goal=0.95,
    ),
)


def show_deep(output: Path, *, n_runs: int, seed: int) -> str:
    """Train the deep agents on their tasks; write `deep.png` and `deep.json` and return a table of each."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)  # keeps the order of summation fixed
    by_title, tables = {}, []
    with drawing(11.5, 6.6) as figure, threadpool_limits(1, user_api="blas"):
        for axes, task in zip(figure.subplots(2, 2).flat, TASKS, strict=True):
            returns = np.array(
                [
                    [_learn(task, settings, derive_seed(seed, task.title, name, run)) for run in range(n_runs)]
                    for name, settings in task.agents.items()
                ]
            )
            label = "environment steps, in thousands"
            draw_rewards(axes, returns, list(task.agents), None, title=f"{task.title}: return", xlabel=label)
            low, best = task.limits
            axes.set_ylim(low, best + 0.04 * (best - low))  # intervals of a few runs go beyond possible returns
            axes.axhline(best, color=MUTED, lw=1.0, ls=(0, (3, 2)))
            records = {
                name: {"algorithm": settings.model_dump(mode="json"), **_figures(of_agent, task)}
                for (name, settings), of_agent in zip(task.agents.items(), returns, strict=True)
            }
            by_title[task.title] = {"env": task.env_id, "steps": task.steps, "goal": task.goal, "agents": records}
            head = (task.title, f"return, last {WINDOW} episodes", f"steps to {task.goal:g}, median")
            tables.append(markdown(head, [(name, *in_words(record)) for name, record in records.items()]))
        save(figure, output / "deep.png")
    with written_whole(output / "deep.json") as partial:
        write_json(partial, {"runs": n_runs, "seed": seed, "tasks": by_title})
    return "\n\n".join(tables)


def in_words(record: Mapping[str, Any]) -> tuple[str, str]:
    """Format an agent's figures from `deep.json`: its final return, and the steps until it had learned the task.

    >>> in_words({
    ...     "return": {"mean": -0.003, "half_of_ci95": 0.1}, "steps_to_goal": {"median": 9000.0, "runs": 3, "of": 5}
    ... })
    ('0.00 ± 0.10', '9,000 (3 of 5)')
    """
    mean, half = record["return"]["mean"], record["return"]["half_of_ci95"]
    reached = record["steps_to_goal"]
    median = "not reached" if reached["median"] is None else f"{reached['median']:,.0f}"
    steps = f"{median} ({reached['runs']} of {reached['of']})"
    if mean is None:
        return "too few episodes", steps
    form = "z.2f" if abs(mean) <= 1 else "z.0f"  # z: not -0.00
    spread = "" if half is None else f" ± {half:{form}}"
    return f"{mean:{form}}{spread}", steps


def _learn(task: Task, settings: AlgorithmParams, seed: int) -> DoubleArray:
    """Train an agent; return the mean return of `Episodes` at every GRID steps, NaN before there are enough."""
    env = EnvParams(id=task.env_id)
    reference = make_reference(env)
    adapter = EnvAdapter(task.env_id, reference.observation_space, reference.action_space)  # captions are not used
    reference.close()
    learner = make_learner(initial_policy(adapter, settings, seed, 0), settings, generator(seed, "actions"))
    envs = make_vector(env, adapter, settings.n_envs, derive_seed(seed, "envs"))
    observation, rollout = envs.reset(), learner.rollout(envs)
    episodes = Episodes(adapter, settings.n_envs)
    per_update = settings.n_envs * settings.n_steps
    updates = -(-task.steps // per_update)
    curve = np.full(task.steps // GRID, np.nan)
    for update in range(updates):
        learner.schedule(update / updates)
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
        episodes.follow(rollout)
        mean = episodes.figures()["return_mean"]
        if mean is not None:
            curve[-(-(update + 1) * per_update // GRID) - 1 :] = mean  # the last update before each point
    envs.close()
    return curve


def _figures(curves: DoubleArray, task: Task) -> dict[str, Any]:
    """Summarise an agent's curves (runs, points): the final return, and the steps to the goal."""
    estimate = mean_over_runs(curves[:, -1])
    mean = float(estimate.mean) if np.isfinite(estimate.mean) else None
    half = None if mean is None or estimate.interval is None else float(estimate.interval[1] - mean)
    reached = curves >= task.goal
    steps = np.where(reached.any(axis=1), (reached.argmax(axis=1) + 1) * GRID, np.inf)
    median = float(np.median(steps))
    return {
        "return": {"mean": mean, "half_of_ci95": half},
        "steps_to_goal": {
            "median": median if np.isfinite(median) else None,
            "runs": int(reached.any(axis=1).sum()),
            "of": len(curves),
        },
    }
