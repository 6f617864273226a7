"""Laurel's own environments; importing this package registers them with Gymnasium.

    >>> import gymnasium as gym
    >>> env = gym.make("laurel.envs.builtin:laurel/ArmedBandit-v0", n_arms=3)
    >>> env.action_space
    Discrete(3)

Gymnasium 1.0 no longer loads environments of other packages itself: either import `laurel.envs.builtin`, or put the
module before the id. `laurel.envs` does so for ids that begin with "laurel/".
"""

from __future__ import annotations

import gymnasium as gym

ARMED_BANDIT = "laurel/ArmedBandit-v0"
GRID_WORLD = "laurel/GridWorld-v0"
CATCH = "laurel/Catch-v0"
POSITION_ONLY = "laurel/PositionOnlyCartPole-v0"
ULTIMATUM = "laurel/Ultimatum-v0"
MATRIX_GAME = "laurel/MatrixGame-v0"
NEGOTIATION = "laurel/Negotiation-v0"
CRAFTING = "laurel/Crafting-v0"
NETHACK = "laurel/NetHack-v0"
COMPLETIONS = "laurel/Completions-v0"
BALL_GAME = "laurel/BallGame-v0"
TASKS = "laurel/Tasks-v0"


def _register(env_id: str, entry: str, steps: int | None = None, *, vector: bool = False) -> None:
    """Register an environment class of this package, with its vector version."""
    module = f"{__name__}.{entry}"
    vector_entry_point = f"{module}Vector" if vector else None
    gym.register(env_id, module, vector_entry_point=vector_entry_point, max_episode_steps=steps)


_register(ARMED_BANDIT, "armed_bandit:ArmedBandit", 1000, vector=True)
_register(GRID_WORLD, "grid_world:GridWorld", 100, vector=True)
_register(CATCH, "catch:Catch", 100)
_register(POSITION_ONLY, "position_only:PositionOnlyCartPole", 500, vector=True)
_register(ULTIMATUM, "ultimatum:Ultimatum", 1)
_register(MATRIX_GAME, "matrix_game:MatrixGame", 1)
_register(NEGOTIATION, "negotiation:Negotiation", 3)
_register(CRAFTING, "crafting:Crafting", 500, vector=True)
_register(NETHACK, "nethack:NetHack", 5000, vector=True)
_register(COMPLETIONS, "completions:Completions", vector=True)
_register(TASKS, "tasks:Tasks")
gym.register(BALL_GAME, "laurel.envs.ball_game:BallGame", max_episode_steps=60)
