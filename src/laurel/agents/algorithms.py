"""Which algorithm goes with which settings: the policy it begins with, and its learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from laurel.agents.a2c import A2C
from laurel.agents.bandit_policy import Bandit, BanditPolicy, make_bandit_policy
from laurel.agents.dqn import DQN
from laurel.agents.images import SMALLEST, Image, ImageActorCritic, images_in
from laurel.agents.learner import Learner, PolicyNetwork
from laurel.agents.policy import ActorCritic, make_network
from laurel.agents.ppo import PPO
from laurel.agents.q_network import QNetwork, make_q_network
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.agents.recurrent_ppo import RecurrentPPO
from laurel.agents.reinforce import Reinforce
from laurel.agents.stacked_ppo import StackedPPO
from laurel.agents.table import Table, Tabular, make_table
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError
from laurel.params.algorithms import A2CParams, BanditParams, DQNParams, ReinforceParams, TabularParams
from laurel.params.training import AlgorithmParams, PPOParams
from laurel.seeding import derive_seed


def initial_policy(adapter: EnvAdapter, settings: AlgorithmParams, run_seed: int, seed: int) -> PolicyNetwork:
    """Return the policy that training with a seed begins with, the same for all arms.

    Raises:
        EnvError: the algorithm does not fit the environment's observations or actions.
    """
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(run_seed, "agent", seed, "weights"))
        n_features = adapter.features(np.zeros((1, adapter.observation_size), dtype=adapter.observation_dtype)).shape[1]
        match settings:
            case TabularParams():
                return make_table(adapter, settings)
            case BanditParams():
                return make_bandit_policy(n_features, adapter, settings)
            case DQNParams():
                shape = {"hidden": settings.hidden, "epsilon": settings.epsilon_end, "layer_norm": settings.layer_norm}
                return make_q_network(n_features, adapter.action_space, **shape)
            case PPOParams():
                return _ppo_policy(adapter, settings, n_features)
            case _:
                return make_network(n_features, adapter.action_space, settings.hidden)


def _ppo_policy(adapter: EnvAdapter, settings: PPOParams, n_features: int) -> PolicyNetwork:
    """Return the network that the settings name, with filters where there are images to look at."""
    plain = make_network(n_features, adapter.action_space, settings.hidden)
    images: tuple[Image, ...] = ()
    if settings.network != "mlp":
        images = images_in(adapter, smallest=SMALLEST if settings.network == "auto" else 1)
    if settings.network == "cnn" and not images:
        raise EnvError(
            f"agent.ppo.network is cnn, but the features of {adapter.env_id} hold no image: bytes (uint8) in two "
            "dimensions or three. Set it to auto or mlp."
        )
    shape: dict[str, Any] = {"continuous": plain.continuous, "hidden": settings.hidden}
    places = tuple(image.config() for image in images)
    if settings.recurrent:
        return RecurrentActorCritic(n_features, plain.n_actions, images=places, **shape)
    return ImageActorCritic(n_features, plain.n_actions, images=places, **shape) if images else plain


def make_learner(policy: PolicyNetwork, settings: AlgorithmParams, rng: np.random.Generator) -> Learner:
    """Return the learner of an `initial_policy` with the same settings."""
    match policy, settings:
        case Table(), TabularParams():
            return Tabular(policy, settings, rng)
        case BanditPolicy(), BanditParams():
            return Bandit(policy, settings, rng)
        case QNetwork(), DQNParams():
            return DQN(policy, settings, rng)
        case RecurrentActorCritic(), PPOParams():
            return RecurrentPPO(policy, settings, rng)
        case ImageActorCritic(), PPOParams():
            return PPO(policy, settings, rng)
        case ActorCritic(), PPOParams():
            return StackedPPO(policy, settings, rng)
        case ActorCritic(), A2CParams():
            return A2C(policy, settings, rng)
        case ActorCritic(), ReinforceParams():
            return Reinforce(policy, settings, rng)
        case _:
            raise TypeError(f"{type(settings).__name__} does not go with {type(policy).__name__}")
