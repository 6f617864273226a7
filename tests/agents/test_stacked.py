"""Stacked actor-critics: outputs and gradients against PyTorch's own, on NumPy arrays and on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.agents.policy import ActorCritic
from laurel.agents.stacked import ACTOR, CRITIC, Pass, Stack

torch.set_num_threads(1)
ARRAYS = pytest.mark.parametrize("arrays", [np, torch], ids=["numpy", "torch"])
SHAPES = st.tuples(
    st.integers(1, 3),  # policies
    st.integers(1, 9),  # rows
    st.integers(1, 5),  # features
    st.integers(1, 4),  # actions
    st.lists(st.integers(1, 6), max_size=3).map(tuple),  # hidden
    st.booleans(),
)
Shape = tuple[int, int, int, int, tuple[int, ...], bool]


def policies_of(shape: Shape) -> list[ActorCritic]:
    n, _, n_features, n_actions, hidden, continuous = shape
    made = [ActorCritic(n_features, n_actions, continuous=continuous, hidden=hidden) for _ in range(n)]
    with torch.no_grad():
        for policy in made:
            for parameter in policy.parameters():
                parameter.normal_(0, 0.7)  # biases, too, which begin as zeros
    return made


def host(array: Any) -> np.ndarray:
    return np.asarray(array)


@ARRAYS
@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(0, 2**31 - 1))
def test_outputs_and_gradients_are_those_of_autograd(arrays: Any, shape: Shape, seed: int) -> None:
    torch.manual_seed(seed)
    n, batch, n_features, n_actions, *_ = shape
    policies = policies_of(shape)
    features = torch.randn(n, batch, n_features)
    d_output, d_value = torch.randn(n, n_actions, batch), torch.randn(n, 1, batch)
    expected = []
    for s, policy in enumerate(policies):
        output, value = policy.actor(features[s]), policy.critic(features[s])
        policy.zero_grad()
        ((output * d_output[s].T).sum() + (value * d_value[s].T).sum()).backward()
        gradients = {name: None if p.grad is None else p.grad.clone() for name, p in policy.named_parameters()}
        expected.append((output.detach(), value.detach(), gradients))

    with torch.no_grad():
        stack = Stack(policies, arrays)
        work, gradient = Pass(stack, slice(0, n), batch), stack.zeros(n, stack.n_weights)
        work.forward(stack.put(features.numpy()))
        for s, (output, value, _) in enumerate(expected):
            np.testing.assert_allclose(host(work.output[s]).T, output, atol=1e-4)
            np.testing.assert_allclose(host(work.value[s]).T, value, atol=1e-4)
        work.backward(stack.put(d_output.numpy()), stack.put(d_value.numpy()), stack.split(gradient))
    for s, (_, _, gradients) in enumerate(expected):
        found = stack.named(gradient, s)
        assert set(found) == set(gradients)
        for name, wanted in gradients.items():
            if wanted is not None:  # the output does not depend on log_std
                np.testing.assert_allclose(found[name], wanted, atol=1e-3, rtol=1e-3)


@ARRAYS
def test_a_pass_of_the_actor_or_critic_alone_equals_its_network(arrays: Any) -> None:
    policies = policies_of((2, 5, 3, 4, (6, 6), False))
    with torch.no_grad():
        stack, features = Stack(policies, arrays), torch.randn(2, 5, 3)
        for s, policy in enumerate(policies):
            actor, critic = (Pass(stack, slice(s, s + 1), 5, body) for body in (ACTOR, CRITIC))
            for work in (actor, critic):
                work.forward(stack.put(features[s : s + 1].numpy()))
            np.testing.assert_allclose(host(actor.output[0]).T, policy.actor(features[s]), atol=1e-5)
            np.testing.assert_allclose(host(critic.value[0]).T, policy.critic(features[s]), atol=1e-5)
            assert not host(actor.value).any()
            assert not host(critic.output).any()


@ARRAYS
def test_policies_and_rows_are_the_same_numbers(arrays: Any) -> None:
    policies = policies_of((3, 1, 2, 2, (4,), True))
    before = [{name: weight.clone() for name, weight in policy.state_dict().items()} for policy in policies]
    with torch.no_grad():
        stack = Stack(policies, arrays)
        for policy, weights in zip(policies, before, strict=True):
            assert all(torch.equal(weight, weights[name]) for name, weight in policy.state_dict().items())
        stack.weights[1] += 1
        policies[2].load_state_dict(before[0])
    assert all(torch.equal(w, before[1][name] + 1) for name, w in policies[1].state_dict().items())
    for name, view in stack.named(stack.weights, 2).items():
        assert torch.equal(view, before[0][name])
    assert sum(weight.numel() for weight in before[0].values()) == stack.n_weights


def test_rows_do_not_depend_on_their_neighbours() -> None:
    """To the bit: the sizes are those of real networks, whose matrix products are computed in blocks."""
    shape: Shape = (5, 512, 147, 7, (64, 64), False)
    policies = policies_of(shape)
    features = np.random.default_rng(0).normal(size=(5, 512, 147)).astype(np.float32)
    together = Stack(policies)
    work, gradient = Pass(together, slice(0, 5), 512), together.zeros(5, together.n_weights)
    work.forward(features)
    output, value = work.output.copy(), work.value.copy()
    work.backward(output, value, together.split(gradient))
    for s, policy in enumerate(policies):
        alone = Stack([policy])
        work, own_gradient = Pass(alone, slice(0, 1), 512), alone.zeros(1, alone.n_weights)
        work.forward(features[s : s + 1])
        assert np.array_equal(work.output[0], output[s])
        assert np.array_equal(work.value[0], value[s])
        work.backward(work.output.copy(), work.value.copy(), alone.split(own_gradient))
        assert np.array_equal(own_gradient[0], gradient[s])
