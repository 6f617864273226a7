"""Group relative policy optimisation of a language model that writes texts (`laurel.agents.groups`), by TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from laurel.agents.algorithm import Algorithm
from laurel.envs.base import EnvAdapter
from laurel.envs.completions import text_sizes
from laurel.extras import need
from laurel.params.algorithms import GroupParams, GRPOParams

if TYPE_CHECKING:
    from laurel.agents.learner import Learner, PolicyNetwork

Settings = TypeVar("Settings", bound=GroupParams)


class GroupAlgorithm(Algorithm[Settings]):
    """What grpo and rloo have in common: all but the loss, which goes by the name."""

    Params: ClassVar[type[GroupParams]]

    def check(self, settings: Settings, adapter: EnvAdapter) -> None:
        from laurel.llm.local_model import check_installed
        from laurel.params.judges import HuggingFaceParams

        text_sizes(adapter, f"agent.algorithm {settings.algorithm}")
        need("trl")
        need("peft")
        check_installed(HuggingFaceParams(model=settings.model))

    def policy(self, settings: Settings, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.writer import Writer

        own = settings
        return Writer(
            own.model, own.rank, own.max_tokens, own.temperature, own.stop, *text_sizes(adapter, own.algorithm)
        )

    def learner(self, settings: Settings, policy: Any, rng: np.random.Generator) -> Learner:
        from laurel.agents.groups import GroupLearner

        return GroupLearner(policy, settings, rng)


class GRPOAlgorithm(GroupAlgorithm[GRPOParams]):
    """Shao et al. 2024, arXiv 2402.03300."""

    Params = GRPOParams


ALGORITHM = GRPOAlgorithm
