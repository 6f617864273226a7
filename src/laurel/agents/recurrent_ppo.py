"""PPO with a recurrent policy: minibatches are whole sequences of some of the environments.

The loss is that of `laurel.agents.ppo` (equation 7 there); the memory persists between rollouts, is reset where an
episode begins, and gradients are backpropagated through time to the rollout's first step. Each epoch starts with the
memories from the start of the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laurel.agents.learner import AdamLearner, Rollout
from laurel.agents.ppo import FIGURES, clipped_loss, explained_variance, gae_of
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.vector import VectorEnv
from laurel.params.algorithms import PPOParams

MEMORY, BEGINS = "memory", "begins"


@dataclass
class RecurrentRollout(Rollout):
    """A rollout with the features, memories, log-probabilities and values of the policy that acted."""

    features: FloatArray
    """(T + 1, N, F) input of the network."""
    memory: FloatArray
    """(N, M) before the first step."""
    begins: BoolArray
    """(T + 1, N) where an observation is an episode's first."""
    log_prob: FloatArray
    value: FloatArray
    """(T + 1, N)."""


class RecurrentPPO(AdamLearner):
    """PPO of a recurrent actor-critic, with its memory of the running episodes."""

    name = "ppo"
    policy: RecurrentActorCritic
    params: PPOParams

    def __init__(self, policy: RecurrentActorCritic, params: PPOParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        self.memory = policy.initial_memory(params.n_envs)
        self.begins = np.ones(params.n_envs, dtype=np.bool_)

    def rollout(self, envs: VectorEnv) -> RecurrentRollout:
        steps, n_envs = self.params.n_steps, envs.n_envs
        return RecurrentRollout(
            **Rollout.shapes(steps, envs, self.policy),
            features=np.zeros((steps + 1, n_envs, self.policy.n_features), dtype=np.float32),
            memory=np.zeros_like(self.memory),
            begins=np.zeros((steps + 1, n_envs), dtype=np.bool_),
            log_prob=np.zeros((steps, n_envs), dtype=np.float32),
            value=np.zeros((steps + 1, n_envs), dtype=np.float32),
        )

    def collect(self, envs: VectorEnv, observation: Array, rollout: RecurrentRollout) -> Array:
        rollout.observation[0] = observation
        rollout.memory[:] = self.memory
        for t in range(self.params.n_steps + 1):
            rollout.features[t] = envs.adapter.features(rollout.observation[t])
            rollout.begins[t] = self.begins
            after = self.policy.remember(rollout.features[t], self.memory * ~self.begins[:, None])
            if t == self.params.n_steps:  # the next rollout begins with this observation
                rollout.value[t] = self.policy.heads.evaluate(after)
                break
            self.memory = after
            action, rollout.log_prob[t], rollout.value[t] = self.policy.heads.act(after, self.rng)
            rollout.record(t, action, envs.step(action))
            self.begins = ~rollout.valid[t]
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def begin(self) -> None:
        self.begins[:] = True

    def learn(self, rollout: RecurrentRollout) -> Mapping[str, float]:
        p, tensor = self.params, self.tensor
        if not rollout.valid.any():
            return {}
        advantage = gae_of(p, rollout, rollout.value)
        features, action, begins = (
            tensor(a) for a in (rollout.features[:-1], rollout.action, rollout.begins[:-1].astype(np.float32))
        )
        memory, old_log_prob, valid = (tensor(a) for a in (rollout.memory, rollout.log_prob, rollout.valid))
        advantages, returns = tensor(advantage), tensor(advantage + rollout.value[:-1])
        n_envs = rollout.valid.shape[1]
        n_batches = min(n_envs, max(1, round(rollout.valid.size / p.batch_size)))
        sums, n_updates = torch.zeros(5, device=self.device), 0
        for _ in range(p.n_epochs):
            for batch in np.array_split(self.rng.permutation(n_envs), n_batches):
                rows = tensor(batch)
                mask = valid[:, rows]
                if not mask.any():
                    continue
                log_prob, entropy, value = self.policy(
                    features[:, rows], action[:, rows], memory[rows], begins[:, rows]
                )
                columns = (log_prob, entropy, value, old_log_prob[:, rows], advantages[:, rows], returns[:, rows])
                loss, figures = clipped_loss(p, *(part[mask] for part in columns))
                self.descend(loss)
                sums += figures
                n_updates += 1
        explained = explained_variance(rollout.rows(advantage), rollout.rows(advantage + rollout.value[:-1]))
        means = dict(zip(FIGURES, (sums / n_updates).tolist(), strict=True))
        return {**means, "explained_variance": explained}

    def state(self) -> dict[str, Tensor]:
        recurrent_state = {MEMORY: torch.from_numpy(self.memory), BEGINS: torch.from_numpy(self.begins)}
        return {**recurrent_state, **super().state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.memory, self.begins = state[MEMORY].numpy().copy(), state[BEGINS].numpy().copy()
        super().restore(state)
