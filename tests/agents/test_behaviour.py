from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents.actor import Acted, View
from laurel.agents.actors.random import UniformPolicy
from laurel.agents.behaviour import Behaviour, assign, collect_steps
from laurel.agents.checkpoint import save_policy
from laurel.agents.policy import ActorCritic
from laurel.envs import EnvAdapter, adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import DataError, EnvError, ParamsError
from laurel.params import EnvParams, PolicyShare


@given(shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=6), spare=st.integers(0, 40))
def test_environments_are_divided_by_the_shares_of_policies(shares: list[float], spare: int) -> None:
    n_envs = len(shares) + spare
    counts = np.bincount(assign(shares, n_envs), minlength=len(shares))
    assert counts.sum() == n_envs
    assert counts.min() >= 1
    exact = np.array(shares) / sum(shares) * n_envs
    if exact.min() >= 1:
        assert (np.abs(counts - exact) < 1 + 1e-9).all()


def test_too_many_policies() -> None:
    with pytest.raises(ParamsError, match=r"collect\.policies has 3 entries.*collect\.n_envs is 2"):
        assign([1, 1, 1], 2)


def test_uniform_discrete_actions() -> None:
    policy = UniformPolicy(gym.spaces.Discrete(4, start=2))
    action = policy.draw(4000, np.random.default_rng(0))
    log_prob = policy.log_prob_of(action)
    values, counts = np.unique(action, return_counts=True)
    assert values.tolist() == [2, 3, 4, 5]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    np.testing.assert_allclose(log_prob, np.log(0.25), rtol=1e-6)


def test_uniform_continuous_actions_have_the_densities_of_gymnasium() -> None:
    inf = np.inf
    space = gym.spaces.Box(np.float32([-1, 2, -inf, -inf]), np.float32([3, inf, 5, inf]))
    policy = UniformPolicy(space)
    action = policy.draw(3000, np.random.default_rng(0))
    log_prob = policy.log_prob_of(action)
    assert (action.dtype, action.shape, log_prob.dtype) == (np.float32, (3000, 4), np.float32)
    assert all(space.contains(row) for row in action)
    laws = [
        scipy.stats.uniform(-1, 4).logpdf(action[:, 0]),
        scipy.stats.expon(2).logpdf(action[:, 1]),
        scipy.stats.expon(0).logpdf(5 - action[:, 2]),
        scipy.stats.norm.logpdf(action[:, 3]),
    ]
    np.testing.assert_allclose(log_prob, np.sum(laws, axis=0), rtol=1e-3, atol=1e-3)
    space.seed(0)
    drawn = np.array([space.sample() for _ in range(3000)])
    for i in range(4):
        assert scipy.stats.ks_2samp(action[:, i], drawn[:, i]).pvalue > 1e-3
    outside = policy.log_prob_of(np.float32([[9, 9, 0, 0]]))
    assert outside[0] == -np.inf


@pytest.mark.parametrize(
    "space", [gym.spaces.MultiDiscrete([2, 2]), gym.spaces.Box(0, 1, (2, 2)), gym.spaces.Box(0, 9, (2,), np.int64)]
)
def test_unsupported_spaces(space: gym.Space[object]) -> None:
    with pytest.raises(EnvError, match="is not supported"):
        UniformPolicy(space)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id="CartPole-v1"))


def agent(path: Path, adapter: EnvAdapter, n_actions: int = 2) -> Path:
    torch.manual_seed(1)
    features = adapter.features(np.zeros((1, 4), dtype=np.float32)).shape[1]
    network = ActorCritic(features, n_actions, continuous=False, hidden=(8,))
    for parameter in network.actor.parameters():
        parameter.data *= 40  # far from uniform
    save_policy(path, network)
    return path


def observations(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)


def probabilities(path: Path, adapter: EnvAdapter, observation: np.ndarray) -> np.ndarray:
    from laurel.agents.checkpoint import load_policy

    with torch.inference_mode():
        return torch.softmax(load_policy(path).actor(torch.from_numpy(adapter.features(observation))), 1).numpy()


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_log_prob_is_that_of_the_mixture(tmp_path: Path, adapter: EnvAdapter, epsilon: float) -> None:
    path = agent(tmp_path / "agent", adapter)
    policy = PolicyShare(kind="epsilon_random", epsilon=epsilon, path=path)
    observation = np.repeat(observations(1), 4000, axis=0)
    action, log_prob, value = Behaviour([policy], adapter, 4000, 0).act(observation)
    mixture = epsilon / 2 + (1 - epsilon) * probabilities(path, adapter, observation[:1])[0]
    np.testing.assert_allclose(np.exp(log_prob), mixture[action], rtol=1e-4)
    assert abs(np.mean(action == 0) - mixture[0]) < 4 * np.sqrt(mixture.prod() / 4000) + 1e-9
    assert np.isfinite(value).all()


def test_a_mix_acts_as_its_members_do(tmp_path: Path, adapter: EnvAdapter) -> None:
    path = agent(tmp_path / "agent", adapter)
    mix = [PolicyShare(), PolicyShare(kind="checkpoint", path=path, share=3.0)]
    behaviour = Behaviour(mix, adapter, 8, 0)
    assert behaviour.assignment.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    observation = observations(8)
    action, log_prob, value = behaviour.act(observation)
    chances = probabilities(path, adapter, observation)[np.arange(8), action]
    np.testing.assert_allclose(np.exp(log_prob), [0.5, 0.5, *chances[2:]], rtol=1e-4)
    assert np.isnan(value).tolist() == [True, True, *[False] * 6]
    assert behaviour.digests[0] is None
    assert len(behaviour.digests[1] or "") == 64


def test_same_seed_same_actions(tmp_path: Path, adapter: EnvAdapter) -> None:
    mix = [PolicyShare(), PolicyShare(kind="epsilon_random", path=agent(tmp_path / "agent", adapter))]
    runs = []
    for seed in (0, 0, 1):
        behaviour = Behaviour(mix, adapter, 64, seed)
        runs.append(np.stack([behaviour.act(observations(64))[0] for _ in range(4)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_agents_that_do_not_fit(tmp_path: Path, adapter: EnvAdapter) -> None:
    path = agent(tmp_path / "agent", adapter, n_actions=3)
    with pytest.raises(DataError, match="3 actions, but CartPole-v1 has 4 and 2"):
        Behaviour([PolicyShare(kind="checkpoint", path=path)], adapter, 4, 0)
    with pytest.raises(DataError, match="no such directory; a trained agent is needed"):
        Behaviour([PolicyShare(kind="checkpoint", path=tmp_path / "none")], adapter, 4, 0)


def test_actors_are_asked_where_a_transition_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, act = [], UniformPolicy.act

    def counted(self: UniformPolicy, view: View, rng: np.random.Generator) -> Acted:
        asked.append(int(view.acting.sum()))
        return act(self, view, rng)

    monkeypatch.setattr(UniformPolicy, "act", counted)
    params = EnvParams(id="FrozenLake-v1", backend="gymnasium")
    adapter, written = adapter_for(params), list[Any]()
    with closing(make_vector(params, adapter, 4, 0)) as envs:
        collect_steps(envs, Behaviour([PolicyShare()], adapter, 4, 0), 402, written.append, lambda _: None)
    assert sum(asked) - 402 in range(4), "the last step may take more"
