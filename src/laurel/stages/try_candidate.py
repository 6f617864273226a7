"""try-candidate: reward model → the trial of one candidate. A step of a sweep on Kubeflow.

It does not know the other candidates, so it prunes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from laurel.data.directory import output_directory
from laurel.data.lineage import read_inputs
from laurel.data.usage import of_all
from laurel.errors import ParamsError
from laurel.llm.spending import shared_budget
from laurel.params import Params
from laurel.params.search import Sweep
from laurel.pool import run_jobs
from laurel.progress import progress
from laurel.rewards.method import Inputs
from laurel.stages.tune import counts, jobs_of, used_by
from laurel.training.checkpoint import used_by as asked_by
from laurel.training.preload import preload
from laurel.tuning.objective import result_of
from laurel.tuning.trials import TRIALS, Trial, write_trials

STAGE = "try-candidate"


def run(
    params: Params,
    captions: Path,
    preferences: Path,
    reward: Path,
    output: Path,
    *,
    sweep: Sweep,
    number: int,
    values: Mapping[str, JsonValue],
) -> None:
    """Train a candidate with every seed, and score it; incompatible values are a failed trial.

    Args:
        params: sections seed, env, caption, annotate, arms, rewards, shaping and agent are used.
        output: directory to write trials.json into. A killed stage can be resumed.

    Raises:
        DataError: an input is missing or damaged, or does not fit the others.
        WorkerError: a training process died; finished work is kept.
    """
    used = used_by(params, sweep)
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    read_inputs(used, inputs)
    described = {**used, "tune": {**sweep.write(), "number": number, "values": dict(values)}}
    with (
        shared_budget(params.annotate) as asking,
        output_directory(output, stage=STAGE, params=described, inputs=inputs, resumable=True) as out,
    ):
        agents = out.path / "agents"
        make_jobs = jobs_of(params, sweep, Inputs(captions, preferences, reward), alone=True, asking=asking)
        try:
            jobs, total = make_jobs(dict(values), agents)
        except ParamsError as error:
            trial = Trial(number, values, "failed", None, note=str(error))
        else:
            with progress(total * len(jobs), STAGE, "steps") as advance:
                distinct = {id(job): job for job in jobs.values()}
                modules = preload("train", params.env, params.resolved_arms.values())
                run_jobs(list(distinct.values()), params.agent.workers, advance, modules)
            trial = result_of(number, values, list(jobs), total)
            out.usage = of_all(asked_by(agent) for agent in jobs)
        shutil.rmtree(agents, ignore_errors=True)
        write_trials(out.path / TRIALS, [trial])
        out.counts = counts([trial])
