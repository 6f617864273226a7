"""A language model that learns lists of moves in a grid of four squares, in seconds: what tests of it share."""

from __future__ import annotations

from typing import Any

from laurel.params import EnvParams

GRID = EnvParams(
    id="laurel/GridWorld-v0",
    kwargs={"size": 2, "goal": [1, 1], "actions": "sequence", "max_moves": 2, "slip": 0.0, "max_episode_steps": 1},
)
SMALL: dict[str, Any] = {
    "n_envs": 256,
    "n_steps": 1,
    "imitation_share": 1.0,
    "critic": "table",
    "proposals": 4,
    "learning_rate": 2e-3,
}
"""Settings of `agent.language_model`."""
