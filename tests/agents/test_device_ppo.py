"""PPO with all on the device, on tensors of the CPU: the PPO of the host, without waiting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from laurel.agents.algorithms import initial_policy
from laurel.agents.device_ppo import DevicePPO
from laurel.agents.learner import Rollout
from laurel.agents.policy import ActorCritic
from laurel.agents.ppo import OnPolicyRollout, gae
from laurel.agents.stacked_ppo import StackedPPO
from laurel.envs import adapter_for
from laurel.envs.tensor.vector import TensorVector
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from laurel.seeding import generator
from laurel.training.lockstep import group_of, make_envs, make_rollout

torch.set_num_threads(1)
CPU = torch.device("cpu")
SMALL = PPOParams(n_envs=4, n_steps=40, n_epochs=2, batch_size=48, hidden=(16, 16), max_grad_norm=0.3)
ENVS = pytest.mark.parametrize("env_id", ["CartPole-v1", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-Empty-5x5-v0"])


class Agents:
    """A group of seeds on a device, with what the host keeps of it."""

    def __init__(
        self, env_id: str, seeds: range, params: PPOParams = SMALL, device: torch.device = CPU, observed: bool = True
    ) -> None:
        env = EnvParams(id=env_id)
        self.adapter = adapter_for(env)
        self.learners = []
        for seed in seeds:
            policy = initial_policy(self.adapter, params, 0, seed).to(device)
            assert isinstance(policy, ActorCritic)
            self.learners.append(StackedPPO(policy, params, generator(seed, "actions")))
        self.envs = [make_envs(env, self.adapter, params.n_envs, seed, device) for seed in seeds]
        self.rollouts = [make_rollout(*pair, observed) for pair in zip(self.learners, self.envs, strict=True)]
        group = group_of(self.learners, self.envs, self.rollouts)
        assert isinstance(group, DevicePPO)
        self.group = group

    def collect(self) -> list[Rollout]:
        self.group.collect(self.envs, [], self.rollouts)
        return self.rollouts

    def learn(self) -> list[dict[str, float]]:
        return self.group.learn(self.rollouts)


def everything(learner: StackedPPO) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in learner.policy.state_dict().items()} | learner.state()


class OrdersOf:
    """A generator whose permutations are those that a device has drawn."""

    def __init__(self, orders: list[np.ndarray]) -> None:
        self._orders = iter(orders)

    def permutation(self, n: int) -> np.ndarray:
        return next(self._orders)[:n]


@ENVS
def test_it_learns_what_the_host_learns_of_the_same_rollout(env_id: str) -> None:
    """Advantages, log-probabilities, minibatches, gradients and figures, of two agents over two updates."""
    agents = Agents(env_id, range(2), SMALL.model_copy(update={"n_steps": 110}))
    group, steps = agents.group, agents.group._steps
    others = [StackedPPO(learner.policy, group.params, generator(0)) for learner in Agents(env_id, range(2)).learners]
    before = None
    for update in range(2):
        rollouts = agents.collect()
        assert update == 0 or any(not rollout.valid.all() for rollout in rollouts)
        assert (steps.output[:, 0] != steps.output[:, 1]).any()
        rng = np.random.default_rng(update)
        for rollout in rollouts:
            rollout.reward[:] += rng.normal(size=rollout.reward.shape) * rollout.valid
        orders = group._orders()
        assert before is None or not torch.equal(group._keys, before)
        before = group._keys
        n_agents, n_envs = len(others), group.envs.n_envs
        for s, (other, rollout) in enumerate(zip(others, rollouts, strict=True)):
            whole = OnPolicyRollout(
                **vars(rollout),
                features=np.stack([agents.adapter.features(rows) for rows in rollout.observation]),
                log_prob=group._log_prob()[:, s].numpy(),
                value=steps.value[:, s].numpy(),
            )
            _check_what_was_thought(other, whole, steps.output[:, s])
            valid = np.flatnonzero(rollout.valid)
            places = [
                (order[s] // (n_agents * n_envs) * n_envs + order[s] % n_envs).numpy()[: len(valid)] for order in orders
            ]
            assert all(sorted(place) == valid.tolist() for place in places)  # the valid rows go first
            at = [np.searchsorted(valid, place) for place in places]
            assert not np.array_equal(at[0], at[1])
            other.rng = OrdersOf(at)  # type: ignore[assignment]
        losses = [other.learn(_host_rollout(agents, s)) for s, other in enumerate(others)]
        told = agents.learn()
        for s, other in enumerate(others):
            assert told[s] == pytest.approx(losses[s], abs=1e-4, rel=1e-3, nan_ok=True)
            theirs = everything(other)
            for name, found in everything(agents.learners[s]).items():
                torch.testing.assert_close(found, theirs[name], atol=2e-4, rtol=1e-3)
            other.policy.load_state_dict(agents.learners[s].policy.state_dict())  # so that differences do not add up


def _host_rollout(agents: Agents, s: int) -> OnPolicyRollout:
    rollout, group = agents.rollouts[s], agents.group
    return OnPolicyRollout(
        **vars(rollout),
        features=np.stack([agents.adapter.features(rows) for rows in rollout.observation]),
        log_prob=group._log_prob()[:, s].numpy(),
        value=group._steps.value[:, s].numpy(),
    )


def _check_what_was_thought(other: StackedPPO, rollout: OnPolicyRollout, output: torch.Tensor) -> None:
    """Outputs, values and log-probabilities are the policy's for the observations copied to the host."""
    with torch.no_grad():
        features = torch.from_numpy(rollout.features)
        torch.testing.assert_close(output.swapaxes(1, 2), other.policy.actor(features[:-1]), atol=1e-5, rtol=1e-4)
        value = other.policy.critic(features)[..., 0]
        torch.testing.assert_close(torch.from_numpy(rollout.value), value, atol=1e-5, rtol=1e-4)
        log_probs = other.policy.actor(features[:-1]).log_softmax(-1)
        chosen = log_probs.gather(2, torch.from_numpy(rollout.action)[..., None])[..., 0]
        torch.testing.assert_close(torch.from_numpy(rollout.log_prob), chosen, atol=1e-5, rtol=1e-4)


