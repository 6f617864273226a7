"""A sweep on KFP: candidates are drawn when the pipeline is compiled, and each has its own branch.

A search that uses the results of earlier trials cannot be drawn in advance: `laurel tune` does that, on one machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.search import Sweep
from laurel.stages.merge_agents import MAX_BRANCHES
from laurel.tuning.candidates import Candidate, candidates
from laurel.tuning.plan import Search, sweep_of


@dataclass(frozen=True)
class SweepPlan:
    """The search of a sweep."""

    sweep: Sweep
    candidates: tuple[Candidate, ...]

    @property
    def written(self) -> str:
        """Settings shared by all branches, as the steps read them."""
        return json.dumps(self.sweep.write())

    @property
    def branches(self) -> list[str]:
        """Each candidate as its step reads it."""
        return [json.dumps({"number": number, "values": values}) for number, values in enumerate(self.candidates)]

    @staticmethod
    def read(written: str, branches: Sequence[str]) -> SweepPlan:
        """Read what a pipeline was compiled with: `written` and `branches`."""
        return SweepPlan(Sweep.read(json.loads(written)), tuple(json.loads(branch)["values"] for branch in branches))


def plan_sweep(params: Params, search: Search) -> SweepPlan:
    """Draw the candidates; checks the search space.

    Raises:
        ParamsError: something is not allowed, or there are more candidates than KFP's backends collect.
    """
    if search.trials > MAX_BRANCHES:
        raise ParamsError(
            f"--sweep is {search.trials}, but at most {MAX_BRANCHES} branches can be collected. Split the "
            "ranges over several sweeps, or run laurel tune on one machine."
        )
    sweep = sweep_of(params, search)
    drawn = candidates(sweep.space, params, search.trials, search.sampler, params.seed)
    return SweepPlan(sweep, tuple(drawn))
