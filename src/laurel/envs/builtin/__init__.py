"""Laurel's own environments, registered with Gymnasium by importing this package, as is the custom there.

    >>> import gymnasium as gym
    >>> env = gym.make("laurel.envs.builtin:laurel/ArmedBandit-v0", n_arms=3)
    >>> env.action_space
    Discrete(3)

Gymnasium 1.0 gave up loading other packages' environments by itself: either import `laurel.envs.builtin`, or name the
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
CRAFTING = "laurel/Crafting-v0"
NETHACK = "laurel/NetHack-v0"
COMPLETIONS = "laurel/Completions-v0"
BALL_GAME = "laurel/BallGame-v0"

gym.register(
    id=ARMED_BANDIT,
    entry_point="laurel.envs.builtin.armed_bandit:ArmedBandit",
    vector_entry_point="laurel.envs.builtin.armed_bandit:ArmedBanditVector",
    max_episode_steps=1000,
)
gym.register(
    id=GRID_WORLD,
    entry_point="laurel.envs.builtin.grid_world:GridWorld",
    vector_entry_point="laurel.envs.builtin.grid_world:GridWorldVector",
    max_episode_steps=100,
)
gym.register(id=CATCH, entry_point="laurel.envs.builtin.catch:Catch", max_episode_steps=100)
gym.register(
    id=POSITION_ONLY,
    entry_point="laurel.envs.builtin.position_only:PositionOnlyCartPole",
    vector_entry_point="laurel.envs.builtin.position_only:PositionOnlyCartPoleVector",
    max_episode_steps=500,
)
gym.register(id=ULTIMATUM, entry_point="laurel.envs.builtin.ultimatum:Ultimatum", max_episode_steps=1)
gym.register(id=MATRIX_GAME, entry_point="laurel.envs.builtin.matrix_game:MatrixGame", max_episode_steps=1)
gym.register(
    id=CRAFTING,
    entry_point="laurel.envs.builtin.crafting:Crafting",
    vector_entry_point="laurel.envs.builtin.crafting:CraftingVector",
    max_episode_steps=500,
)
gym.register(
    id=NETHACK,
    entry_point="laurel.envs.builtin.nethack:NetHack",
    vector_entry_point="laurel.envs.builtin.nethack:NetHackVector",
    max_episode_steps=5000,
)
gym.register(id=BALL_GAME, entry_point="laurel.envs.ball_game:BallGame", max_episode_steps=60)
gym.register(
    id=COMPLETIONS,
    entry_point="laurel.envs.builtin.completions:Completions",
    vector_entry_point="laurel.envs.builtin.completions:CompletionsVector",
)
