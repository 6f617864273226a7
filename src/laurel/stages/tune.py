"""tune: reward model → the best training parameters. Trains candidates briefly, and compares them.

No other stage reads its output; best.yaml is a params file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from pydantic import JsonValue

from laurel import __version__
from laurel.console import tell
from laurel.data.directory import check_output, output_directory, without_limits
from laurel.data.json_file import write_json
from laurel.data.lineage import read_inputs
from laurel.data.own_files import contents_named
from laurel.data.usage import Usage
from laurel.errors import DataError, ParamsError, TrainingError
from laurel.llm.spending import shared_budget
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.params.search import Sweep, with_values
from laurel.pool import Job
from laurel.progress import progress
from laurel.rewards.method import Inputs, RewardContext
from laurel.seeding import seed_folder
from laurel.stages.train_agents import groups, job_of
from laurel.tracking.agents import annotators_of
from laurel.tracking.run import Run
from laurel.tracking.tracker import Tracker
from laurel.training.arms import train_arms
from laurel.training.engines import engine_of, steps_of
from laurel.training.preload import preload
from laurel.training.task import Agent
from laurel.tuning.candidates import candidates
from laurel.tuning.objective import note_of
from laurel.tuning.plan import Search, narrowed, sweep_of
from laurel.tuning.results import summary, write_results
from laurel.tuning.search import MakeJobs, drop_unfinished, run_trials
from laurel.tuning.study import Study
from laurel.tuning.trials import Trial, best

STAGE = "tune"


def run(
    params: Params,
    captions: Path,
    preferences: Path,
    reward: Path,
    output: Path,
    *,
    search: Search,
    text: str | None = None,
    workers: int | None = None,
) -> str:
    """Search; return a summary as text.

    Args:
        params: sections seed, env, caption, annotate, arms, rewards, shaping and agent are used.
        output: directory to write best.yaml, trials.csv, figures/ and more into. A stopped search can be resumed.
        text: the params file, whose comments best.yaml keeps; None: without comments.
        workers: candidates at a time; None: agent.workers.

    Raises:
        ParamsError: a setting of the search is not allowed.
        DataError: an input is missing or damaged, or the study was begun with other settings.
        WorkerError: a training process died; the same call resumes.
    """
    sweep = sweep_of(params, search)
    used = used_by(params, sweep)
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    files = contents_named(used)
    settings = {
        **sweep.write(),
        "params": without_limits(used),
        "inputs": {name: manifest["digest"] for name, manifest in read_inputs(used, inputs).items()},
        "sampler": search.sampler,
        "prune": search.prune,
        "version": __version__,
        **({"files": files} if files else {}),
    }
    check_output(output, STAGE)
    name = search.study or sweep.arm
    folder = search.storage.parent / f".{search.storage.stem}.{name}.partial"
    logging.getLogger("laurel.envs").setLevel(logging.ERROR)  # already logged by earlier stages
    n_trials = search.trials
    if search.sampler == "grid":
        n_trials = len(candidates(sweep.space, params, n_trials, "grid", params.seed))
        if n_trials < search.trials:
            tell(f"tune: the grid has {n_trials} combinations, so these are all trials.")
    with (
        _study_lock(search.storage, name),
        shared_budget(params.annotate) as asking,
        progress(n_trials, STAGE, "trials") as advance,
    ):
        study = Study(search.storage, name, sweep.space, params, settings, sampler=search.sampler)
        run_trials(
            study,
            n_trials,
            jobs_of(params, sweep, Inputs(captions, preferences, reward), asking=asking),
            folder,
            workers=workers or params.agent.workers,
            prune=search.prune,
            advance=advance,
            preload=preload("train", params.env, params.resolved_arms.values()),
        )
        drop_unfinished(study, folder, sweep.seeds)
        trials, usage, seconds = study.trials(), study.usage(), study.seconds
    return publish(params, sweep, trials, inputs, output, usage, text=text, seconds=seconds)


@contextmanager
def _study_lock(storage: Path, study: str) -> Iterator[None]:
    """Hold the lock of a study.

    Raises:
        DataError: another process holds it, or the storage cannot be written.
    """
    try:
        storage.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(storage.parent / f".{storage.stem}.{study}.lock", blocking=False)
        lock.acquire()
    except Timeout:
        raise DataError(f"{storage}: another process searches the study {study}. Wait for it to end.") from None
    except OSError as error:
        raise DataError(f"{storage}: cannot be written ({error.strerror}). Choose another --storage.") from None
    with lock:
        yield


def publish(
    params: Params,
    sweep: Sweep,
    trials: Sequence[Trial],
    inputs: Mapping[str, Path],
    output: Path,
    usage: Usage,
    *,
    text: str | None = None,
    seconds: float = 0.0,
) -> str:
    """Write and log the results of all trials; return a summary as text.

    Args:
        usage: what the trials asked of language models.
        seconds: how long they took, if this process knows.

    Raises:
        DataError: no trial has a score, or the output cannot be written.
    """
    described = {**used_by(params, sweep), "tune": {**sweep.write(), "trials": len(trials)}}
    with output_directory(output, stage=STAGE, params=described, inputs=inputs) as out:
        source = yaml.safe_dump(params.dump(), sort_keys=False) if text is None else text
        out.notes += write_results(out.path, sweep, params, source, trials)
        out.counts, out.usage = counts(trials), dict(usage)
        out.started -= seconds
        tracker = Tracker(dict(params), STAGE, inputs, out)
        with tracker.stage_run() as tracked:
            if tracked:
                arm = params.narrowed(sweep.arm).resolved_arms[sweep.arm]
                track(tracker, tracked, sweep, trials, out.path, annotators_of(arm, params.rewards, params.annotate))
    return summary(output, sweep, trials, out.notes)


def used_by(params: Params, sweep: Sweep) -> dict[str, Any]:
    """Return the parameters that all trials share."""
    params = params.narrowed(sweep.arm)
    algorithms = {"agent.algorithm", "agent.engine"} & set(sweep.space)
    chosen = params.dump if algorithms else params.used  # if algorithms are compared, the settings of each are used
    used = chosen("seed", "env", "caption", "annotate", "arms", "rewards", "shaping", "agent")
    for name in ("seeds", "steps", "checkpoint_steps", "workers"):
        used["agent"].pop(name, None)
    for name in sweep.space:
        *sections, last = name.split(".")
        place = used
        for section in sections:
            place = place.get(section, {})
        place.pop(last, None)  # a free-form mapping may lack it
    return used


def jobs_of(
    params: Params, sweep: Sweep, inputs: Inputs, *, alone: bool = False, asking: AnnotateParams | None = None
) -> MakeJobs:
    """Return a function that makes a candidate's jobs.

    One job trains all seeds in lockstep, in parallel to other candidates; if the candidate has the machine `alone`, its
    seeds are divided among jobs.

    Args:
        asking: as `shared_budget` yields, so that all jobs together keep to annotate.budget; None: each by itself.
    """

    def jobs(values: Mapping[str, JsonValue], folder: Path) -> tuple[Mapping[Path, Job], int]:
        candidate = narrowed(with_values(params, values), sweep.arm, sweep.seeds, sweep.steps)
        arm, context = candidate.resolved_arms[sweep.arm], RewardContext.of(candidate)
        if asking is not None:
            budget = candidate.annotate.budget.kept_in(asking.budget.ledger)
            context = replace(context, annotate=candidate.annotate.model_copy(update={"budget": budget}))
        engine_of(arm.agent).check(context.adapter)  # before a process is started
        agents = [(arm, seed, folder / seed_folder(seed)) for seed in sweep.seeds]
        jobs_by_candidate = {}
        for group in groups(agents, context.adapter) if alone else [agents]:
            job = job_of(f"{folder.name} {sweep.arm}", train_candidate, (candidate.seed, context, group, inputs))
            jobs_by_candidate.update({place: job for _, _, place in group})
        return jobs_by_candidate, steps_of(arm)

    return jobs


def train_candidate(
    run_seed: int,
    context: RewardContext,
    agents: Sequence[Agent],
    inputs: Inputs,
    advance: Callable[[int], None],
) -> None:
    """Train agents as `train_arms`; divergence and incompatible values are results, which are recorded in a note."""
    try:
        train_arms(run_seed, context, agents, inputs, advance)
    except (ParamsError, TrainingError) as error:
        _, _, first = agents[0]
        first.parent.mkdir(parents=True, exist_ok=True)
        write_json(note_of(first), str(error))


def counts(trials: Sequence[Trial]) -> dict[str, int]:
    """Return the number of trials by outcome."""
    states = [trial.state for trial in trials]
    return {"trials": len(states), **{state: states.count(state) for state in ("complete", "pruned", "failed")}}


def track(
    tracker: Tracker, run: Run, sweep: Sweep, trials: Sequence[Trial], place: Path, annotators: Sequence[str]
) -> None:
    """Log each trial as a child run of the study's run, and the files to the study's run.

    Args:
        annotators: of the judges of the arm's rewards; empty: the tags name the main one, as those of agents do.
    """
    chosen = best(trials)
    of_arm = {"arm": sweep.arm, **({"annotator": ", ".join(annotators)} if annotators else {})}
    for key, value in of_arm.items():
        run.client.set_tag(run.id, key, value)
    run.log_params({"tune.steps": sweep.steps, "tune.seeds": list(sweep.seeds)})
    run.log_params({f"tune.search.{name}": searched.text for name, searched in sweep.space.items()})
    run.log_metrics({"best_score": chosen.score, "best_trial": float(chosen.number)})
    run.log_metrics({key: float(value) for key, value in counts(trials).items()})
    run.log_directory(place, STAGE)
    for trial in trials:
        tags = {
            **of_arm,
            "trial": str(trial.number),
            "state": trial.state,
            **({"note": trial.note} if trial.note else {}),
        }
        child = tracker.child_run(run, f"trial {trial.number}", tags)
        child.log_params(trial.values)
        child.log_metrics({"score": trial.score, "last_return": trial.last_return})
        child.log_curve((tenths, {"score_so_far": value}) for tenths, value in trial.reports)
        child.end()
