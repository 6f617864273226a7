"""The deep agents on show: each learns CartPole over a few seeds, is drawn, and is put into a table.

Puts learners and figures together; no algorithm lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.classics import estimated, save, table
from laurel.envs import room_for
from laurel.envs.vector import make_vector
from laurel.evaluation.reward_curves import draw_rewards, moving_average
from laurel.evaluation.style import MUTED, drawing
from laurel.params import EnvParams
from laurel.params.algorithms import A2CParams, DQNParams, ReinforceParams
from laurel.params.training import AlgorithmParams, PPOParams
from laurel.seeding import derive_seed, generator

ENV = EnvParams(id="CartPole-v1")
STEPS = 100_000
"""Of each run."""
GRID = 1_000
"""Steps between two points of a curve."""
BEST = 500.0
"""Return of an episode that lasts to its limit."""
LAST = 10
"""Points at the end of a run that the table speaks of."""


def show_deep(output: Path, *, n_runs: int, seed: int) -> str:
    """Train the deep agents on CartPole; write `deep.png` and return a table."""
    import torch

    torch.set_num_threads(1)  # sums keep their order
    agents = _agents()
    returns = np.array(
        [[_learn(settings, derive_seed(seed, name, run)) for run in range(n_runs)] for name, settings in agents.items()]
    )
    with drawing(7.6, 3.8) as figure:
        axes = figure.subplots()
        title, label = "CartPole: return of the episodes while learning", "environment steps, in thousands"
        draw_rewards(axes, returns, list(agents), 5, title=title, xlabel=label)
        axes.set_ylim(0, 1.04 * BEST)  # intervals of a few runs reach beyond what can be
        axes.axhline(BEST, color=MUTED, lw=1.0, ls=(0, (3, 2)))
        save(figure, output / "deep.png")
    rows = [
        (name, estimated(of_agent[:, -LAST:].mean(axis=1), ".0f"), _steps_to(of_agent))
        for name, of_agent in zip(agents, returns, strict=True)
    ]
    return table(("CartPole", f"return, last {LAST * GRID:,} steps", f"steps to {0.95 * BEST:.0f}, median"), rows)


def _agents() -> Mapping[str, AlgorithmParams]:
    """Return the algorithms with their own settings; PPO looks less far ahead, as RL Baselines3 Zoo has it here."""
    return {
        "PPO": PPOParams(n_epochs=10, gamma=0.98, gae_lambda=0.8, entropy_coef=0.0),
        "A2C": A2CParams(),
        "REINFORCE": ReinforceParams(),
        "DQN": DQNParams(),
    }


def _learn(settings: AlgorithmParams, seed: int) -> npt.NDArray[np.float64]:
    """Train an agent; return the mean return of the episodes that ended in each GRID steps, or of those before."""
    room = room_for(ENV)
    learner = make_learner(initial_policy(room, settings, seed, 0), settings, generator(seed, "actions"))
    envs = make_vector(ENV, room, settings.n_envs, derive_seed(seed, "envs"))
    observation, rollout = envs.reset(), learner.rollout(envs)
    running = np.zeros(settings.n_envs)
    per_update = settings.n_envs * settings.n_steps
    updates = -(-STEPS // per_update)
    ended: list[list[float]] = [[] for _ in range(STEPS // GRID)]
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
    curve, last = np.zeros(len(ended)), 0.0
    for i, returns in enumerate(ended):
        last = float(np.mean(returns)) if returns else last
        curve[i] = last
    return curve


def _steps_to(curves: npt.NDArray[np.float64]) -> str:
    """Say after how many steps curves (runs, points), averaged over the last few points, reach 95% of the best return.

    It is the median of the runs; a point alone may be a single lucky episode.
    """
    reached = moving_average(curves, LAST) >= 0.95 * BEST
    steps = np.where(reached.any(axis=1), (reached.argmax(axis=1) + 1) * GRID, np.inf)
    median = float(np.median(steps))
    count = f"{int(reached.any(axis=1).sum())} of {len(curves)}"
    return f"{median:,.0f} ({count})" if np.isfinite(median) else f"not reached ({count})"
