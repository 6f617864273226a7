"""Logs stages that could not log themselves, from their files, once MLflow can be reached again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.params import Params
from laurel.stages.pipeline import STAGE

if TYPE_CHECKING:
    from laurel.data.directory import Output
    from laurel.tracking.runs import Run, Tracker


def track_late(params: Params, inputs: Mapping[str, Path], out: Output) -> dict[str, str]:
    """Log every input whose manifest names no run in MLflow.

    Args:
        params: of the run.
        inputs: names of `laurel.data.lineage.PRODUCERS` -> directories.
        out: takes the runs of agents, and a note where MLflow cannot be reached now either; no more is tried then.

    Returns:
        Name of the input -> id of the run that was made for it.
    """
    import time

    from laurel.data.directory import MANIFEST, Output, read_manifest
    from laurel.data.lineage import PRODUCERS
    from laurel.tracking.runs import Tracker

    made: dict[str, str] = {}
    if not params.tracking.enabled:
        return made
    for name, path in inputs.items():
        manifest = read_manifest(path, PRODUCERS[name])
        if manifest["mlflow_run_id"] is not None:
            continue
        sources = {source: inputs[source] for source in manifest["inputs"] if source in inputs}
        ended = (path / MANIFEST).stat().st_mtime
        late = Output(path, counts=manifest["counts"], started=time.monotonic() - (manifest["seconds"] or 0.0))
        stage = STAGE[PRODUCERS[name]]
        sections = {section: getattr(params, section) for section in stage.sections} or params
        tracker = Tracker(sections, stage.name, sources, late, known=made)
        with tracker.stage_run(ended=ended) as run:
            if run:
                _TRACK[name](params, tracker, run, late)
        if late.mlflow_run_id is None:
            out.run_notes += late.run_notes
            break
        made[name] = late.mlflow_run_id
        out.agent_runs |= late.agent_runs
    return made


def _trajectories(params: Params, tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages.collect import track

    track(run, late.counts)


def _captions(params: Params, tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages.caption import track

    track(run, late.counts, late.path)


def _preferences(params: Params, tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages.annotate import track

    track(run, late.counts, late.path)


def _reward(params: Params, tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages.train_reward import track

    track(run, params, late.path)


def _agents(params: Params, tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages.train_agents import track_agents

    places = [(arm, seed, late.path / arm / f"seed-{seed}") for arm in params.arm_names for seed in params.agent.seeds]
    track_agents(tracker, run, params, [agent for agent in places if agent[2].is_dir()])


_TRACK: Mapping[str, Callable[[Params, Tracker, Run, Output], None]] = {
    "trajectories": _trajectories,
    "captions": _captions,
    "preferences": _preferences,
    "reward": _reward,
    "agents": _agents,
}