@ENVS
def test_advantages_are_those_of_the_host(env_id: str) -> None:
    agents = Agents(env_id, range(3))
    rollouts, steps = agents.collect(), agents.group._steps
    reward = np.stack([rollout.reward for rollout in rollouts])
    found = agents.group._advantage(torch.from_numpy(reward).swapaxes(0, 1)).swapaxes(0, 1)
    ended = (np.stack([getattr(rollout, name) for rollout in rollouts]) for name in ("terminated", "truncated"))
    expected = gae(reward, steps.value.swapaxes(0, 1).numpy(), *ended, gamma=SMALL.gamma, lam=SMALL.gae_lambda)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@ENVS
def test_agents_trained_together_equal_agents_trained_alone(env_id: str) -> None:
    """Steps, weights and figures; on a device, products of matrices may be summed in another order."""
    together = Agents(env_id, range(3))
    kept, told = [], []
    for _ in range(3):
        kept.append([{name: array.copy() for name, array in vars(r).items()} for r in together.collect()])
        told.append(together.learn())
    for s in range(3):
        alone = Agents(env_id, range(s, s + 1))
        for update in range(3):
            (rollout,) = alone.collect()
            for name, array in vars(rollout).items():
                np.testing.assert_array_equal(array, kept[update][s][name], err_msg=name)
            assert alone.learn()[0] == pytest.approx(told[update][s], abs=1e-5, rel=1e-4, nan_ok=True)
        weights = everything(together.learners[s])
        for name, weight in everything(alone.learners[0]).items():
            torch.testing.assert_close(weight, weights[name], atol=1e-5, rtol=1e-4)
        assert alone.learners[0].rng.bit_generator.state == together.learners[s].rng.bit_generator.state
    assert (kept[0][0]["action"] != kept[0][1]["action"]).any()


def test_a_group_may_lose_an_agent_midway() -> None:
    """An agent takes its environments and moments along."""
    whole, parted = Agents("CartPole-v1", range(3)), Agents("CartPole-v1", range(3))
    for agents in (whole, parted):
        agents.collect()
        agents.learn()
    parted.learners, parted.envs, parted.rollouts = parted.learners[1:], parted.envs[1:], parted.rollouts[1:]
    group = group_of(parted.learners, parted.envs, parted.rollouts)
    assert isinstance(group, DevicePPO)
    parted.group = group
    for agents in (whole, parted):
        agents.collect()
        agents.learn()
    for rollout, parted_rollout in zip(whole.rollouts[1:], parted.rollouts, strict=True):
        np.testing.assert_array_equal(rollout.observation, parted_rollout.observation)
    for one_of, other_of in zip(whole.learners[1:], parted.learners, strict=True):
        theirs = everything(other_of)
        for name, weight in everything(one_of).items():
            torch.testing.assert_close(weight, theirs[name], atol=1e-5, rtol=1e-4)


