"""Six methods with a table of action values, for small state spaces (`laurel.agents.table`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.agents.algorithm import Algorithm
from laurel.agents.tabular.states import table_form
from laurel.envs.base import EnvAdapter
from laurel.params.algorithms import TabularParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class TabularAlgorithm(Algorithm[TabularParams]):
    """A row of action values for each state."""

    Params = TabularParams
    learner_class = "laurel.agents.table:Tabular"

    def check(self, adapter: EnvAdapter) -> None:
        table_form(adapter)

    def policy(self, adapter: EnvAdapter) -> PolicyNetwork:
        from laurel.agents.table import make_table

        return make_table(adapter, self.settings)


ALGORITHM = TabularAlgorithm
