"""Laurel's rewards and agents as models of MLflow, which loads them by `mlflow.pyfunc.load_model` and serves them.

    mlflow.pyfunc.load_model("models:/reward.MiniGrid-DoorKey-8x8-v0@preference").predict(["You open the door."])

`laurel.load_reward` and `laurel.load_agent` take the same locations and can do more. MLflow calls `_load_pyfunc`, as
`laurel.tracking.run.MLMODEL`, a file in a logged model, says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laurel.arrays import Array, FloatArray
from laurel.errors import DataError
from laurel.library.agent import LoadedAgent, load_agent
from laurel.library.reward import LoadedReward, load_reward
from laurel.rewards.stored import CARD


def _load_pyfunc(path: str) -> RewardModel | AgentModel:
    """Load the reward or the agent of a folder; errors as in `load_reward` and `load_agent`."""
    return RewardModel(load_reward(path)) if (Path(path) / CARD).exists() else AgentModel(load_agent(path))


class RewardModel:
    """Scores captions."""

    def __init__(self, reward: LoadedReward) -> None:
        self._reward = reward

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> FloatArray:
        """Return the rewards (N,) of captions: N texts, or a table with one column of them, as a dictionary, too, which
        is what `mlflow models serve` makes of a request with named inputs.

        Raises:
            DataError: the reward does not score single captions, or the table has several columns.
            ParamsError: the captions are not texts.
        """
        columns = model_input.keys() if isinstance(model_input, Mapping) else getattr(model_input, "columns", None)
        if columns is None:
            return self._reward.score(model_input)
        if len(columns) != 1:
            raise DataError(
                f"A table with one column of captions is needed, but it has {', '.join(map(str, columns)) or 'none'}."
            )
        return self._reward.score(model_input[next(iter(columns))])


class AgentModel:
    """Acts on observations."""

    def __init__(self, agent: LoadedAgent) -> None:
        self._agent = agent

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Array:
        """Return the likeliest action for an observation, or N for a batch, as `LoadedAgent.predict` does; an agent
        with a memory sees the first observation of an episode.

        Raises:
            EnvError: the observation is not one of its environment.
        """
        return self._agent.predict(model_input, deterministic=True)[0]