@ENVS
def test_the_same_actions_have_the_same_outcomes(env_id: str) -> None:
    agents, other = Agents(env_id, range(2)), Agents(env_id, range(2))
    taken = []
    for _ in range(2):
        taken.append([rollout.action.astype(np.uint8) for rollout in agents.collect()])
        agents.learn()
    for actions in taken:
        other.group.replay(other.envs, [], other.rollouts, actions)
    for ours, theirs in zip(agents.rollouts, other.rollouts, strict=True):
        for name in ("observation", "action", "extrinsic", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for learner, replaying in zip(agents.learners, other.learners, strict=True):
        replaying.policy.load_state_dict(learner.policy.state_dict())
        replaying.rng.bit_generator.state = learner.rng.bit_generator.state
    agents.collect()
    other.collect()
    np.testing.assert_array_equal(agents.rollouts[1].observation, other.rollouts[1].observation)


@ENVS
def test_no_operation_synchronises_with_the_device(env_id: str) -> None:
    """Tensors of the device `meta` have no content: whatever copied it, or branched on it, would fail."""
    agents = Agents(env_id, range(2), device=torch.device("meta"))
    group = agents.group
    with torch.no_grad():
        update = group.update()
        group.act()
        figures = group.improve(update, torch.zeros(SMALL.n_steps, 2, SMALL.n_envs, device="meta"))
    assert figures.shape == (2, 6)
    assert group.stack.weights.device.type == "meta"
    with pytest.raises(RuntimeError, match="meta"):
        figures[0].sum().item()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        figures[figures > 0]


def test_an_update_copies_to_the_host_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Agents("MiniGrid-DoorKey-5x5-v0", range(3))
    copies: list[int] = []

    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        copies.append(tensor.numel())
        return tensor

    monkeypatch.setattr(torch.Tensor, "cpu", counted)
    agents.collect()
    agents.learn()
    assert len(copies) == 2


def test_without_a_reader_observations_are_not_copied() -> None:
    agents = Agents("MiniGrid-DoorKey-5x5-v0", range(2), observed=False)
    reference = Agents("MiniGrid-DoorKey-5x5-v0", range(2))
    for rollout, expected in zip(agents.collect(), reference.collect(), strict=True):
        assert len(rollout.observation) == 0
        np.testing.assert_array_equal(rollout.extrinsic, expected.extrinsic)
        np.testing.assert_array_equal(rollout.action, expected.action)


def test_an_agent_without_data_is_unchanged() -> None:
    agents, reference = Agents("CartPole-v1", range(2)), Agents("CartPole-v1", range(2))
    for each in (agents, reference):
        each.collect()
        each.learn()
        each.collect()
    agents.group._steps.valid[:, 0] = False
    agents.rollouts[0].valid[:] = False
    before = everything(agents.learners[0])
    told, expected = agents.learn(), reference.learn()
    assert all(torch.equal(value, before[name]) for name, value in everything(agents.learners[0]).items())
    assert all(math.isnan(figure) for figure in told[0].values())
    assert told[1] == pytest.approx(expected[1])
    theirs = everything(reference.learners[1])
    assert all(torch.equal(value, theirs[name]) for name, value in everything(agents.learners[1]).items())


def test_fewer_rows_than_minibatches() -> None:
    agents = Agents("CartPole-v1", range(2))
    agents.collect()
    agents.group._steps.valid[:, 0] = False
    agents.group._steps.valid[0, 0, :2] = True
    agents.rollouts[0].valid[:] = False
    agents.rollouts[0].valid[0, :2] = True
    told = agents.learn()
    assert [learner.state()["critic.0.bias.step"].item() for learner in agents.learners] == [2 * 2, 2 * 3]
    assert all(math.isfinite(figure) for figure in told[0].values())


def test_the_host_may_step_environments_of_a_device() -> None:
    """Like environments of the host; they continue from the state in which the group left them."""
    agents = Agents("CartPole-v1", range(2))
    agents.collect()
    envs = agents.envs[1]
    assert isinstance(envs, TensorVector)
    np.testing.assert_array_equal(envs.rows.observation, agents.rollouts[1].observation[-1])
    step = envs.step(np.zeros(SMALL.n_envs, dtype=np.int64))
    assert step.observation.dtype == np.float32
    assert step.reward.tolist() == step.valid.astype(float).tolist()
    envs.stop(np.array([True, False, False, False]), step.observation)
    assert not envs.step(np.zeros(SMALL.n_envs, dtype=np.int64)).valid[0]
    np.testing.assert_array_equal(agents.group.envs.observation[SMALL.n_envs :], envs.rows.observation)
    assert envs.reset().shape == (SMALL.n_envs, 4)
    agents.envs[0] = Agents("CartPole-v1", range(1)).envs[0]
    with pytest.raises(ValueError, match="as many steps"):
        group_of(agents.learners, agents.envs, agents.rollouts)
