"""PPO for many agents at once: the algorithm of `laurel.agents.ppo`, one row per agent, without autograd.

Agents of a group share only the batched calls: each has its own environments, random numbers, order of minibatches, and
state of Adam (Kingma & Ba 2015, arXiv 1412.6980). An agent's results are bit-identical for any group: rows of two
agents are never summed, and minibatches are padded to one size with rows of weight 0.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laurel.agents.hints import hints_of
from laurel.agents.learner import Learner, LearnerGroup
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import PPO, OnPolicyRollout, explained_variance, gae, minibatches, non_episodic_reward
from laurel.agents.stacked import ACTOR, CRITIC, Pass, Stack, host
from laurel.agents.stacked_update import Update, epoch, gaussian
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.joined import joined
from laurel.envs.vector import VectorEnv
from laurel.params.algorithms import ClippedParams

CACHED_BYTES = 4 << 20
"""Maximum bytes of a minibatch's hidden layers: beyond a core's cache, larger batches of agents are slower."""


class StackedPPO(PPO):
    """PPO of one ActorCritic: a group of one until it joins another."""

    takes_hints = True

    def __init__(
        self, policy: ActorCritic, params: ClippedParams, rng: np.random.Generator, arrays: Any = None
    ) -> None:
        Learner.__init__(self, policy, params, rng)  # without PPO's optimiser
        self.learning_rate = params.learning_rate
        self.place: tuple[PPOGroup, int] | None = None
        self._alone = PPOGroup([self], arrays)

    def __deepcopy__(self, memo: dict[int, Any]) -> StackedPPO:
        """Copy only the learner; copied tensors would be views of the old group's rows."""
        arrays = self._group().stack.arrays
        clone = StackedPPO(copy.deepcopy(self.policy, memo), self.params, copy.deepcopy(self.rng, memo), arrays)
        clone.learning_rate, clone.hints = self.learning_rate, self.hints
        clone.restore(self.state())
        return clone

    def collect(self, envs: VectorEnv, observation: Array, rollout: OnPolicyRollout) -> Array:
        return self._group().collect([envs], [observation], [rollout])[0]

    def learn(self, rollout: OnPolicyRollout) -> dict[str, float]:
        return self._group().learn([rollout])[0]

    def grouped(self, others: Sequence[PPO]) -> LearnerGroup:
        return PPOGroup([self, *others])  # type: ignore[list-item]

    def schedule(self, done: float) -> None:
        if self.hints is not None:
            self.hints.schedule(done)
        if self.params.anneal:
            self.learning_rate = self.params.learning_rate * (1 - done)

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments and step counts under the names of the weights."""
        assert self.place is not None
        group, row = self.place
        steps = torch.tensor(float(group.steps[row, 0]))
        state = {f"{name}.step": steps.clone() for name, _ in self.policy.named_parameters()}
        for key, moments in (("exp_avg", group.mean), ("exp_avg_sq", group.square)):
            state |= {
                f"{name}.{key}": view.cpu().contiguous() for name, view in group.stack.named(moments, row).items()
            }
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        assert self.place is not None
        group, row = self.place
        for key, moments in (("exp_avg", group.mean), ("exp_avg_sq", group.square)):
            for name, view in group.stack.named(moments, row).items():
                view.copy_(state[f"{name}.{key}"])
        group.steps[row] = float(state["critic.0.bias.step"])

    def _group(self) -> PPOGroup:
        """Return a group of only this agent."""
        if self.place is None or self.place[0] is not self._alone:
            self._alone = PPOGroup([self])
        return self._alone


class PPOGroup(LearnerGroup):
    """S learners in lockstep; their weights and moments become rows of this group's arrays."""

    learners: list[StackedPPO]

    def __init__(self, learners: Sequence[StackedPPO], arrays: Any = None) -> None:
        super().__init__(learners)
        self.params = learners[0].params
        self.stack = Stack([learner.policy for learner in learners], arrays)
        n, width = len(learners), self.stack.n_weights
        self.mean, self.square = self.stack.zeros(n, width), self.stack.zeros(n, width)
        self.steps = np.zeros((n, 1))
        for row, learner in enumerate(learners):
            if learner.place is not None:
                group, old = learner.place
                self.mean[row], self.square[row] = self._as_own(group.mean[old]), self._as_own(group.square[old])
                self.steps[row] = group.steps[old]
            learner.place = (self, row)
        self._passes: dict[tuple[int, ...], Pass] = {}

    def _as_own(self, row: Any) -> Any:
        """Convert a row of another group's arrays to this group's array type and device."""
        return row if isinstance(row, type(self.mean)) else self.stack.put(host(row))

    # -- acting -------------------------------------------------------------------------------------------------
    def collect(
        self, envs: Sequence[VectorEnv], observations: Sequence[Array], rollouts: Sequence[OnPolicyRollout]
    ) -> list[Array]:
        """Fill the rollouts, each from its observation (N, D); return the observations with which the next ones
        begin.
        """
        n_steps, n_envs, n = self.params.n_steps, envs[0].n_envs, len(envs)
        outputs = np.zeros((n_steps, n, self.stack.n_actions, n_envs), dtype=np.float32)
        noise = np.stack([self._noise(learner.rng, n_steps, n_envs) for learner in self.learners], axis=1)
        work = self.pass_of(slice(0, n), n_envs, ACTOR)
        with joined(envs) as vector:
            joint = self.learners[0].rollout(vector)  # columns of all agents
            joint.observation[0] = np.concatenate(observations)
            ended = np.concatenate([env.ended for env in envs])
            for t in range(n_steps):
                joint.features[t] = vector.adapter.features(joint.observation[t])
                work.forward(self.stack.put(joint.features[t].reshape(n, n_envs, -1)))
                outputs[t] = host(work.output)
                if joint.hints is not None:
                    self._hint(vector.adapter, joint, t, outputs[t], ~ended)
                action = self._draw(outputs[t], noise[t]).reshape(n * n_envs, *joint.action.shape[2:])
                joint.record(t, action, vector.step(action))
                ended = joint.terminated[t] | joint.truncated[t]
        joint.features[-1] = vector.adapter.features(joint.observation[-1])
        joint.reward[:] = joint.extrinsic
        joint.value[:] = self._values(joint.features.reshape(n_steps + 1, n, n_envs, -1))
        joint.log_prob[:] = self._log_probs(outputs, joint.action.reshape(n_steps, n, n_envs, -1))
        for s, rollout in enumerate(rollouts):
            columns = slice(s * n_envs, (s + 1) * n_envs)
            for name, array in vars(joint).items():
                if name == "info":
                    for key, values in array.items():
                        rollout.info[key][:] = values[:, columns]
                elif array is not None:
                    getattr(rollout, name)[:] = array[:, columns]
        return [rollout.observation[-1].copy() for rollout in rollouts]

    def _hint(self, adapter: EnvAdapter, joint: OnPolicyRollout, t: int, output: Array, acting: BoolArray) -> None:
        """Add the hints of step t to the logits (S, A, N) for acting, and store them for the loss; `acting` (S N,) as
        in `View`.
        """
        hints = [learner.hints for learner in self.learners if learner.hints is not None]
        assert joint.hints is not None
        joint.hints[t] = hints_of(hints, adapter, joint.observation[t], acting)
        n, n_actions, n_envs = output.shape
        output += joint.hints[t].reshape(n, n_envs, n_actions).swapaxes(1, 2)

    def _noise(self, rng: np.random.Generator, n_steps: int, n_envs: int) -> Array:
        """Draw the random numbers of T steps of N environments."""
        if self.stack.continuous:
            return rng.standard_normal((n_steps, n_envs, self.stack.n_actions), np.float32)
        return rng.random((n_steps, n_envs), np.float32)

    def _draw(self, output: Array, noise: Array) -> Array:
        """Draw actions (S, N) or (S, N, A) for outputs (S, A, N)."""
        if self.stack.continuous:
            deviation = np.exp(host(self.stack.parts[-1])).swapaxes(-1, -2)
            drawn: Array = output.swapaxes(-1, -2) + noise * deviation
            return drawn
        cumulative = np.exp(output - output.max(axis=-2, keepdims=True)).cumsum(axis=-2)
        below = cumulative <= noise[:, None] * cumulative[:, -1:]  # inverts the cumulative distribution
        choice: Array = np.minimum(below.sum(axis=-2), self.stack.n_actions - 1)
        return choice

    def _values(self, features: FloatArray) -> FloatArray:
        """Return the critics' values (T, S * N) of features (T, S, N, F)."""
        n_steps, n, n_envs, _ = features.shape
        values = np.zeros((n_steps, n, n_envs), dtype=np.float32)
        rows = n_steps * n_envs
        for chunk in self._at_once(n, 4 * rows * sum(self.stack.hidden)):
            critics = self.pass_of(chunk, rows, CRITIC)
            critics.forward(self.stack.put(features[:, chunk].swapaxes(0, 1).reshape(-1, rows, features.shape[-1])))
            values[:, chunk] = host(critics.value).reshape(-1, n_steps, n_envs).swapaxes(0, 1)
        return values.reshape(n_steps, -1)

    def _log_probs(self, output: Array, action: Array) -> Array:
        """Return log-probabilities (T, S * N) of actions (T, S, N, A) or (T, S, N, 1) for outputs (T, S, A, N)."""
        chosen = action.swapaxes(-1, -2)
        if self.stack.continuous:
            log_std = host(self.stack.parts[-1])
            log_probs = gaussian((chosen - output) * np.exp(-log_std), log_std)
        else:
            shifted = output - output.max(axis=-2, keepdims=True)
            log_probs = np.take_along_axis(shifted, chosen, axis=-2)[..., 0, :] - np.log(np.exp(shifted).sum(axis=-2))
        return log_probs.reshape(len(output), -1)

    # -- learning -----------------------------------------------------------------------------------------------
    def learn(self, rollouts: Sequence[OnPolicyRollout]) -> list[dict[str, float]]:
        """Improve each policy on its `rollout.reward`, without modifying the rollouts."""
        size = -(-rollouts[0].valid.size // minibatches(self.params, rollouts[0].valid.size))
        losses: list[dict[str, float]] = []
        with torch.no_grad(), np.errstate(all="ignore"):  # where an agent diverges, its losses are NaN or infinite
            # activations and their gradients, of both bodies
            for chunk in self._at_once(len(rollouts), 16 * size * sum(self.stack.hidden)):
                losses += self._learn(chunk, rollouts[chunk])
        return losses

    def _at_once(self, n: int, n_bytes: int) -> list[slice]:
        """Split n agents, each of which needs `n_bytes`, into parts that are updated together."""
        size = max(1, CACHED_BYTES // max(n_bytes, 1)) if self.stack.arrays is np else n
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def _learn(self, policies: slice, rollouts: Sequence[OnPolicyRollout]) -> list[dict[str, float]]:
        """Do an update of some of the agents."""
        p, stack = self.params, self.stack
        learners = self.learners[policies]
        valid = np.stack([rollout.valid for rollout in rollouts])
        value = np.stack([rollout.value for rollout in rollouts])
        reward = np.where(valid, np.stack([rollout.reward for rollout in rollouts]), 0)
        terminated, truncated = (
            np.stack([getattr(rollout, name) for rollout in rollouts]) for name in ("terminated", "truncated")
        )
        if not p.episodic:
            reward = non_episodic_reward(reward, value, terminated, valid, p.gamma)
        advantage = gae(reward, value, terminated, truncated, gamma=p.gamma, lam=p.gae_lambda)
        returns = advantage + value[:, :-1]

        n, total = len(rollouts), valid[0].size
        old = np.stack([rollout.log_prob for rollout in rollouts])
        action = np.stack([rollout.action.reshape(total, -1).T for rollout in rollouts], axis=1).astype(np.float32)
        columns = [np.stack([old, advantage, returns]).reshape(3, n * total), action.reshape(-1, n * total)]
        hints = [rollout.hints.reshape(total, -1).T for rollout in rollouts if rollout.hints is not None]
        if hints:
            columns.append(np.stack(hints, axis=1).reshape(-1, n * total))
        facts = stack.put(np.concatenate(columns))
        features = [stack.put(rollout.features.reshape(-1, stack.n_features)) for rollout in rollouts]
        rows = [np.flatnonzero(mask) for mask in valid]
        n_batches = minibatches(p, total)
        size = -(-total // n_batches)
        update = Update(self, policies, size)
        for _ in range(p.n_epochs):
            shuffled = [
                indices[learner.rng.permutation(len(indices))] for indices, learner in zip(rows, learners, strict=True)
            ]
            index, counts = epoch(shuffled, n_batches, size)
            for batch in range(n_batches):
                update.step(features, facts, index[batch], counts[batch])
        return [
            {**mean, "explained_variance": explained_variance(advantage[s][valid[s]], returns[s][valid[s]])}
            for s, mean in enumerate(update.means())
        ]

    def pass_of(self, policies: slice, batch: int, bodies: slice) -> Pass:
        """Return the buffers of a pass, cached per batch size."""
        key = (policies.start, policies.stop, batch, bodies.start, bodies.stop)
        if key not in self._passes:
            self._passes[key] = Pass(self.stack, policies, batch, bodies)
        return self._passes[key]
