"""The actor `optimal` takes the shortest path in environments with known transition probabilities."""

from __future__ import annotations

from typing import Any

import pytest

from laurel.agents.actors import make_actor
from laurel.envs import adapter_for
from laurel.errors import EnvError
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams

GRID = {"size": 4, "goal": [1, 1], "heading": True, "slip": 0.0}


def played(env: EnvParams, n_envs: int = 1) -> list[dict[str, Any]]:
    adapter = adapter_for(env)
    actor = make_actor("optimal", adapter, "arms.best.agent")
    return roll_out(env, adapter, actor, n_envs=n_envs, episodes=n_envs, seed=0, learned=None)


def test_it_crosses_the_ice_in_six_steps() -> None:
    (row,) = played(EnvParams(id="FrozenLake-v1", kwargs={"is_slippery": False}))
    assert (row["success"], row["length"]) == (True, 6)


def test_an_optimal_list_of_moves_reaches_the_goal_in_one_step() -> None:
    lists = EnvParams(id="laurel/GridWorld-v0", kwargs={**GRID, "actions": "sequence", "max_moves": 8})
    assert all(row["success"] and row["length"] == 1 for row in played(lists, 60))
    short = EnvParams(id="laurel/GridWorld-v0", kwargs={**GRID, "actions": "sequence", "max_moves": 2})
    moves = EnvParams(id="laurel/GridWorld-v0", kwargs=GRID)
    lengths = [[row["length"] for row in played(env, 16)] for env in (short, moves)]
    assert lengths[0] == [-(-length // 2) for length in lengths[1]], "two moves a list"
    assert max(lengths[1]) > 2


@pytest.mark.parametrize(
    "env", [EnvParams(id="CartPole-v1"), EnvParams(id="Taxi-v3", kwargs={"fickle_passenger": True})]
)
def test_an_unknown_world_is_refused(env: EnvParams) -> None:
    with pytest.raises(EnvError, match=r"has no table of transitions"):
        make_actor("optimal", adapter_for(env), "arms.best.agent")
