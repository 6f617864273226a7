"""Every bandit agent, and plain loops that say what each is to learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laurel.agents.agent import Agent, Experience
from laurel.agents.bandits import UCB, BernoulliThompson, Cheater, GaussianThompson, Gradient, Random, RewardAveraging

Pulls = Sequence[tuple[int, float]]
"""Arm and reward of each pull of one run."""

AGENTS = {
    "random": lambda n_arms: Random(n_arms),
    "averaging": lambda n_arms: RewardAveraging(n_arms),
    "optimistic": lambda n_arms: RewardAveraging(n_arms, epsilon=0.0, optimism=5.0, step_size=0.1),
    "ucb": lambda n_arms: UCB(n_arms),
    "gradient": lambda n_arms: Gradient(n_arms),
    "gaussian_thompson": lambda n_arms: GaussianThompson(n_arms),
    "bernoulli_thompson": lambda n_arms: BernoulliThompson(n_arms),
    "cheater": lambda n_arms: Cheater(),
}


def show(agent: Agent, runs: Sequence[Pulls], valid: np.ndarray | None = None) -> None:
    """Show an agent the pulls of a run for each of its environments, whatever it would have done itself."""
    agent.reset(0, len(runs))
    nothing = np.zeros(len(runs), dtype=np.int64)
    never = np.zeros(len(runs), dtype=np.bool_)
    for t, pulls in enumerate(zip(*runs, strict=True)):
        arms, rewards = np.array([arm for arm, _ in pulls]), np.array([reward for _, reward in pulls])
        steps = np.ones(len(runs), dtype=np.bool_) if valid is None else valid[:, t]
        agent.observe(Experience(nothing, arms, rewards, nothing, never, never, steps))
