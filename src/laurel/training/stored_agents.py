"""Checks of what another package's algorithm leaves in a checkpoint, from which the agent is resumed and evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laurel.agents.checkpoint import load_policy
from laurel.agents.learner import Learner, PolicyNetwork
from laurel.arrays import FloatArray
from laurel.errors import PluginError
from laurel.plugins import in_short, is_ours, returned_wrongly


def state_of(learner: Learner) -> Mapping[str, Tensor]:
    """Return a learner's state in a form that can be stored.

    Raises:
        PluginError: another package's learner returned something else than named tensors.
    """
    state: Any = learner.state()
    if is_ours(type(learner)):
        return dict(state)
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        needed = "a mapping of names to torch tensors is required; {} if there is nothing to keep"
        raise returned_wrongly("learner", learner, "state", in_short(state), needed)
    return {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}


def finite(policy: PolicyNetwork) -> bool:
    """Whether no weight is NaN or infinite."""
    return all(bool(torch.isfinite(weights).all()) for weights in policy.parameters())


def check_stored(directory: Path, policy: PolicyNetwork, features: FloatArray) -> None:
    """Check that the policy that was stored in a directory acts as the one in training, if it is another package's.

    Args:
        features: (N, F) to act on.

    Raises:
        PluginError: it does not, so the agent that is evaluated would not be the one that was trained.
    """
    kind = type(policy)
    if is_ours(kind) or kind.actor_in is not PolicyNetwork.actor_in or kind.as_actor is not PolicyNetwork.as_actor:
        return
    if any(weights.device.type != "cpu" for weights in policy.parameters()):  # which rounds differently
        return
    stored = load_policy(directory)
    # by the likeliest actions, which need no random numbers: a policy may draw them from another source than `rng`
    trained, loaded = (network.act(features, np.random.default_rng(0), greedy=True) for network in (policy, stored))
    if not all(map(_same, trained, loaded)):
        raise PluginError(
            f"The policy {kind.__module__}.{kind.__qualname__}: loaded from its checkpoint, it acts differently, "
            "so the agent that was trained could not be evaluated. Keep all that it learns in parameters or "
            "buffers of the network, or in the attributes that its constructor takes."
        )


def _same(trained: Any, loaded: Any) -> bool:
    return bool(
        np.allclose(np.asarray(trained, float), np.asarray(loaded, float), rtol=1e-4, atol=1e-6, equal_nan=True)
    )
