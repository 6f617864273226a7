"""PPO on a language model that chooses by how likely each action's name is (`laurel.agents.language_model.glam`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from laurel.agents.actions import discrete_actions
from laurel.agents.algorithm import Algorithm
from laurel.agents.algorithms.language_model import CAUSAL, LanguageModelAlgorithm
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError
from laurel.extras import need
from laurel.params.judges import HuggingFaceParams
from laurel.params.language_actor import TINY, GLAMParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class GLAMAlgorithm(Algorithm[GLAMParams]):
    """Fits environments with Discrete actions whose adapters have words for observations."""

    Params = GLAMParams
    learner_class = "laurel.agents.language_model.glam:GLAM"

    @property
    def packages(self) -> tuple[str, ...]:
        return ("peft",) if self.settings.rank else ()

    def imports(self, work: Literal["train", "play"]) -> tuple[str, ...]:
        return (*CAUSAL, *self.packages)

    def check(self, adapter: EnvAdapter) -> None:
        from laurel.agents.language_model.chain import chain_settings
        from laurel.llm.local_model import check_installed

        settings = self.settings
        chain_settings(settings.asked)
        self._names(adapter)
        for package in self.packages:
            need(package)
        if settings.model != TINY:
            check_installed(HuggingFaceParams(model=settings.model))

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.language_model.glam import LikelihoodPolicy
        from laurel.agents.language_model.policy import make_policy

        return make_policy(self.settings.asked, adapter, self._names(adapter), LikelihoodPolicy)

    def _names(self, adapter: EnvAdapter) -> tuple[str, ...]:
        """Return the names of the actions; raise EnvError where actions are not discrete or have no names."""
        discrete_actions(adapter.action_space, self.settings.algorithm)
        if adapter.max_moves > 1:
            raise EnvError(
                f"agent.algorithm is glam, which reads the names of all actions, but an action of {adapter.env_id} is "
                "a list of moves. Set env.kwargs.actions to moves, or agent.algorithm to language_model."
            )
        return LanguageModelAlgorithm(self.settings.asked).move_names(adapter)


ALGORITHM = GLAMAlgorithm
