"""Logs stages from their files that could not be logged when they ran because MLflow was unreachable."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.params.resolved_arms import resolve_arms
from laurel.seeding import seed_folder
from laurel.stages.pipeline import STAGE
from laurel.tracking.run import Run

if TYPE_CHECKING:
    from laurel.data.directory import Output
    from laurel.tracking.tracker import Tracker


def track_late(sections: Mapping[str, Any], inputs: Mapping[str, Path], out: Output) -> dict[str, str]:
    """Log every input whose manifest names no run in MLflow.

    Args:
        sections: of params used by this stage and the stages of its inputs.
        inputs: names of `laurel.data.lineage.PRODUCERS` -> directories.
        out: receives the runs of agents, or a note if MLflow is still unreachable, in which case nothing more is tried.

    Returns:
        Name of the input -> id of the new run.
    """
    from laurel.data.asked import ASKED
    from laurel.data.directory import Output
    from laurel.data.lineage import PRODUCERS
    from laurel.data.manifest import MANIFEST, read_manifest
    from laurel.tracking.judgements import log_asked
    from laurel.tracking.tracker import Tracker

    run_ids: dict[str, str] = {}
    if not sections["tracking"].enabled:
        return run_ids
    for name, path in inputs.items():
        manifest = read_manifest(path, PRODUCERS[name])
        if manifest["mlflow_run_id"] is not None:
            continue
        sources = {source: inputs[source] for source in manifest["inputs"] if source in inputs}
        ended = (path / MANIFEST).stat().st_mtime
        worked = time.monotonic() - (manifest["seconds"] or 0.0)
        late = Output(path, counts=manifest["counts"], asked=manifest[ASKED], usage=manifest["usage"], started=worked)
        stage = STAGE[PRODUCERS[name]]
        used = {name: sections[name] for name in stage.sections if name in sections}
        tracker = Tracker(used, stage.name, sources, late, known=run_ids)
        with tracker.stage_run(ended=ended) as run:
            if run:
                if left := manifest["mlflow_left"]:
                    tracker.end_killed(run, {left: ended})
                _track(name, sections, tracker, run, late)
                log_asked(run, late.asked)
        if late.mlflow_run_id is None:
            out.run_notes += late.run_notes
            break
        run_ids[name] = late.mlflow_run_id
        out.agent_runs |= late.agent_runs
    return run_ids


def _track(name: str, sections: Mapping[str, Any], tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.stages import annotate, caption, collect, train_reward

    if name == "agents":
        _track_agents(sections, tracker, run, late)
        return
    stage = {"trajectories": collect, "captions": caption, "preferences": annotate, "reward": train_reward}[name]
    stage.track(run, sections, late)


def _track_agents(sections: Mapping[str, Any], tracker: Tracker, run: Run, late: Output) -> None:
    from laurel.tracking.agents import track_agents

    agent = sections["agent"]
    arms = resolve_arms(sections["arms"], sections["rewards"], sections["shaping"], agent).values()
    places = [(arm, seed, late.path / arm.name / seed_folder(seed)) for arm in arms for seed in agent.seeds]
    track_agents(tracker, run, [place for place in places if place[2].is_dir()])
