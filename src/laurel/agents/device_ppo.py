"""PPO entirely on the device: many agents act, step their environments and learn in parallel without the host.

Computes the same as `laurel.agents.stacked_ppo`; environments are tensors (`laurel.envs.tensor`), and random numbers
are counter-based (`laurel.envs.tensor.philox`), with one key per agent. What an agent learns does not depend on the
others in its group, except through the order in which a device sums up matrix products.

The host waits for the device twice per update, whatever the number of agents and steps: for the steps taken, from which
it computes rewards and episode returns, and for the losses. It also copies to the device twice, while that is idle:
keys of random numbers, then rewards and Adam's rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laurel.agents.learner import Rollout
from laurel.agents.ppo import FIGURES, gae, minibatches
from laurel.agents.stacked import BOTH
from laurel.agents.stacked_ppo import PPOGroup, StackedPPO
from laurel.agents.stacked_update import BETA1, BETA2, Update
from laurel.arrays import Array
from laurel.envs.tensor.base import TensorEnv, host
from laurel.envs.tensor.philox import uniform, words
from laurel.envs.tensor.vector import TensorVector

ACTIONS, ORDER = range(2)
"""Random streams of an update: the draws of actions, and the order of rows."""
WORD = 1 << 32


@dataclass(frozen=True)
class Steps:
    """T steps of N environments of S agents, on the device."""

    observation: Tensor
    """(T + 1, S, N, D)"""
    output: Tensor
    """(T, S, A, N) outputs of the actors."""
    value: Tensor
    """(T + 1, S, N)"""
    action: Tensor
    """(T, S, N), like all fields below."""
    extrinsic: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor


class DevicePPO(PPOGroup):
    """S learners in lockstep on a device, each with environments there.

    Args:
        learners: with discrete actions and the same settings.
        envs: the environments of each.
        observed: whether each agent's rollout includes its observations; otherwise they stay on the device.
    """

    def __init__(self, learners: Sequence[StackedPPO], envs: Sequence[TensorVector], observed: Sequence[bool]) -> None:
        super().__init__(learners, torch)
        self.envs = TensorEnv.stacked([env.rows for env in envs])
        self._watched: list[int] = np.flatnonzero(observed).tolist()
        self._observed = self.stack.put(np.array(self._watched, dtype=np.int64))
        self._keys = self.stack.put(np.zeros((len(learners), 2), dtype=np.int64))
        shape = (self.params.n_steps, len(learners), self.envs.n_envs)
        device = self.stack.device
        self._steps = Steps(
            observation=self.envs.observation.new_zeros((shape[0] + 1, *shape[1:], self.envs.observation.shape[1])),
            output=torch.zeros((*shape[:2], self.stack.n_actions, shape[2]), device=device),
            value=torch.zeros((shape[0] + 1, *shape[1:]), device=device),
            action=torch.zeros(shape, dtype=torch.int64, device=device),
            extrinsic=torch.zeros(shape, device=device),
            terminated=torch.zeros(shape, dtype=torch.bool, device=device),
            truncated=torch.zeros(shape, dtype=torch.bool, device=device),
            valid=torch.zeros(shape, dtype=torch.bool, device=device),
        )

    # -- acting -------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def collect(self, envs: Sequence[Any], observations: Sequence[Array], rollouts: Sequence[Any]) -> list[Array]:
        """Fill the rollouts, continuing from the environments' state on the device; `observations` are not used."""
        self._keys = self.stack.put(np.stack([learner.rng.integers(WORD, size=2) for learner in self.learners]))
        self.act()
        self._copy_to_host(rollouts)
        return list(observations)

    @torch.no_grad()
    def replay(
        self, envs: Sequence[Any], observations: Sequence[Array], rollouts: Sequence[Any], actions: Sequence[Array]
    ) -> list[Array]:
        """Take the actions (T, N) of an update again, so that environments and rollouts are as they were after it."""
        tensor = self.stack.put(np.stack(actions, axis=1).astype(np.int64))
        self._step(tensor.__getitem__)
        self._copy_to_host(rollouts)
        return list(observations)

    def act(self) -> None:
        """Take T steps by the policies; nothing here waits for the device."""
        n_steps, n_envs = self.params.n_steps, self.envs.n_envs
        noise = uniform(words(self._keys, ACTIONS, 0, (n_steps, n_envs, 1))[..., 0])

        def drawn(t: int) -> Tensor:
            self._forward(t)
            return _inverted(self._steps.output[t], noise[t])

        self._step(drawn)
        self._forward(n_steps)

    def _step(self, action_of: Callable[[int], Tensor]) -> None:
        """Take T steps; `action_of(t)` returns the actions (S, N), called once the observations at t are there."""
        steps, envs = self._steps, self.envs
        shape = steps.action.shape[1:]
        drawn = envs.draw(self.params.n_steps)
        steps.observation[0] = envs.observation.view(*shape, -1)
        for t in range(self.params.n_steps):
            steps.action[t] = action_of(t)
            step = envs.step(steps.action[t].view(-1), drawn[t])
            steps.observation[t + 1] = step.observation.view(*shape, -1)
            steps.extrinsic[t], steps.valid[t] = step.reward.view(shape), step.valid.view(shape)
            steps.terminated[t], steps.truncated[t] = step.terminated.view(shape), step.truncated.view(shape)

    def _forward(self, t: int) -> None:
        """Compute actors and critics for the observations at t; after the last step, only the critics."""
        steps, work = self._steps, self.pass_of(slice(0, len(self.learners)), self.envs.n_envs, BOTH)
        work.forward(self.envs.features(steps.observation[t]))
        steps.value[t] = work.value[:, 0]
        if t < self.params.n_steps:
            steps.output[t] = work.output

    def _copy_to_host(self, rollouts: Sequence[Rollout]) -> None:
        """Copy the steps to the host's rollouts, all at once: this waits for the device."""
        steps = self._steps
        flags = steps.terminated * 1 + steps.truncated * 2 + steps.valid * 4
        observation = steps.observation.index_select(1, self._observed)
        parts = [steps.extrinsic, observation, steps.action.to(torch.uint8), flags.to(torch.uint8)]
        extrinsic, observation_there, action, flags_there = _copied(parts)
        for s, rollout in enumerate(rollouts):
            rollout.action[:], rollout.extrinsic[:], rollout.reward[:] = action[:, s], extrinsic[:, s], extrinsic[:, s]
            for bit, name in ((1, "terminated"), (2, "truncated"), (4, "valid")):
                np.not_equal(flags_there[:, s] & bit, 0, out=getattr(rollout, name))
        for place, s in enumerate(self._watched):
            rollouts[s].observation[:] = observation_there[:, place]

    # -- learning -----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def learn(self, rollouts: Sequence[Any]) -> list[dict[str, float]]:
        """Improve each policy on its `rollout.reward`, after `collect` of the same rollouts."""
        reward = self.stack.put(np.stack([rollout.reward for rollout in rollouts], axis=1))
        figures = host(self.improve(self.update(), reward))
        counts = np.array([[rollout.valid.sum()] for rollout in rollouts])
        self.steps += self.params.n_epochs * counts.clip(max=minibatches(self.params, rollouts[0].valid.size))
        names = (*FIGURES, "explained_variance")
        return [dict(zip(names, figure, strict=True)) for figure in figures.tolist()]

    def update(self) -> DeviceUpdate:
        """Allocate an update, and copy the optimiser's state to the device."""
        n_rows = self.params.n_steps * self.envs.n_envs
        return DeviceUpdate(self, -(-n_rows // minibatches(self.params, n_rows)))

    def improve(self, update: DeviceUpdate, reward: Tensor) -> Tensor:
        """Learn from rewards (T, S, N) of the steps that were taken; nothing here waits for the device.

        Returns:
            (S, 6) FIGURES and the explained variance; NaN where an agent had no valid step.
        """
        p, steps = self.params, self._steps
        valid, n_rows = steps.valid, steps.valid[:, 0].numel()
        advantage = self._advantage(torch.where(valid, reward, 0.0))
        returns = advantage + steps.value[:-1]
        facts = torch.stack([self._log_prob(), advantage, returns, steps.action.float()]).flatten(1)
        observation = steps.observation[:-1].flatten(0, 2)
        counts = valid.sum((0, 2))
        n_batches = minibatches(p, n_rows)
        quotient, remainder = counts // n_batches, counts % n_batches  # as np.array_split divides
        place = torch.arange(update.features.shape[1], device=self.stack.device)
        for order in self._orders():
            for batch in range(n_batches):
                start, size = quotient * batch + remainder.clamp(max=batch), (quotient + (batch < remainder))[:, None]
                rows = order.gather(1, (start[:, None] + place).clamp(max=n_rows - 1))
                weight = (place < size) / size.clamp(min=1)
                update.work.forward(self.envs.features(observation[rows]))
                old, its_advantage, its_returns, *action = facts[:, rows]
                update.differentiate(old, its_advantage, its_returns, action, weight)
                update.descend(size > 0)
        gradient_steps = p.n_epochs * counts.clamp(max=n_batches)[:, None]
        return torch.cat([update.sums / gradient_steps, _explained(advantage, returns, valid)[:, None]], dim=1)

    def _advantage(self, reward: Tensor) -> Tensor:
        """Return generalised advantage estimates (T, S, N)."""
        p, steps = self.params, self._steps
        columns = (reward, steps.value, steps.terminated, steps.truncated)
        agents_first = (column.swapaxes(0, 1) for column in columns)
        return gae(*agents_first, gamma=p.gamma, lam=p.gae_lambda).swapaxes(0, 1)

    def _log_prob(self) -> Tensor:
        """Return the log-probabilities (T, S, N) of the actions."""
        return self._steps.output.log_softmax(2).gather(2, self._steps.action[:, :, None])[:, :, 0]

    def _orders(self) -> Tensor:
        """Draw orders (n_epochs, S, T * N) of the rows of all steps, the valid ones first.

        A row is an index into flattened arrays (T, S, N).
        """
        n_steps, n_agents, n_envs = self._steps.valid.shape
        shape = (self.params.n_epochs, n_steps * n_envs, 1)
        valid = self._steps.valid.swapaxes(0, 1).reshape(n_agents, -1)
        keys = torch.where(valid, words(self._keys, ORDER, 0, shape)[..., 0], WORD)
        order = keys.argsort(dim=-1, stable=True)
        agent = torch.arange(n_agents, device=order.device)[:, None]
        return order // n_envs * (n_agents * n_envs) + agent * n_envs + order % n_envs


class DeviceUpdate(Update):
    """The gradient steps of all agents; only the device knows how many rows each has."""

    def __init__(self, group: DevicePPO, size: int) -> None:
        super().__init__(group, slice(0, len(group.learners)), size)
        put = group.stack.put
        self._steps = put(group.steps.copy())
        self._rates = put(np.array([[learner.learning_rate] for learner in group.learners]))

    def descend(self, active: Tensor) -> None:
        """Take the step of `Update` where active (S, 1), without a count that would make the host wait."""
        kept = [array.clone() for array in self.state]
        self._steps += active
        self.adam((self._rates / (1 - BETA1**self._steps)).float(), (1 - BETA2**self._steps).sqrt().float())
        for array, before in zip(self.state, kept, strict=True):
            torch.where(active, array, before, out=array)


def _inverted(output: Tensor, noise: Tensor) -> Tensor:
    """Draw actions (S, N) for outputs (S, A, N) at one uniform number (S, N) each, by the cumulative distribution."""
    cumulative = output.softmax(1).cumsum(1)
    return (cumulative <= noise[:, None] * cumulative[:, -1:]).sum(1).clamp(max=output.shape[1] - 1)


def _explained(advantage: Tensor, returns: Tensor, valid: Tensor) -> Tensor:
    """Return 1 - Var[return - value] / Var[return] of each critic (S,), over valid rows (T, S, N)."""
    weight = valid / valid.sum((0, 2), keepdim=True)

    def variance(values: Tensor) -> Tensor:
        mean = (values * weight).sum((0, 2), keepdim=True)
        return ((values - mean).square() * weight).sum((0, 2))

    total = variance(returns)
    return torch.where(total > 0, 1 - variance(advantage) / total, math.nan)


def _copied(parts: Sequence[Tensor]) -> list[Array]:
    """Copy tensors to the host in one transfer, as the bytes of a single tensor."""
    flat = host(torch.cat([part.contiguous().flatten().view(torch.uint8) for part in parts]))
    copies: list[Array] = []
    start = 0
    for part in parts:
        size = part.numel() * part.element_size()
        kind = np.uint8 if part.dtype == torch.uint8 else np.float32
        copies.append(flat[start : start + size].view(kind).reshape(part.shape))
        start += size
    return copies
