"""The actor-critic: actions are drawn from the distribution whose probabilities it reports."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from laurel.agents.policy import ActorCritic, make_network
from laurel.errors import EnvError

N_FEATURES = 4


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def network(n_actions: int = 3, *, continuous: bool = False, spread: float = 1.0) -> ActorCritic:
    """Make a network whose outputs differ from feature row to feature row."""
    torch.manual_seed(0)
    made = ActorCritic(N_FEATURES, n_actions, continuous=continuous, hidden=(8,))
    with torch.no_grad():
        made.actor[-1].weight.normal_(0, spread)
        made.actor[-1].bias.normal_(0, spread)
        if made.log_std is not None:
            made.log_std.copy_(torch.linspace(-1, 0.5, n_actions))
    return made


def network_with_logits(logits: list[float]) -> ActorCritic:
    """Make a network that gives these logits whatever it sees."""
    made = ActorCritic(1, len(logits), continuous=False, hidden=())
    with torch.no_grad():
        made.actor[0].weight.zero_()
        made.actor[0].bias.copy_(torch.tensor(logits))
    return made


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, N_FEATURES)).astype(np.float32)


class Constant(np.random.Generator):
    """Draws the same number again and again."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, size: object = None, dtype: object = np.float64, out: object = None) -> np.ndarray:
        return np.full(size, self.number, dtype=dtype)


# -- categorical ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("logits", [[0.0, 0.0, 0.0], [2.0, -1.0, 0.5, 0.0], [-3.0, 3.0]])
def test_actions_come_as_often_as_the_softmax_says(logits: list[float]) -> None:
    n = 100_000
    action, _, _ = network_with_logits(logits).act(np.zeros((n, 1), np.float32), np.random.default_rng(1))
    expected = n * torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=0).numpy()
    assert stats.chisquare(np.bincount(action, minlength=len(logits)), expected).pvalue > 1e-3


def test_every_row_is_drawn_on_its_own() -> None:
    """Two rows with opposite logits in one batch: neither takes the other's action."""
    made = ActorCritic(2, 2, continuous=False, hidden=())
    with torch.no_grad():
        made.actor[0].weight.copy_(torch.tensor([[50.0, -50.0], [-50.0, 50.0]]))
    features = np.eye(2, dtype=np.float32)[np.arange(1000) % 2]
    action, _, _ = made.act(features, np.random.default_rng(0))
    assert np.array_equal(action, np.arange(1000) % 2)
    draws, _, _ = network_with_logits([0.0, 0.0]).act(np.zeros((1000, 1), np.float32), np.random.default_rng(0))
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.1


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32) | st.floats(-20, 20, width=32), min_size=1, max_size=8),
    st.sampled_from([0.0, 2.0**-24, 0.5, 1 - 2.0**-24]) | st.floats(0, 1 - 2.0**-24, width=32),
)
@example([0.0] * 5 + [-1e4], 1 - 2.0**-24)  # five times 1/5 adds up to less than 1
def test_no_draw_falls_outside_or_on_an_impossible_action(logits: list[float], draw: float) -> None:
    action, log_prob, _ = network_with_logits(logits).act(np.zeros((2, 1), np.float32), Constant(draw))
    assert action.shape == (2,)
    assert ((action >= 0) & (action < len(logits))).all()
    assert (np.exp(log_prob) > 0).all()


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=6, unique=True))
def test_greedy_takes_the_likeliest(logits: list[int]) -> None:
    made = network_with_logits([float(logit) for logit in logits])
    action, _, _ = made.act(np.zeros((3, 1), np.float32), np.random.default_rng(0), greedy=True)
    assert action.tolist() == [int(np.argmax(logits))] * 3


# -- Gaussian -------------------------------------------------------------------------------------------------
def test_continuous_actions_are_normally_distributed() -> None:
    made = network(2, continuous=True)
    features = np.repeat(rows(1), 50_000, axis=0)
    action, _, _ = made.act(features, np.random.default_rng(2))
    with torch.inference_mode():
        mean, std = made.actor(torch.from_numpy(features[:1]))[0].numpy(), made.log_std.exp().numpy()
    for i in range(2):
        assert stats.kstest(action[:, i], "norm", args=(mean[i], std[i])).pvalue > 1e-3
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.02


