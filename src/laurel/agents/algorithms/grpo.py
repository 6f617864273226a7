"""Group relative policy optimisation of a language model that writes texts (`laurel.agents.groups`), by TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from laurel.agents.algorithm import Algorithm
from laurel.agents.algorithms.language_model import CAUSAL, TRAINERS
from laurel.envs.base import EnvAdapter
from laurel.envs.completions import text_sizes
from laurel.extras import need
from laurel.params.algorithms import GroupParams, GRPOParams
from laurel.params.judges import HuggingFaceParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork

Settings = TypeVar("Settings", bound=GroupParams)


class GroupAlgorithm(Algorithm[Settings]):
    """Base of grpo and rloo, which differ only in the loss."""

    learner_class = "laurel.agents.groups:GroupLearner"

    @property
    def packages(self) -> tuple[str, ...]:
        return ("trl", "peft")

    def imports(self, work: Literal["train", "play"]) -> tuple[str, ...]:
        return (*CAUSAL, "peft", *((f"trl.trainer.{TRAINERS[self.settings.algorithm]}",) if work == "train" else ()))

    def check(self, adapter: EnvAdapter) -> None:
        from laurel.llm.local_model import check_installed

        self._sizes(adapter)
        for package in self.packages:
            need(package)
        check_installed(HuggingFaceParams(model=self.settings.model))

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.writer import Writer

        settings, sizes = self.settings, self._sizes(adapter)
        return Writer(settings.model, settings.rank, settings.max_tokens, settings.temperature, settings.stop, *sizes)

    def _sizes(self, adapter: EnvAdapter) -> tuple[int, int]:
        return text_sizes(adapter, f"agent.algorithm {self.settings.algorithm}")


class GRPOAlgorithm(GroupAlgorithm[GRPOParams]):
    """Shao et al. 2024, arXiv 2402.03300."""

    Params = GRPOParams


ALGORITHM = GRPOAlgorithm
