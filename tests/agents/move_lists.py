"""A language model that learns lists of moves in a grid of four squares, in seconds: what tests of it share."""

from __future__ import annotations

from typing import Any

import numpy as np

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.language_model.learner import LanguageModelLearner
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import VectorEnv, make_vector
from laurel.params import EnvParams
from laurel.params.language_actor import LanguageActorParams

GRID = EnvParams(
    id="laurel/GridWorld-v0",
    kwargs={"size": 2, "goal": [1, 1], "actions": "sequence", "max_moves": 2, "slip": 0.0, "max_episode_steps": 1},
)
SMALL: dict[str, Any] = {
    "n_envs": 256,
    "n_steps": 1,
    "imitation_share": 1.0,
    "critic": "table",
    "proposals": 4,
    "learning_rate": 2e-3,
}
"""Settings of `agent.language_model`."""


def begun(adapter: EnvAdapter, **settings: Any) -> tuple[LanguageModelLearner, VectorEnv]:
    params = LanguageActorParams.model_validate({**SMALL, **settings})
    learner = make_learner(initial_policy(adapter, params, 0, 0), params, np.random.default_rng(0))
    assert isinstance(learner, LanguageModelLearner)
    return learner, make_vector(GRID, adapter, params.n_envs, 0)


def paid(learner: LanguageModelLearner, envs: VectorEnv, rounds: int) -> list[float]:
    """Return the mean reward of each round; there is no update after the last."""
    rollout, found = learner.rollout(envs), []
    for number in range(rounds):
        envs.reset()
        learner.collect(envs, envs.reset(), rollout)
        found.append(float(rollout.extrinsic.mean()))
        if number + 1 < rounds:
            learner.learn(rollout)
    return found
