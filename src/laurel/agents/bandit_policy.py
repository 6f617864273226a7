"""The agents of `laurel.agents.bandits` as policies and learners of an arm.

The agents learn after every pull; here they process the steps of a rollout in order, once its rewards are computed, and
all environments pull the same bandit arms, the actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laurel.agents import choice
from laurel.agents.actions import discrete_actions
from laurel.agents.agent import Experience
from laurel.agents.bandits import UCB, GaussianThompson, Gradient, RewardAveraging
from laurel.agents.bandits.agent import OpenBanditAgent
from laurel.agents.collecting import Collecting
from laurel.agents.learner import PolicyNetwork, Rollout
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import BanditParams

METHODS: dict[str, Callable[..., OpenBanditAgent]] = {
    "reward_averaging": RewardAveraging,
    "ucb": UCB,
    "gradient": Gradient,
    "gaussian_thompson": GaussianThompson,
}


class BanditPolicy(PolicyNetwork):
    """Pulls arms as the agent of one of METHODS does; buffers hold the agent's state, and features are ignored."""

    kind = "bandit"
    continuous = False

    def __init__(self, method: str, n_features: int, n_actions: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.method = method
        self.n_features = n_features
        self.n_actions = n_actions
        self.options = dict(options)
        agent = METHODS[method](n_actions, **self.options)
        agent.reset(0)
        for name in agent.knowledge:
            self.register_buffer(name, torch.from_numpy(getattr(agent, name)[0:1].copy()))

    def agent(self, n_envs: int = 1) -> OpenBanditAgent:
        """Return an agent with the buffers' state in each environment."""
        agent = METHODS[self.method](self.n_actions, **self.options)
        agent.reset(0, n_envs)
        for name, tensor in self.named_buffers():
            getattr(agent, name)[:] = tensor.cpu().numpy()
        return agent

    def keep(self, agent: OpenBanditAgent) -> None:
        """Take over the state of an agent of one environment."""
        for name, tensor in self.named_buffers():
            tensor.copy_(torch.from_numpy(getattr(agent, name)))

    def draw(self, n: int, rng: np.random.Generator, *, greedy: bool = False) -> Array:
        """Draw arms (n,): as the agent does, or, if greedy, the one with the highest merit, ties broken at random."""
        agent = self.agent(n)
        agent.rng = rng
        return choice.argmax(agent.merits(), rng) if greedy else agent.get_action(None)

    def act(
        self, features: FloatArray, rng: np.random.Generator, *, greedy: bool = False
    ) -> tuple[Array, FloatArray, FloatArray]:
        """Draw arms for features (N, F): arms, their log-probabilities and the estimated rewards (N,)."""
        action = self.draw(len(features), rng, greedy=greedy)
        agent = self.agent()
        worth = (agent.probabilities() * agent.expected()).sum()
        return action, self.log_prob(features, action), np.full(len(action), worth, dtype=np.float32)

    def log_prob(self, features: FloatArray, action: Array) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self.agent().probabilities()[0])[action].astype(np.float32)


def make_bandit_policy(n_features: int, adapter: EnvAdapter, settings: BanditParams) -> BanditPolicy:
    """Make the untrained policy; raises EnvError where the environment's actions are not Discrete from 0 on."""
    s, step_size = settings, settings.step_size or None
    options: dict[str, dict[str, Any]] = {
        "reward_averaging": {"epsilon": s.epsilon, "optimism": s.initial, "step_size": step_size},
        "ucb": {"c": s.c, "step_size": step_size},
        "gradient": {"step_size": s.step_size},
        "gaussian_thompson": {"prior_mean": s.initial, "prior_deviation": s.prior_deviation, "noise": s.noise},
    }
    n_actions = discrete_actions(adapter.action_space, "bandit")
    return BanditPolicy(s.method, n_features, n_actions, options[s.method])


class Bandit(Collecting):
    """One of the bandit agents, which learns the same arms from every environment.

    It ignores observations: in an environment with several states it learns which action has the highest reward on
    average over states, and with delayed rewards it learns nothing. Nothing is learned while a rollout is
    collected; set n_envs and n_steps to 1 to learn after every pull, as in the textbooks.
    `laurel/ArmedBandit-v0` draws other arms in every episode and environment: set `arms_seed` (env.kwargs) to make it
    learnable.
    """

    name = "bandit"
    policy: BanditPolicy

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        """Show the agent the pulls one at a time, those of a step in the order of the environments."""
        if not rollout.valid.any():
            return {}
        agent = self.policy.agent()
        arms, rewards = rollout.action[rollout.valid], rollout.reward[rollout.valid].astype(np.float64)
        for i in range(len(arms)):
            agent.observe(Experience(None, arms[i : i + 1], rewards[i : i + 1], None, NEVER, NEVER, ALWAYS))
        self.policy.keep(agent)
        return {"q_value": float(agent.expected()[0, arms].mean())}

    def _act(self, features: FloatArray) -> Array:
        return self.policy.draw(len(features), self.rng)

    def state(self) -> dict[str, Tensor]:
        return {}  # the policy's buffers contain everything

    def restore(self, state: Mapping[str, Tensor]) -> None:
        pass


NEVER, ALWAYS = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)
