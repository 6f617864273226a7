"""Params of a small run that is tracked, and a run that is opened for a moment."""

from __future__ import annotations

from typing import Any

from laurel.data.directory import Output
from laurel.params import Params, parse_params
from laurel.tracking.tracker import Tracker

URI = "MLFLOW_TRACKING_URI"
ENV_ID = "FrozenLake-v1"


def make_params(**sections: Any) -> Params:
    content: dict[str, Any] = {
        "env": {"id": ENV_ID, "backend": "gymnasium"},
        "collect": {"steps": 200, "n_envs": 4, "shard_steps": 100},
        "arms": ["extrinsic", "preference"],
        "agent": {"seeds": [0, 1], "steps": 1000},
    }
    return parse_params({**content, **sections}, "test")


def opened_and_closed(params: Params, output: Output, stage: str = "collect") -> bool:
    """Open a run and log a little; whether there was one to log to."""
    with Tracker(params, stage, {}, output).stage_run() as run:
        if run:
            run.log_metrics({"value": 1.0})
        return run is not None
