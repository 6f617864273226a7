"""GRPO and RLOO: several completions of each prompt, compared with each other; the losses are TRL's.

With r_i the reward of completion y_i of a prompt, G of them, and pi_0 the frozen model:

    GRPO:  A_i = (r_i - mean r) / sd r;   loss = -mean over all tokens[ratio_t (A_i - beta KL_t(pi || pi_0))]
    RLOO:  A_i = R_i - mean of the other R_j,   R_i = r_i - beta log(pi(y_i) / pi_0(y_i));   loss = -mean[ratio_i A_i]

KL_t is the estimate pi_0 / pi - log(pi_0 / pi) - 1 of a token; Shao et al. do not multiply it by the ratio, with which
its gradient is that of the divergence itself (DeepSeek-V3.2, arXiv 2512.02556). They also average over the tokens of
each completion first; the mean over all tokens is DAPO's (arXiv 2503.14476).

TRL computes the loss and gradient; Adam's moments persist between updates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from laurel.agents.collecting import Collecting
from laurel.agents.learner import AdamLearner, Rollout
from laurel.agents.writer import Writer
from laurel.arrays import Array, FloatArray
from laurel.envs.builtin.completions import text_of
from laurel.envs.vector import VectorEnv
from laurel.errors import EnvError
from laurel.llm.causal import tokens_of, trained
from laurel.llm.sampling import Sampled, log_probs
from laurel.llm.trl_tuning import Group, Tuning, gradient_of_groups
from laurel.params.algorithms import GroupParams


class GroupLearner(AdamLearner, Collecting):
    """Learns from a batch of groups at once; the environments of a group show the same prompt."""

    policy: Writer
    params: GroupParams

    def __init__(self, policy: Writer, params: GroupParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        self.name = params.algorithm  # type: ignore[misc]
        self._drawn: list[Sampled] = []
        """The completions drawn at each step of the rollout."""

    def rollout(self, envs: VectorEnv) -> Rollout:
        if not hasattr(envs.form, "group"):
            raise EnvError(
                f"agent.algorithm {self.name}: {envs.adapter.env_id} cannot show the same prompt in several "
                f"environments: its vector implementation must have an attribute `group`, and env.backend must be auto."
            )
        envs.form.group = self.params.group
        return super().rollout(envs)

    def collect(self, envs: VectorEnv, observation: Array, rollout: Rollout) -> Array:
        self._drawn = []
        return super().collect(envs, observation, rollout)

    def _act(self, features: FloatArray) -> Array:
        action = super()._act(features)
        assert self.policy.drawn is not None
        self._drawn.append(self.policy.drawn)
        return action

    def learn(self, rollout: Rollout) -> Mapping[str, float]:
        params, steps = self.params, [t for t in range(self.params.n_steps) if rollout.valid[t].all()]
        seed = int(self.rng.integers(2**32))  # always drawn, so that later draws are the same
        kl = float(np.mean([self._divergence(rollout, t) for t in steps]))
        if params.max_kl is not None and kl > params.max_kl:
            return {"reference_kl": kl}
        groups = [group for t in steps for group in self._groups(rollout, t)]
        tuning = Tuning(
            batch_size=params.batch_size,
            beta=params.beta,
            max_grad_norm=params.max_grad_norm,
            temperature=params.temperature,
        )
        local = self.policy.sampler.local
        loss, gradient = gradient_of_groups(local, groups, params.algorithm, tuning, seed)
        for name, weight in trained(local.model):
            weight.grad = gradient[name]
        self.optimizer.step()
        return {"policy": loss, "reference_kl": kl}

    def _divergence(self, rollout: Rollout, t: int) -> float:
        """Return the mean of log(pi / pi_0) over the completions of a step, in nats."""
        local, drawn = self.policy.sampler.local, self._drawn[t]
        prompts = [tokens_of(local, text_of(row)) for row in rollout.observation[t]]
        with local.model.disable_adapter():
            frozen = log_probs(local, prompts, drawn.whole, self.params.temperature)
        return float((drawn.log_prob - frozen).mean())

    def _groups(self, rollout: Rollout, t: int) -> list[Group]:
        """Return the groups of a step."""
        answers, size = self._drawn[t].whole, self.params.group
        return [
            Group(
                text_of(rollout.observation[t, first]),
                tuple(answers[first : first + size]),
                tuple(rollout.reward[t, first : first + size].tolist()),
            )
            for first in range(0, len(answers), size)
        ]
