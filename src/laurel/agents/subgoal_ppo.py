"""PPO that learns to reach subgoals: the policy sees the observation and which subgoal it is to reach.

    r = arm's reward + c · [the step reached the subgoal],   π(a | s, g),   V(s, g),   g one of K captions, one-hot

A planner names the subgoals (`laurel.agents.subgoals`), in training and whenever the agent acts. Returns and advantages
end where the subgoal was reached or the planner names another: otherwise an agent would rather stay among easy subgoals
than end the episode at the goal. With non-episodic returns, which no end of an episode cuts short, they go on instead
with the value under the next subgoal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.actors import judge_asked, make_actor
from laurel.agents.actors.planner import Planner
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import PPO, OnPolicyRollout
from laurel.agents.subgoals import Follower, Subgoals
from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.vector import VectorEnv
from laurel.errors import EnvError, ParamsError
from laurel.params.algorithms import SubgoalParams
from laurel.params.annotation import AnnotateParams

KEY = "agent.subgoals"


class SubgoalActorCritic(ActorCritic):
    """Policy and value of observations with a subgoal.

    Args:
        n_features: F, width of an observation's features.
        n_actions: number of discrete actions.
        hidden: widths of the hidden layers.
        subgoals: K texts; the network's input has K more columns, of which that of the subgoal is 1.
        options: of the planner that names them while the agent acts.
    """

    kind = "subgoals"

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        *,
        hidden: tuple[int, ...],
        subgoals: tuple[str, ...],
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(n_features + len(subgoals), n_actions, continuous=False, hidden=hidden)
        self.n_features = n_features
        self.subgoals = subgoals
        self.options = dict(options)

    def joined(self, features: FloatArray, numbers: IntArray) -> FloatArray:
        """Return the network's input (N, F + K) for features (N, F) and the places of subgoals (N,)."""
        one_hot = np.zeros((len(features), len(self.subgoals)), dtype=np.float32)
        one_hot[np.arange(len(features)), numbers] = 1
        return np.concatenate([features, one_hot], axis=1)

    def as_actor(self, *, greedy: bool = False) -> Actor:
        raise EnvError("This agent needs a planner to choose its subgoals: use `actor_in`.")

    def actor_in(self, adapter: EnvAdapter, *, greedy: bool = False, annotate: AnnotateParams | None = None) -> Actor:
        if annotate is None and (judge := judge_asked("planner", self.options)) is not None:
            raise ParamsError(
                f"The agent acts with a planner that asks a chat model (judge {judge}), which only laurel evaluate and "
                "laurel play do, in the folder of its run. For use elsewhere, train it with "
                f"{KEY}.options {{plan: progress}} or {{plan: random}}."
            )
        planner = make_actor("planner", adapter, f"{KEY}.options", annotate=annotate, likeliest=greedy, **self.options)
        assert isinstance(planner, Planner)
        subgoals = planner.subgoals
        if (texts := tuple(subgoal.text for subgoal in subgoals.known)) != self.subgoals:
            raise EnvError(
                f"The agent was trained on different subgoals ({' '.join(self.subgoals)}) than {adapter.env_id} has "
                f"({' '.join(texts)}). Use it in an environment like that of its training."
            )
        return SubgoalActor(self, subgoals, greedy=greedy)


class SubgoalActor(Follower):
    """Acts by a policy towards subgoals."""

    def __init__(self, policy: SubgoalActorCritic, subgoals: Subgoals, *, greedy: bool) -> None:
        super().__init__(subgoals)
        self._policy, self._greedy = policy, greedy

    def pursue(self, view: View, rng: np.random.Generator) -> Acted:
        return Acted(*self._policy.act(self._input(view), rng, greedy=self._greedy))

    def log_prob(self, view: View, action: Array) -> FloatArray:
        return self._policy.log_prob(self._input(view), action)

    def _input(self, view: View) -> FloatArray:
        return self._policy.joined(view.features, self.subgoals.numbers)


@dataclass
class SubgoalRollout(OnPolicyRollout):
    """A rollout with the steps that reached or ended subgoals."""

    reached: BoolArray = field(kw_only=True)
    """(T, N)."""
    over: BoolArray = field(kw_only=True)
    """(T, N) whether the step reached the subgoal, or another one was named after it."""


