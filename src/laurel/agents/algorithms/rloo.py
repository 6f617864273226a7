"""REINFORCE leave-one-out of a language model that writes texts (`laurel.agents.groups`), by TRL."""

from __future__ import annotations

from laurel.agents.algorithms.grpo import GroupAlgorithm
from laurel.params.algorithms import RLOOParams


class RLOOAlgorithm(GroupAlgorithm[RLOOParams]):
    """Ahmadian et al. 2024, arXiv 2402.14740."""

    Params = RLOOParams


ALGORITHM = RLOOAlgorithm
