"""The score of a candidate: the area under its learning curve, as a mean return.

A learning curve has the mean return (the environment's own, not the shaped one) of the last 100 episodes at each
update; the score is its mean over the updates so far. It measures how good agents are and how early, is defined at any
point of training, and depends less on the last episodes than a final return does. `laurel.agents.episodes` says
which episodes those are; updates before there are enough of them do not count, but the last one does with any number.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pydantic import JsonValue

from laurel.data.json_file import read_json
from laurel.evaluation.formats import counted
from laurel.training.curve import CURVE, CURVE_SCHEMA
from laurel.tuning.trials import Trial

NAME = "area under the learning curve"
REPORTS = 10
"""Points of a training run at which candidates are compared."""


def area(curve: pd.DataFrame) -> float | None:
    """Return the mean return over a training run's updates so far; None where too few episodes have ended."""
    known = _known(curve)
    return float(known.mean()) if len(known) else None


def last_return(curve: pd.DataFrame) -> float | None:
    """Return the mean return of the last episodes so far; None where too few have ended."""
    known = _known(curve)
    return float(known[-1]) if len(known) else None


def _known(curve: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    returns = curve["return_mean"].to_numpy(dtype=np.float64)
    return returns[np.isfinite(returns)]


def reports(curves: Sequence[pd.DataFrame], total_steps: int) -> list[tuple[int, float]]:
    """Return (tenths of the training, score so far), averaged over seeds, up to the point that all seeds have reached.

    Args:
        total_steps: environment steps of a whole run. The end is left out: it has a score, not a report.
    """
    found = []
    for part in range(1, REPORTS):
        step = total_steps * part / REPORTS
        if not all(len(curve) and curve["env_steps"].iloc[-1] >= step for curve in curves):
            break
        areas = [area(curve[curve["env_steps"] <= step]) for curve in curves]
        known = [value for value in areas if value is not None]
        if len(known) == len(areas):
            found.append((part, float(np.mean(known))))
    return found


def read_curve(agent: Path) -> pd.DataFrame:
    """Read the learning curve of an agent as far as its last checkpoint; empty before the first checkpoint."""
    try:
        content = (agent / CURVE).read_bytes()
    except FileNotFoundError:  # or the checkpoint is just being replaced
        return pd.DataFrame(columns=CURVE_SCHEMA.names)
    return pq.read_table(io.BytesIO(content), schema=CURVE_SCHEMA).to_pandas()


def result_of(number: int, values: Mapping[str, JsonValue], agents: Sequence[Path], total_steps: int) -> Trial:
    """Return the trial of complete training runs.

    Args:
        agents: the directory of each seed's agent, which is missing if its training diverged.
    """
    if note := diverged(agents):
        return Trial(number, values, "failed", None, note=note)
    curves = [read_curve(agent) for agent in agents]
    areas = [area(curve) for curve in curves]
    last = [value for value in map(last_return, curves) if value is not None]
    known = [value for value in areas if value is not None]
    if len(known) < len(areas):
        return Trial(number, values, "failed", None, note=_too_few(curves))
    so_far = tuple(reports(curves, total_steps))
    return Trial(number, values, "complete", float(np.mean(known)), tuple(known), float(np.mean(last)), so_far)


def _too_few(curves: Sequence[pd.DataFrame]) -> str:
    """Return why a training run has no score."""
    least = min(int(curve["episodes"].sum()) for curve in curves if area(curve) is None)
    if not least:
        return "No episode of an agent finished: raise --steps."
    return (
        f"Only {counted(least, 'episode')} of an agent finished, and none counts: episodes count in the order in "
        "which they began, and the first has not ended. Raise --steps."
    )


def diverged(agents: Sequence[Path]) -> str:
    """Return why the training of an agent diverged; empty where none did."""
    notes = (note_of(agent) for agent in agents)
    return next((str(read_json(note)) for note in notes if note.exists()), "")


def note_of(agent: Path) -> Path:
    """Return the file that records that an agent's training diverged."""
    return agent.with_name(f"{agent.name}.diverged.json")
