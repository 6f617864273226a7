"""MiniGrid's views, computed once for each state: most steps of an episode lead to a state that was met before.

`MiniGridEnv.gen_obs` cuts the view out of the grid, turns it and finds what walls hide, in Python, cell by cell: nine
tenths of a step. A view depends on where the agent is, what it carries, and the grid; cells are compared by identity,
and an object that stays where it is changes by its own `toggle` alone, which most kinds of object do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minigrid.core.world_object import WorldObj
    from minigrid.minigrid_env import MiniGridEnv

MOST = 4096
"""Most views that are kept of an environment."""


class Views:
    """Takes the place of an environment's `gen_obs`, and answers as it does."""

    def __init__(self, env: MiniGridEnv) -> None:
        self._env, self._step = env, env.step
        self._see: Callable[[], dict[str, Any]] = env.gen_obs
        self._known: dict[Any, dict[str, Any]] = {}
        vars(env).update(gen_obs=self.gen_obs, step=self.step)

    def gen_obs(self) -> dict[str, Any]:
        """Return the view of the state that the environment is in."""
        env = self._env
        x, y = env.agent_pos
        state = int(x), int(y), env.agent_dir, env.carrying, tuple(env.grid.grid)
        view = self._known.get(state)
        if view is None:
            if len(self._known) == MOST:
                self._known.clear()
            view = self._known[state] = self._see()
        return {**view, "image": view["image"].copy(), "direction": env.agent_dir, "mission": env.mission}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; all views are forgotten before a toggle that may change an object in its place."""
        action = int(action)  # NumPy's numbers take 40 times as long to compare with members of an enum
        if action == self._env.actions.toggle and self._changes(self._env.grid.get(*self._env.front_pos)):
            self._known.clear()
        return self._step(action)

    @staticmethod
    def _changes(ahead: WorldObj | None) -> bool:
        """Whether toggling an object may change it: whether its class overrides `toggle`."""
        from minigrid.core.world_object import WorldObj

        return ahead is not None and type(ahead).toggle is not WorldObj.toggle
