"""Runs a search: candidates from a study, trained in several processes and pruned on the way.

A process trains a candidate with all its seeds in one folder, which is deleted when the trial ends. A resumed search
continues from the checkpoints in such folders.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from laurel.data.usage import of_all
from laurel.errors import ParamsError
from laurel.pool import Job, JobReport, Workers
from laurel.progress import Advance
from laurel.seeding import seed_folder
from laurel.training.checkpoint import used_by
from laurel.training.curve import CURVE
from laurel.tuning.candidates import Candidate
from laurel.tuning.objective import diverged, read_curve, reports, result_of
from laurel.tuning.study import Asked, Study
from laurel.tuning.trials import Trial

MakeJobs = Callable[[Candidate, Path], tuple[Mapping[Path, Job], int]]
"""Makes the jobs of a candidate: agent directory, below the given one -> the job that trains the agent. Also returns
the environment steps per agent."""


@dataclass
class _Running:
    """A trial under way."""

    asked: Asked
    folder: Path
    jobs: Mapping[Path, Job]
    """The directory of each agent -> the job that trains it."""
    total_steps: int
    """Environment steps of each agent."""
    unfinished: list[Job]
    seen: dict[Path, int | None] = field(default_factory=dict)
    """Modification times of the curves that were read last."""

    def note_ended(self, reports: Sequence[JobReport]) -> None:
        ended = [report.job for report in reports if report.ended]
        self.unfinished = [job for job in self.unfinished if not any(job is finished for finished in ended)]


def run_trials(
    study: Study,
    n_trials: int,
    make_jobs: MakeJobs,
    folder: Path,
    *,
    workers: int | None,
    prune: bool,
    advance: Advance,
    preload: Sequence[str] = (),
) -> None:
    """Run trials until a study has this many.

    Args:
        study: provides candidates and records results.
        n_trials: in all, earlier searches included; pruned ones count.
        workers: processes at a time; None: one per CPU.
        prune: end trials that are worse than the median.
        advance: called with the number of trials that have ended.
        preload: modules that are imported before the processes are forked.

    Raises:
        LaurelError: a candidate could not be trained for another reason than its values.
    """
    running: list[_Running] = []
    waiting: deque[Job] = deque()
    with ExitStack() as stack:
        stack.callback(study.put_back)
        processes = stack.enter_context(Workers(workers, preload))
        ended = len(study.trials())
        advance(min(ended, n_trials), free=True)
        asked: Asked | None
        while True:
            while processes.free:
                if waiting:
                    processes.start(waiting.popleft())
                    continue
                if ended + len(running) >= n_trials or (asked := study.ask()) is None:
                    break
                if (trial := _begin(study, make_jobs, folder, asked)) is None:
                    ended += 1
                    advance(1)
                else:
                    running.append(trial)
                    waiting.extend(trial.unfinished)
            if not running:
                return
            processes.wait()
            polled = processes.poll()
            for trial in list(running):
                trial.note_ended(polled)
                if (result := _look(study, trial, prune=prune)) is None:
                    continue
                processes.stop(trial.unfinished)
                waiting = deque(job for job in waiting if not any(job is stopped for stopped in trial.unfinished))
                usage = of_all(used_by(agent) for agent in trial.jobs)
                study.tell(trial.asked, result, usage)
                shutil.rmtree(trial.folder)  # not before: half a folder could not be resumed
                running.remove(trial)
                ended += 1
                advance(1)


def drop_unfinished(study: Study, folder: Path, seeds: Sequence[int]) -> None:
    """Delete the folders of trials that a stopped search had begun and this one, with fewer trials, did not resume.

    What they asked of language models is paid, so it is recorded.
    """
    ended = {str(trial.number) for trial in study.trials()}  # their usage is recorded
    for place in sorted(folder.glob("trial-*")):
        _, number, _ = place.name.split("-")
        asked = of_all(used_by(place / seed_folder(seed)) for seed in seeds)
        shutil.rmtree(place, ignore_errors=True)
        if asked and number not in ended:
            study.use(asked)
    shutil.rmtree(folder, ignore_errors=True)


def _begin(study: Study, make_jobs: MakeJobs, folder: Path, asked: Asked) -> _Running | None:
    """Prepare a trial; None if its values are incompatible, which is then its result."""
    digest = hashlib.sha256(json.dumps(asked.values, sort_keys=True).encode()).hexdigest()[:12]
    place = folder / f"trial-{asked.number}-{digest}"
    try:
        jobs, steps = make_jobs(asked.values, place)
    except ParamsError as error:
        study.tell(asked, Trial(asked.number, asked.values, "failed", None, note=str(error)))
        return None
    place.mkdir(parents=True, exist_ok=True)
    distinct = {id(job): job for job in jobs.values()}
    return _Running(asked, place, jobs, steps, list(distinct.values()))


def _look(study: Study, trial: _Running, *, prune: bool) -> Trial | None:
    """Return the result of a trial that has ended or is pruned; None while it runs."""
    number, values = trial.asked.number, trial.asked.values
    if diverged(list(trial.jobs)):
        return result_of(number, values, list(trial.jobs), trial.total_steps)
    written = {agent: _written(agent / CURVE) for agent in trial.jobs}
    if written == trial.seen and trial.unfinished:
        return None
    trial.seen = written
    curves = [read_curve(agent) for agent in trial.jobs]
    if study.report(trial.asked, reports(curves, trial.total_steps), prune=prune):
        return Trial(number, values, "pruned", None, note="Worse than the median of the others at the same point.")
    return None if trial.unfinished else result_of(number, values, list(trial.jobs), trial.total_steps)


def _written(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:  # not written yet, or just being replaced
        return None
