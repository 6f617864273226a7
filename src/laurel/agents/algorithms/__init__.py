"""The algorithms that train arms, a file each: `agent.algorithm: NAME`.

Another package adds one by an entry point of the group "laurel.algorithms"; see `laurel.agents.algorithm`. torch is
imported only when a policy or a learner is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import AlgorithmParams
from laurel.params.kinds import ALGORITHMS
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
    """
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(weights_seed(run_seed, seed))
        return algorithm_of(settings).policy(adapter)


def make_learner(policy: PolicyNetwork, settings: AlgorithmParams, rng: np.random.Generator) -> Learner:
    """Return the learner of an `initial_policy` with the same settings."""
    return algorithm_of(settings).learner(policy, rng)
