"""Deep Q-learning (Mnih et al. 2015) with its best-known improvements, over vectorised environments.

    y = R_1 + γ R_2 + … + γ^(m-1) R_m + γ^m Q'(S_m, a*);   Q(S_0, A_0) moves towards y

Q' is the target network, a copy of Q that is updated at intervals; a* is the best action by Q (double DQN: van Hasselt
et al. 2016, arXiv 1509.06461), or by Q' where `double` is off. Sums of m rewards are not corrected for the policy
having changed since (as in Rainbow, Hessel et al. 2018, arXiv 1710.02298). `prioritized` is Schaul et al. 2016 (arXiv
1511.05952). `layer_norm` stabilises bootstrapping (Gallici et al. 2024, arXiv 2407.04811), so that the target may be
updated often. Truncation bootstraps, termination does not.

The loss is the squared error, while the paper clips the error: with clipping, many small errors outweigh a rare large
one, and an agent that seldom fails does not learn from its failures.

The replay memory is not saved: a resumed run replays its actions, which refills it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from laurel.agents.collecting import Collecting
from laurel.agents.learner import AdamLearner, Rollout
from laurel.agents.q_network import QNetwork
from laurel.agents.replay import Minibatch, Replay
from laurel.arrays import Array, FloatArray
from laurel.envs.vector import VectorEnv
from laurel.params.algorithms import DQNParams

STEPS, PRIORITIES, HIGHEST, TARGET = "gradient_steps", "priorities", "highest_priority", "target."


class DQN(AdamLearner, Collecting):
    """A Q-network, its target network and its replay memory."""

    name = "dqn"
    main_loss = "value"
    policy: QNetwork
    params: DQNParams

    def __init__(self, policy: QNetwork, params: DQNParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng, eps=1e-8)
        self.target = copy.deepcopy(policy).requires_grad_(requires_grad=False)
        self.gradient_steps = 0
        alpha = params.priority_alpha if params.prioritized else None
        self.replay = Replay(params.buffer_size, params.n_envs, params.n_steps, alpha=alpha)
        self.schedule(0.0)

    def schedule(self, done: float) -> None:
        p = self.params
        self.epsilon = p.epsilon_start + min(1.0, done / p.epsilon_decay) * (p.epsilon_end - p.epsilon_start)
        self.beta = p.priority_beta + done * (1 - p.priority_beta)
        super().schedule(done)

    def rollout(self, envs: VectorEnv) -> Rollout:
        rollout = super().rollout(envs)
        self.replay.reserve(rollout)
        return rollout

    def _act(self, features: FloatArray) -> Array:
        return self.policy.explore(features, self.rng, self.epsilon)

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        self.replay.add(rollout)
        p = self.params
        # resets take up room, too, so that a full memory may hold fewer steps
        if self.replay.size < p.learning_starts and not self.replay.full:
            return {"epsilon": self.epsilon}
        sums = torch.zeros(2, device=self.device)
        for _ in range(p.gradient_steps):
            batch = self.replay.sample(p.batch_size, self.rng, steps=p.multi_step, gamma=p.gamma, beta=self.beta)
            sums += self._step(batch)
        loss, value = (sums / p.gradient_steps).tolist()
        return {"value": loss, "q_value": value, "epsilon": self.epsilon}

    def replayed(self, rollout: Rollout) -> None:
        self.replay.add(rollout, set_priorities=False)

    def targets(self, batch: Minibatch) -> Tensor:
        """Return y (B,)."""
        after = self.tensor(self.features(batch.after))
        with torch.no_grad():
            worth = self.target(after)
            best = (self.policy(after) if self.params.double else worth).argmax(dim=1, keepdim=True)
            following = worth.gather(1, best)[:, 0]
            return self.tensor(batch.reward) + self.tensor(batch.discount) * following

    def _step(self, batch: Minibatch) -> Tensor:
        """Take a gradient step; return the mean loss and the mean value of the actions taken (2,)."""
        target = self.targets(batch)
        values = self.policy(self.tensor(self.features(batch.observation)))
        value = values.gather(1, self.tensor(batch.action)[:, None])[:, 0]
        loss = (self.tensor(batch.weight) * (0.5 * (value - target).square())).mean()
        self.descend(loss)
        self.replay.set_priorities(batch.place, (target - value).detach().cpu().numpy())
        self.gradient_steps += 1
        if self.gradient_steps % self.params.target_every == 0:
            self.target.load_state_dict(self.policy.state_dict())
        return torch.stack([loss, value.mean()]).detach()

    def state(self) -> dict[str, Tensor]:
        target = {TARGET + name: tensor.cpu().contiguous() for name, tensor in self.target.state_dict().items()}
        tensors = {STEPS: torch.tensor(self.gradient_steps), **target, **super().state()}
        if self.replay.tree is not None:
            tensors[PRIORITIES] = torch.from_numpy(self.replay.tree.leaves)
            tensors[HIGHEST] = torch.tensor(self.replay.highest, dtype=torch.float64)
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.gradient_steps = int(state[STEPS])
        self.target.load_state_dict({name: state[TARGET + name] for name in self.target.state_dict()})
        super().restore(state)
        if self.replay.tree is not None:
            leaves = state[PRIORITIES].numpy()
            self.replay.tree.set(np.arange(len(leaves)), leaves)
            self.replay.highest = float(state[HIGHEST])
