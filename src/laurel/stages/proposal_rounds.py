"""Which language-model actors sample each round's proposals in tasks of their own, on KFP: those with several shards.

A KFP loop cannot stop depending on its results, so the rounds are unrolled in the compiled graph.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.language_actor import LanguageActorParams
from laurel.stages.merge_agents import MAX_BRANCHES, Branch, branches
from laurel.training.engines import steps_of
from laurel.training.task import steps_per_update

MAX_ROUNDS = 32
"""Maximum number of unrolled rounds: a cluster's KFP passes a loop as one process argument, at most 128 kB in Linux,
and each round takes 3 kB."""


@dataclass(frozen=True)
class ProposalRounds:
    """The rounds and shards in the graph; the same for all of these agents."""

    agents: tuple[Branch, ...]
    """A branch of one seed each."""
    first: int
    """Rounds of random actions, which the first task trains: nothing is sampled for them."""
    rounds: int
    """All rounds."""
    shards: int
    alone: bool
    """Whether no other agents are trained."""

    @staticmethod
    def of(params: Params) -> ProposalRounds | None:
        """Return what parameters ask for; None if no proposals are sampled in tasks of their own.

        Actors with a curriculum are trained in one task: each task would ask its judge again.

        Raises:
            ParamsError: the rounds do not fit into one graph.
        """
        trained = {name: arm.agent for name, arm in params.resolved_arms.items() if arm.trained}
        rounds_of: dict[str, tuple[int, int, int]] = {}
        for name, agent in trained.items():
            settings = agent.settings
            if isinstance(settings, LanguageActorParams) and settings.shards > 1 and agent.curriculum is None:
                rounds = steps_of(params.resolved_arms[name]) // steps_per_update(settings)
                rounds_of[name] = min(settings.imitation_rounds, rounds), rounds, settings.shards
        if not rounds_of:
            return None
        if len(set(rounds_of.values())) > 1:
            raise ParamsError(
                f"The arms {', '.join(rounds_of)} have agent.language_model.shards, but differ in rounds, "
                "imitation_rounds or shards, which one graph cannot hold. Give them the same, or compile a pipeline "
                "for each."
            )
        first, rounds, shards = next(iter(rounds_of.values()))
        if rounds - first > MAX_ROUNDS:
            raise ParamsError(
                f"agent.language_model.shards is {shards}, and {', '.join(rounds_of)} would be trained in {rounds:,} "
                f"rounds, but at most {MAX_ROUNDS} after the first fit into a graph. Lower agent.steps, raise n_envs "
                "or n_steps, or set shards to 1."
            )
        agents = tuple(Branch(name, (seed,)) for name in rounds_of for seed in params.agent.seeds)
        if len(agents) > MAX_BRANCHES:
            raise ParamsError(
                f"agent.language_model.shards is {shards} for {len(agents)} agents, but at most {MAX_BRANCHES} can be "
                "collected. Train fewer arms or seeds, or set shards to 1."
            )
        return ProposalRounds(agents, first, rounds, shards, alone=len(rounds_of) == len(trained))

    def write(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**vars(self), "agents": [agent.write() for agent in self.agents]}


def branches_beside(params: Params, rounds: str, seeds_per_step: int) -> list[Branch]:
    """Return the branches of agents that the compiled rounds do not train.

    Args:
        rounds: a `ProposalRounds` as it was compiled, as JSON; empty: none, so that all agents are of branches.
        seeds_per_step: seeds of an arm that share a branch; 0 stands for all.

    Raises:
        ParamsError: the pipeline was compiled for other rounds than the parameters ask for.
    """
    arms = params.arms
    if rounds:
        asked = ProposalRounds.of(params)
        if asked is None or asked.write() != json.loads(rounds):
            raise ParamsError(
                "The pipeline was compiled with agents, rounds or shards of agent.language_model that differ from "
                "these parameters'. Compile it again."
            )
        if asked.alone:
            return []
        in_rounds = {agent.arm for agent in asked.agents}
        arms = tuple(arm for arm in arms if arm.name not in in_rounds)
    return branches(arms, params.agent.seeds, seeds_per_step or None)
