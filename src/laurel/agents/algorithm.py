"""The interface of algorithms that train arms: settings, the initial policy, and the learner.

Each algorithm is a module that binds a subclass of `Algorithm` to ALGORITHM: a file of `laurel.agents.algorithms`, or
an entry point of the group "laurel.algorithms" in another package. Params and environment are checked against the class
before anything is collected, so Laurel's own algorithms import torch only within functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from laurel.agents.actions import action_form
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import A2CParams, AlgorithmParams, ReinforceParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork

Settings = TypeVar("Settings", bound=AlgorithmParams)
Plain = TypeVar("Plain", A2CParams, ReinforceParams)


class Algorithm(ABC, Generic[Settings]):
    """How an agent is trained.

    Args:
        settings: an instance of `Params`.
    """

    Params: ClassVar[type[AlgorithmParams]]
    """Its section, `agent.NAME`; has a default for every setting."""
    Network: ClassVar[type[PolicyNetwork] | None] = None
    """The policy class for loading agents from disk, if `laurel.agents.checkpoint` does not know it; its `kind` must be
    the algorithm's name."""

    learner_class: ClassVar[str]
    """Module and class of its learner, as "laurel.agents.a2c:A2C"; imported when it is made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def packages(self) -> tuple[str, ...]:
        """Python packages that it needs and that images contain only if built with them."""
        return ()

    def imports(self, work: Literal["train", "play"]) -> tuple[str, ...]:
        """Return further modules that processes import to train its agents or to play episodes with them.

        They are imported once, not by each process: list those that take seconds.
        """
        return ()

    def check(self, adapter: EnvAdapter) -> None:
        """Refuse an environment that it cannot learn in; actions may be Discrete or a flat Box.

        Raises:
            EnvError: it does not fit the environment's observations or actions.
        """
        action_form(adapter.action_space)

    @abstractmethod
    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        """Return the initial policy; its weights are drawn from torch's global generator.

        Raises:
            EnvError: it does not fit the environment's observations or actions.
        """

    def learner(self, policy: Any, rng: np.random.Generator) -> Learner:
        """Return the learner that improves a `policy` of the same settings; `rng` draws actions."""
        learner: Learner = resolve_name(self.learner_class)(policy, self.settings, rng)
        return learner


class PlainActorCritic(Algorithm[Plain]):
    """Base of algorithms whose policy is an MLP actor-critic."""

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.policy import make_network

        return make_network(adapter.n_features, adapter.action_space, self.settings.hidden)
