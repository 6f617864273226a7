"""Proximal policy optimisation with an MLP, a CNN or a recurrent network (`laurel.agents.ppo`)."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError
from laurel.params.algorithms import PPOParams

if TYPE_CHECKING:
    from laurel.agents.images import Image
    from laurel.agents.learner import Learner, PolicyNetwork


class PPOAlgorithm(Algorithm[PPOParams]):
    """Chooses PPO's network and learner by the settings and the observations."""

    Params = PPOParams

    def check(self, adapter: EnvAdapter) -> None:
        super().check(adapter)
        settings = self.settings
        if settings.network == "cnn":
            self.policy(adapter)  # needed to find images; imports torch
        if settings.hints is not None and not self._takes_hints(self.policy(adapter)):
            raise EnvError(
                f"agent.ppo.hints: {adapter.env_id} has continuous actions or images, but hints only work with "
                f"discrete actions and an MLP. Leave out the hints."
            )

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.images import SMALLEST, ImageActorCritic, images_in
        from laurel.agents.policy import make_network
        from laurel.agents.recurrent import RecurrentActorCritic

        n_features, settings = adapter.n_features, self.settings
        mlp = make_network(n_features, adapter.action_space, settings.hidden)
        images: tuple[Image, ...] = ()
        if settings.network != "mlp":
            images = images_in(adapter, smallest=SMALLEST if settings.network == "auto" else 1)
        if settings.network == "cnn" and not images:
            raise EnvError(
                f"agent.ppo.network is cnn, but the features of {adapter.env_id} contain no image (a uint8 array with "
                f"two or three dimensions). Set it to auto or mlp."
            )
        shape: dict[str, Any] = {"continuous": mlp.continuous, "hidden": settings.hidden}
        places = tuple(image.config() for image in images)
        if settings.recurrent:
            return RecurrentActorCritic(n_features, mlp.n_actions, images=places, **shape)
        return ImageActorCritic(n_features, mlp.n_actions, images=places, **shape) if images else mlp

    def learner(self, policy: Any, rng: np.random.Generator) -> Learner:
        learner: Learner = resolve_name(policy.ppo_class)(policy, self.settings, rng)
        return learner

    @staticmethod
    def _takes_hints(policy: Any) -> bool:
        return not policy.continuous and bool(resolve_name(policy.ppo_class).takes_hints)


ALGORITHM = PPOAlgorithm
