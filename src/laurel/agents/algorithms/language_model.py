"""A causal language model that is trained to act on states in words (`laurel.agents.language_model`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from laurel.agents.actions import discrete_actions
from laurel.agents.actor import View
from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError
from laurel.extras import need
from laurel.params.judges import HuggingFaceParams
from laurel.params.language_actor import TINY, LanguageActorParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork

CAUSAL = (
    "laurel.llm.causal",
    "transformers.generation.utils",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_tokenizers",
)
"""Modules that are imported to load a Llama and to generate text; most of them serve other language models, too."""
TRAINERS = {
    "dpo": "dpo_trainer",
    "kto": "kto_trainer",
    "simpo": "sft_trainer",  # TRL's experimental module for SimPO announces itself when it is imported
    "infonce": "grpo_trainer",
    "grpo": "grpo_trainer",
    "rloo": "rloo_trainer",
}
"""Loss -> module of `trl.trainer`."""


class LanguageModelAlgorithm(Algorithm[LanguageActorParams]):
    """Fits environments with Discrete actions whose adapters have words for observations."""

    Params = LanguageActorParams
    learner_class = "laurel.agents.language_model.learner:LanguageModelLearner"

    @property
    def packages(self) -> tuple[str, ...]:
        return ("trl", "peft")

    def imports(self, work: Literal["train", "play"]) -> tuple[str, ...]:
        acting = (*CAUSAL, "peft") if self.settings.rank else CAUSAL
        if work == "play":
            return acting
        return (*acting, "trl.trainer.sft_trainer", f"trl.trainer.{TRAINERS[self.settings.loss]}", "scipy.stats")

    def check(self, adapter: EnvAdapter) -> None:
        from laurel.agents.language_model.chain import chain_settings, make_chain
        from laurel.llm.local_model import check_installed

        settings = self.settings
        make_chain(chain_settings(settings), self.move_names(adapter), adapter.max_moves)
        for package in self.packages:
            need(package)
        if settings.model != TINY:
            check_installed(HuggingFaceParams(model=settings.model))

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.language_model.policy import LanguageModelPolicy, make_policy

        return make_policy(self.settings, adapter, self.move_names(adapter), LanguageModelPolicy)

    def move_names(self, adapter: EnvAdapter) -> tuple[str, ...]:
        """Return the names of a list's moves, or of the actions where an action is one move.

        Raises:
            EnvError: the environment has other actions, or no words.
        """
        settings = self.settings
        n_actions = discrete_actions(adapter.action_space, settings.algorithm)
        if settings.answer == "action" and adapter.max_moves > 1:
            raise EnvError(
                f"agent.language_model.answer is action, but an action of {adapter.env_id} is a list of moves. Set it "
                "to moves, code or json."
            )
        assert View(adapter, adapter.blank()).text  # raises if there are no words
        return adapter.action_names if adapter.max_moves > 1 else tuple(map(adapter.action_name, range(n_actions)))


ALGORITHM = LanguageModelAlgorithm
