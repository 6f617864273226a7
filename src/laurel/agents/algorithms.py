"""Which algorithm goes with which settings: the policy it begins with, and its learner.

Knows nothing about how they learn.
"""

from __future__ import annotations

import numpy as np
import torch

from laurel.agents.learner import Learner, PolicyNetwork
from laurel.agents.policy import ActorCritic, make_network
from laurel.agents.stacked_ppo import StackedPPO
from laurel.envs.base import Room
from laurel.params.training import AlgorithmParams
from laurel.seeding import derive_seed


def initial_policy(room: Room, settings: AlgorithmParams, run_seed: int, seed: int) -> PolicyNetwork:
    """Return the policy that training with a seed begins with, the same for all arms.

    Raises:
        EnvError: the algorithm does not act in the environment's action space.
    """
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(run_seed, "agent", seed, "weights"))
        n_features = room.features(np.zeros((1, room.observation_size), dtype=room.observation_dtype)).shape[1]
        return make_network(n_features, room.action_space, settings.hidden)


def make_learner(policy: PolicyNetwork, settings: AlgorithmParams, rng: np.random.Generator) -> Learner:
    """Return the learner of an `initial_policy` with the same settings."""
    assert isinstance(policy, ActorCritic)
    return StackedPPO(policy, settings, rng)
