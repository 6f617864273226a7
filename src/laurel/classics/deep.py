"""`laurel classics deep`: deep agents learn tasks that show what each is for; a figure and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.classics.lessons import save
from laurel.data.directory import write_json
from laurel.envs import EnvAdapter, make_reference
from laurel.envs.builtin import CATCH, POSITION_ONLY
from laurel.envs.vector import make_vector
from laurel.evaluation.intervals import Floats
from laurel.evaluation.reward_curves import draw_rewards, mean_over_runs, moving_average
from laurel.evaluation.style import MUTED, drawing
from laurel.evaluation.summary import markdown
from laurel.params import EnvParams
from laurel.params.algorithms import A2CParams, AlgorithmParams, DQNParams, PPOParams, ReinforceParams
from laurel.seeding import derive_seed, generator

GRID = 1_000
"""Steps between two points of a curve."""
LAST = 10
"""Points at the end of a run that the table speaks of."""

CARTPOLE: dict[str, Any] = {"n_epochs": 10, "gamma": 0.98, "gae_lambda": 0.8, "entropy_coef": 0.0}
"""PPO's settings in RL Baselines3 Zoo for CartPole-v1."""
PENDULUM: dict[str, Any] = {"n_epochs": 10, "gamma": 0.9, "gae_lambda": 0.95, "entropy_coef": 0.0}
"""PPO's settings in RL Baselines3 Zoo for Pendulum-v1."""


@dataclass(frozen=True, slots=True)
class Task:
    """What agents learn, and how it is shown."""

    title: str
    env_id: str
    agents: Mapping[str, AlgorithmParams]
    steps: int
    """Of each run."""
    limits: tuple[float, float]
    """Lowest return that is drawn, and the best that there can be."""
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
        steps=100_000,
        limits=(0, 500),
        goal=475,
    ),
    Task(
        "CartPole, velocities hidden",
        POSITION_ONLY,
        {"recurrent PPO": PPOParams(recurrent=True, **CARTPOLE), "plain PPO": PPOParams(**CARTPOLE)},
        steps=100_000,
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
    import torch

    torch.set_num_threads(1)  # sums keep their order
    found, tables = {}, []
    with drawing(11.5, 6.6) as figure:
        for axes, task in zip(figure.subplots(2, 2).flat, TASKS, strict=True):
            returns = np.array(
                [
                    [_learn(task, settings, derive_seed(seed, task.title, name, run)) for run in range(n_runs)]
                    for name, settings in task.agents.items()
                ]
            )
            label = "environment steps, in thousands"
            draw_rewards(axes, returns, list(task.agents), 5, title=f"{task.title}: return", xlabel=label)
            low, best = task.limits
            axes.set_ylim(low, best + 0.04 * (best - low))  # intervals of a few runs reach beyond what can be
            axes.axhline(best, color=MUTED, lw=1.0, ls=(0, (3, 2)))
            records = {
                name: {"algorithm": settings.model_dump(mode="json"), **_figures(of_agent, task)}
                for (name, settings), of_agent in zip(task.agents.items(), returns, strict=True)
            }
            found[task.title] = {"env": task.env_id, "steps": task.steps, "goal": task.goal, "agents": records}
            head = (task.title, f"return, last {LAST * GRID:,} steps", f"steps to {task.goal:g}, median")
            tables.append(markdown(head, [(name, *in_words(record)) for name, record in records.items()]))
        save(figure, output / "deep.png")
    write_json(output / "deep.json", {"runs": n_runs, "seed": seed, "tasks": found})
    return "\n\n".join(tables)


def in_words(record: Mapping[str, Any]) -> tuple[str, str]:
    """Say an agent's figures as they stand in `deep.json`: its return in the end, and when it had learned the task."""
    mean, half = record["return"]["mean"], record["return"]["half_of_ci95"]
    form = ".2f" if abs(mean) <= 1 else ".0f"
    reached = record["steps_to_goal"]
    median = "not reached" if reached["median"] is None else f"{reached['median']:,.0f}"
    spread = "" if half is None else f" ± {half:{form}}"
    return f"{mean:{form}}{spread}", f"{median} ({reached['runs']} of {reached['of']})"


def _learn(task: Task, settings: AlgorithmParams, seed: int) -> Floats:
    """Train an agent; return the mean return of the episodes that ended in each GRID steps, or of those before."""
    env = EnvParams(id=task.env_id)
    reference = make_reference(env)
    adapter = EnvAdapter(task.env_id, reference.observation_space, reference.action_space)  # captions are not used
    reference.close()
    learner = make_learner(initial_policy(adapter, settings, seed, 0), settings, generator(seed, "actions"))
    envs = make_vector(env, adapter, settings.n_envs, derive_seed(seed, "envs"))
    observation, rollout = envs.reset(), learner.rollout(envs)
    running = np.zeros(settings.n_envs)
    per_update = settings.n_envs * settings.n_steps
    updates = -(-task.steps // per_update)
    ended: list[list[float]] = [[] for _ in range(task.steps // GRID)]
    for update in range(updates):
        learner.schedule(update / updates)
        observation = learner.collect(envs, observation, rollout)
        learner.learn(rollout)
        for t in range(settings.n_steps):
            running += rollout.extrinsic[t]
            over = rollout.terminated[t] | rollout.truncated[t]
            step = update * per_update + (t + 1) * settings.n_envs
            ended[min(step // GRID, len(ended) - 1)] += running[over].tolist()
            running[over] = 0
    envs.close()
    curve = np.array([np.mean(returns) if returns else np.nan for returns in ended])
    known = np.flatnonzero(np.isfinite(curve))  # before the first, it is that one
    before = np.searchsorted(known, np.arange(len(curve)), side="right") - 1
    return curve[known[before.clip(min=0)]]


def _figures(curves: Floats, task: Task) -> dict[str, Any]:
    """Summarise an agent's curves (runs, points): the return in the end, and the steps to the goal.

    The goal is reached where the mean of the last few points is; a point alone may be a single lucky episode.
    """
    estimate = mean_over_runs(curves[:, -LAST:].mean(axis=1))
    half = None if estimate.interval is None else float(estimate.interval[1] - estimate.mean)
    reached = moving_average(curves, LAST) >= task.goal
    steps = np.where(reached.any(axis=1), (reached.argmax(axis=1) + 1) * GRID, np.inf)
    median = float(np.median(steps))
    return {
        "return": {"mean": float(estimate.mean), "half_of_ci95": half},
        "steps_to_goal": {
            "median": median if np.isfinite(median) else None,
            "runs": int(reached.any(axis=1).sum()),
            "of": len(curves),
        },
    }
