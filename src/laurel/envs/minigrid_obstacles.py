"""MiniGrid's dynamic obstacles: balls roll before the agent moves, and one that rolls in front of it stops it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laurel.arrays import Array, BoolArray, IntArray
from laurel.envs.base import Transitions
from laurel.envs.minigrid import MiniGridAdapter, cell_of
from laurel.envs.minigrid_codes import (
    ACTIONS,
    BALL,
    FORWARD,
    FRONT,
    GOAL,
    IMAGE,
    NOTHING,
    VIEW,
    WALL,
)


class ObstaclesAdapter(MiniGridAdapter):
    """The agent turns and walks; nothing can be picked up."""

    ids = ("MiniGrid-Dynamic-Obstacles-*",)
    version = 3
    action_names = ACTIONS[: FORWARD + 1]

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation, transitions.next_observation
        in_the_way = cell_of(after, FRONT)
        stopped = (transitions.action == FORWARD) & (in_the_way[:, 0] == BALL) & ~_may_have_walked(before, after)
        if stopped.any():  # caption the step as if the ball had been there before it
            before = before.copy()
            cell_of(before, FRONT)[stopped] = in_the_way[stopped]
        return super().encode(replace(transitions, observation=before))

    def _possible(self, verb: int) -> bool:
        return verb != NOTHING and super()._possible(verb)


def _may_have_walked(before: Array, after: Array) -> BoolArray:
    """Whether walls and the goal are a cell nearer (N,) in the view after a step than in the one before it."""
    earlier, later = (view[:, :IMAGE:3].reshape(-1, VIEW, VIEW) for view in (before, after))
    cells_before, cells_after = (
        np.where(np.isin(view, (WALL, GOAL)), view, 0) for view in (earlier[:, :, :-1], later[:, :, 1:])
    )
    return (cells_before == cells_after).reshape(len(before), -1).all(axis=1)
