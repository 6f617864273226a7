"""A causal language model that is trained to act on states in words (`laurel.agents.language_model`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.actions import discrete_actions
from laurel.agents.actor import View
from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError
from laurel.extras import need
from laurel.params.language_actor import TINY, LanguageActorParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork


class LanguageModelAlgorithm(Algorithm[LanguageActorParams]):
    """Fits environments with Discrete actions whose adapters have words for observations."""

    Params = LanguageActorParams

    def check(self, settings: LanguageActorParams, adapter: EnvAdapter) -> None:
        from laurel.agents.language_model.policy import chain_settings, make_chain, move_names
        from laurel.llm.local_model import check_installed
        from laurel.params.judges import HuggingFaceParams

        discrete_actions(adapter.action_space, settings.algorithm)
        if settings.answer == "action" and adapter.max_moves > 1:
            raise EnvError(
                f"agent.language_model.answer is action, but an action of {adapter.env_id} is a list of moves. Set it "
                "to moves, code or json."
            )
        blank = np.zeros((1, adapter.observation_size), dtype=adapter.observation_dtype)
        assert View(adapter, blank).text  # raises where there are no words
        make_chain(chain_settings(settings), move_names(adapter), adapter.max_moves)
        for package in ("peft", "trl"):
            need(package)
        if settings.model != TINY:
            check_installed(HuggingFaceParams(model=settings.model))

    def policy(self, settings: LanguageActorParams, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.language_model.policy import make_policy

        return make_policy(settings, adapter)

    def learner(self, settings: LanguageActorParams, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.language_model.learner import LanguageModelLearner

        return LanguageModelLearner(policy, settings, rng)


ALGORITHM = LanguageModelAlgorithm