def test_greedy_takes_the_mean() -> None:
    made = network(2, continuous=True)
    features = rows(5)
    action, _, _ = made.act(features, np.random.default_rng(0), greedy=True)
    with torch.inference_mode():
        assert np.array_equal(action, made.actor(torch.from_numpy(features)).numpy())


# -- both -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_what_act_reports_is_what_forward_computes(continuous: bool, greedy: bool) -> None:
    made, features = network(continuous=continuous), rows(64)
    action, log_prob, value = made.act(features, np.random.default_rng(0), greedy=greedy)
    assert action.shape == (64, *made.action_shape)
    assert action.dtype == made.action_dtype
    again, _, value_again = made(torch.from_numpy(features), torch.from_numpy(action))
    np.testing.assert_allclose(log_prob, again.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, value_again.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, made.evaluate(features), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("continuous", [False, True])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.01, 20))
def test_log_probabilities_and_entropies_are_those_of_torch(continuous: bool, seed: int, spread: float) -> None:
    made, features = network(continuous=continuous, spread=spread), torch.from_numpy(rows(16, seed))
    with torch.no_grad():
        output = made.actor(features)
    if made.log_std is None:
        expected: torch.distributions.Distribution = torch.distributions.Categorical(logits=output)
    else:
        deviation = made.log_std.detach().exp()
        expected = torch.distributions.Independent(torch.distributions.Normal(output, deviation), 1)
    torch.manual_seed(seed)
    action = expected.sample()
    log_prob, entropy, _ = made(features, action)
    torch.testing.assert_close(log_prob.detach(), expected.log_prob(action), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy.detach(), expected.entropy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("continuous", [False, True])
def test_same_generator_same_actions(continuous: bool) -> None:
    made, features = network(continuous=continuous), rows(200)
    first, second, other = (made.act(features, np.random.default_rng(seed))[0] for seed in (5, 5, 6))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("continuous", [False, True])
def test_every_parameter_gets_a_gradient(continuous: bool) -> None:
    made, features = network(continuous=continuous), rows(8)
    action, _, _ = made.act(features, np.random.default_rng(0))
    log_prob, entropy, value = made(torch.from_numpy(features), torch.from_numpy(action))
    (log_prob + entropy + value).sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


# -- making one -------------------------------------------------------------------------------------------------
def test_the_network_begins_nearly_uniform_and_orthogonal() -> None:
    torch.manual_seed(0)
    made = ActorCritic(6, 5, continuous=False, hidden=(32, 16))
    with torch.inference_mode():
        probability = torch.softmax(made.actor(torch.randn(100, 6)), dim=1)
    assert (probability - 0.2).abs().max() < 0.02
    layers = [[layer for layer in body if isinstance(layer, nn.Linear)] for body in (made.actor, made.critic)]
    assert [[layer.out_features for layer in body] for body in layers] == [[32, 16, 5], [32, 16, 1]]
    for body, last_gain in zip(layers, (0.01, 1.0), strict=True):
        for layer, gain in zip(body, (math.sqrt(2), math.sqrt(2), last_gain), strict=True):
            singular = torch.linalg.svdvals(layer.weight.detach())
            torch.testing.assert_close(singular, torch.full_like(singular, gain), rtol=1e-4, atol=1e-5)
            assert not layer.bias.detach().any()


def test_a_network_is_made_again_from_its_configuration() -> None:
    made = network(continuous=True)
    again = ActorCritic(**made.config())
    again.load_state_dict(made.state_dict())
    assert np.array_equal(made.evaluate(rows(5)), again.evaluate(rows(5)))


@pytest.mark.parametrize(
    ("space", "shape", "continuous"),
    [(gym.spaces.Discrete(4), (), False), (gym.spaces.Box(-1, 1, (2,), np.float32), (2,), True)],
)
def test_action_spaces(space: gym.Space, shape: tuple[int, ...], continuous: bool) -> None:
    made = make_network(N_FEATURES, space, (8,))
    assert made.continuous == continuous
    assert made.action_shape == shape
    action, _, _ = made.act(rows(3), np.random.default_rng(0))
    assert action.shape == (3, *shape)


@pytest.mark.parametrize(
    "space",
    [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-1, 1, (2, 2), np.float32), gym.spaces.Discrete(3, start=1)],
)
def test_other_action_spaces_are_refused(space: gym.Space) -> None:
    with pytest.raises(EnvError, match=r"not supported.*Discrete.*Box") as caught:
        make_network(N_FEATURES, space, (8,))
    assert str(space) in str(caught.value)