class SubgoalPPO(PPO):
    """PPO on observations with subgoals."""

    name = "subgoals"
    policy: SubgoalActorCritic
    params: SubgoalParams

    def __init__(self, policy: SubgoalActorCritic, params: SubgoalParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        self._draws = rng.spawn(1)[0]
        """The planner's own generator: a resumed run draws the same from it, without acting."""
        self._subgoals: Subgoals
        self.begin()

    def take_help(self, helper: Actor) -> None:
        assert isinstance(helper, Planner)
        self._subgoals = helper.subgoals.for_other_envs()

    def begin(self) -> None:
        no_envs, all_envs = np.zeros(self.params.n_envs, dtype=np.bool_), np.ones(self.params.n_envs, dtype=np.bool_)
        self._begins, self._ended = all_envs, no_envs

    def rollout(self, envs: VectorEnv) -> SubgoalRollout:
        base = super().rollout(envs)
        width = self.policy.n_features + len(self.policy.subgoals)
        base.features = np.zeros((*base.value.shape, width), dtype=np.float32)
        reached, over = np.zeros((2, *base.reward.shape), dtype=np.bool_)
        return SubgoalRollout(**vars(base), reached=reached, over=over)

    def collect(self, envs: VectorEnv, observation: Array, rollout: SubgoalRollout) -> Array:  # type: ignore[override]
        rollout.observation[0] = observation
        followed = self._chosen(observation)
        for t in range(self.params.n_steps):
            features = self.policy.joined(self.features(envs.adapter, rollout.observation[t]), followed)
            action, log_prob, value = self.policy.act(features, self.rng)
            rollout.features[t], rollout.log_prob[t], rollout.value[t] = features, log_prob, value
            rollout.record(t, action, envs.step(action))
            rollout.reached[t] = self._reached(rollout, t)
            following = self._chosen(rollout.observation[t + 1])
            rollout.over[t] = rollout.valid[t] & (rollout.reached[t] | (following != followed))
            followed = following
        last = self.features(envs.adapter, rollout.observation[-1])
        rollout.features[-1] = self.policy.joined(last, followed)
        rollout.value[-1] = self.policy.evaluate(rollout.features[-1])
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def replayed(self, rollout: SubgoalRollout) -> None:
        self._chosen(rollout.observation[0])
        for t in range(self.params.n_steps):
            self._reached(rollout, t)
            self._chosen(rollout.observation[t + 1])

    def learn(self, rollout: SubgoalRollout) -> dict[str, float]:  # type: ignore[override]
        reward = (rollout.reward + self.params.reward * rollout.reached).astype(np.float32)
        reached = rollout.rows(rollout.reached)
        rate = float(reached.mean()) if len(reached) else math.nan
        subgoal_rollout = replace(rollout, reward=reward, terminated=rollout.terminated | rollout.over)
        return {**super().learn(subgoal_rollout), "subgoals": rate}

    def _chosen(self, observation: Array) -> IntArray:
        """Let the planner name subgoals for observations (N, D) where the last have ended; return the places of all
        (N,). Nothing changes where it is called again.
        """
        self._subgoals.begin(self._begins)
        self._begins = np.zeros_like(self._begins)
        self._subgoals.choose(View(self._subgoals.adapter, observation, ~self._ended), self._draws)
        return self._subgoals.numbers

    def _reached(self, rollout: SubgoalRollout, t: int) -> BoolArray:
        """Record step t of the rollout; return whether it reached the subgoals (N,)."""
        rows = np.flatnonzero(rollout.valid[t])
        steps = Transitions(
            rollout.observation[t, rows],
            rollout.action[t, rows],
            rollout.extrinsic[t, rows],
            rollout.observation[t + 1, rows],
            rollout.terminated[t, rows],
            rollout.truncated[t, rows],
        )
        reached = np.zeros_like(rollout.valid[t])
        reached[rows] = self._subgoals.record(rows, steps)
        self._begins, self._ended = ~rollout.valid[t], rollout.terminated[t] | rollout.truncated[t]
        return reached
