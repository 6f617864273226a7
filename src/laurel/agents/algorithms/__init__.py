"""The algorithms that train arms, a file each: `agent.algorithm: NAME`.

Another package adds one by an entry point of the group "laurel.algorithms"; see `laurel.agents.algorithm`. torch is
imported only when a policy or a learner is made.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.errors import PluginError, first_line
from laurel.params.algorithms import AlgorithmParams
from laurel.params.kinds import ALGORITHMS
from laurel.plugins import in_short, is_ours, returned_wrongly
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork


def algorithm_of(settings: AlgorithmParams) -> Algorithm[Any]:
    """Return the algorithm that these settings belong to."""
    kind: type[Algorithm[Any]] = ALGORITHMS.load(settings.algorithm, "agent.algorithm")
    return kind(settings)


def weights_seed(run_seed: int, seed: int) -> int:
    """Return torch's seed for the initial weights of training with a seed."""
    return derive_seed(run_seed, "agent", seed, "weights")


def initial_policy(adapter: EnvAdapter, settings: AlgorithmParams, run_seed: int, seed: int) -> PolicyNetwork:
    """Return the initial policy for a seed, the same for all arms.

    Raises:
        EnvError: the algorithm does not fit the environment's observations or actions.
        PluginError: another package's algorithm returns something else, or a policy that could not be loaded again.
    """
    import torch

    from laurel.agents.checkpoint import can_be_loaded
    from laurel.agents.learner import PolicyNetwork

    algorithm = algorithm_of(settings)
    with torch.random.fork_rng():
        torch.manual_seed(weights_seed(run_seed, seed))
        policy = algorithm.policy(adapter)
    if not is_ours(type(algorithm)):
        _require(policy, PolicyNetwork, algorithm, "policy")
        if not can_be_loaded(policy):
            raise PluginError(
                f"{_named(algorithm)}: its policy, {type(policy).__qualname__} of the kind {policy.kind!r}, could not "
                f"be loaded after training. Bind the class to the algorithm's Network, and set the class's kind to "
                f"{settings.algorithm!r}."
            )
        _check_config(policy, algorithm)
    return policy


def _check_config(policy: PolicyNetwork, algorithm: Algorithm[Any]) -> None:
    try:
        json.dumps(policy.config())
    except (AttributeError, TypeError, ValueError) as error:
        raise PluginError(
            f"{_named(algorithm)}: the config of its policy, {type(policy).__qualname__}, cannot be stored: "
            f"{first_line(error)}. Keep each argument of the constructor in an attribute of the same name, with a "
            "value that JSON can hold, such as int instead of numpy.int64."
        ) from None


def make_learner(policy: PolicyNetwork, settings: AlgorithmParams, rng: np.random.Generator) -> Learner:
    """Return the learner of an `initial_policy` with the same settings.

    Raises:
        PluginError: another package's algorithm returns something else.
    """
    from laurel.agents.learner import Learner

    algorithm = algorithm_of(settings)
    learner = algorithm.learner(policy, rng)
    _require(learner, Learner, algorithm, "learner")
    return learner


def _require(returned: object, kind: type, algorithm: Algorithm[Any], method: str) -> None:
    if not isinstance(returned, kind):
        raise returned_wrongly("algorithm", algorithm, method, in_short(returned), f"a {kind.__name__} is required")


def _named(algorithm: Algorithm[Any]) -> str:
    return f"The algorithm {type(algorithm).__module__}.{type(algorithm).__qualname__}"
