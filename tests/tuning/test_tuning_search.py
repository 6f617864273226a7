"""The search with jobs that write learning curves at once, in place of training."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from laurel.data.json_file import write_json
from laurel.data.parquet import write_table
from laurel.errors import DataError, LaurelError, ParamsError
from laurel.params import Params
from laurel.params.search import Space, read_space
from laurel.pool import Job, JobReport, Workers
from laurel.training.checkpoint import usage_note
from laurel.training.curve import CURVE, CURVE_SCHEMA
from laurel.tuning.objective import note_of
from laurel.tuning.search import MakeJobs, drop_unfinished, run_trials
from laurel.tuning.study import Study
from laurel.tuning.trials import Trial, best, read_trials, write_trials


class AtOnce:
    """Does each job when it is started, in this process."""

    def __init__(self, at_once: int, preload: Sequence[str]) -> None:
        self._at_once, self._ended = at_once, list[Job]()

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def free(self) -> int:
        return self._at_once - len(self._ended)

    def start(self, job: Job) -> None:
        job.work(*job.args, lambda done: None)
        self._ended.append(job)

    def wait(self) -> None:
        pass

    def poll(self) -> list[JobReport]:
        heard, self._ended = [JobReport(job, 1, ended=True) for job in self._ended], []
        return heard

    def stop(self, jobs: Sequence[Job]) -> None:
        self._ended = [job for job in self._ended if not any(job is ended for ended in jobs)]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.tuning.search.Workers", AtOnce)


WEIGHT = "shaping.intrinsic"
STEPS = 100
Values = Mapping[str, Any]


@pytest.fixture
def space(params: Params) -> Space:
    return read_space([f"{WEIGHT}=log:0.01:1", "agent.ppo.hidden=[8],[64, 64]"], params, "preference")


def opened(path: Path, space: Space, params: Params, **options: Any) -> Study:
    about = options.pop("about", {"steps": STEPS})
    return Study(path / "studies.db", "a", space, params, about, **{"sampler": "tpe", **options})


def write_curve(agent: Path, value: float, updates: int = 10) -> None:
    agent.mkdir(parents=True, exist_ok=True)
    rows = [{"env_steps": 10 * (i + 1), "return_mean": value} for i in range(updates)]
    partial = agent / f".{CURVE}"
    write_table(partial, pa.Table.from_pylist(rows, schema=CURVE_SCHEMA))
    partial.replace(agent / CURVE)


def earn(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
    """Return most at a weight of 0.3, and a little more with the larger network."""
    write_curve(agent, 1 - abs(weight - 0.3) + 0.01 * hidden)


def fail_above(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
    if weight > 0.1:
        agent.parent.mkdir(parents=True, exist_ok=True)
        write_json(note_of(agent), "training diverged")
    else:
        earn(weight, hidden, agent, advance)


def break_at_third(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
    if agent.parent.name.startswith("trial-2-") and not (agent.parents[1] / "fixed").exists():
        raise LaurelError("no disk")
    earn(weight, hidden, agent, advance)


def jobs_of(work: Callable[..., None], seeds: int = 1) -> MakeJobs:
    def jobs(values: Values, folder: Path) -> tuple[Mapping[Path, Job], int]:
        args = (values[WEIGHT], len(values["agent.ppo.hidden"]))
        agents = [folder / f"seed-{seed}" for seed in range(seeds)]
        return {agent: Job(f"{folder.name} {agent.name}", work, (*args, agent)) for agent in agents}, STEPS

    return jobs


def run(study: Study, n: int, folder: Path, work: Callable[..., None] = earn, **options: Any) -> list[Trial]:
    given = {"workers": 1, "prune": False, "advance": lambda *_, **__: None, **options}
    seeds = given.pop("seeds", 1)
    run_trials(study, n, jobs_of(work, seeds), folder, **given)
    return study.trials()


def test_the_same_trials_each_time_and_the_own_values_first(params: Params, space: Space, tmp_path: Path) -> None:
    made = [run(opened(tmp_path / name, space, params), 12, tmp_path / name / "work") for name in ("a", "b")]
    assert made[0] == made[1]
    assert [trial.number for trial in made[0]] == list(range(12))
    assert made[0][0].values == {WEIGHT: 0.1, "agent.ppo.hidden": [64, 64]}
    assert len({str(trial.values) for trial in made[0]}) > 9
    assert best(made[0]).score == pytest.approx(1.02, abs=0.1)
    assert made[0][0].score == pytest.approx(0.82)
    assert list((tmp_path / "a" / "work").iterdir()) == [], "what was trained is gone"
    other = params.model_copy(update={"seed": 1})
    assert run(opened(tmp_path / "c", space, other), 3, tmp_path / "c" / "work") != made[0][:3]


def test_a_study_resumes_where_it_stopped(params: Params, space: Space, tmp_path: Path) -> None:
    whole = run(opened(tmp_path / "a", space, params), 12, tmp_path / "a" / "work")
    run(opened(tmp_path / "b", space, params), 4, tmp_path / "b" / "work")
    shown: list[int] = []
    study = opened(tmp_path / "b", space, params)
    counted = run(study, 2, tmp_path / "b" / "work", advance=lambda n, **_: shown.append(n))
    assert (counted, shown) == (whole[:4], [2]), "there are enough: 2 of 2"
    assert run(opened(tmp_path / "b", space, params), 12, tmp_path / "b" / "work") == whole


def test_trials_stopped_by_a_failure_are_retried(params: Params, space: Space, tmp_path: Path) -> None:
    whole = run(opened(tmp_path / "a", space, params), 12, tmp_path / "a" / "work")
    folder = tmp_path / "b" / "work"
    for _ in range(2):
        with pytest.raises(LaurelError, match="no disk"):
            run(opened(tmp_path / "b", space, params), 12, folder, break_at_third)
    (folder / "fixed").touch()
    assert run(opened(tmp_path / "b", space, params), 12, folder, break_at_third) == whole


def stop_at_third(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
    if agent.parent.name.startswith("trial-2-"):
        write_curve(agent, 0.0, updates=5)
        raise KeyboardInterrupt
    earn(weight, hidden, agent, advance)


def test_a_search_that_was_interrupted_gives_what_an_uninterrupted_one_gives(
    params: Params, space: Space, tmp_path: Path
) -> None:
    folder = tmp_path / "b" / "work"
    with pytest.raises(KeyboardInterrupt):
        run(opened(tmp_path / "b", space, params), 8, folder, stop_at_third)
    (left,) = folder.iterdir()
    assert (left / "seed-0" / CURVE).exists(), "training goes on from there"
    whole = run(opened(tmp_path / "a", space, params), 8, tmp_path / "a" / "work")
    study = opened(tmp_path / "b", space, params)
    assert study.trials() == whole[:2]
    assert run(study, 8, folder) == whole
    assert list(folder.iterdir()) == []


def test_what_a_stopped_trial_asked_counts_though_it_is_dropped(params: Params, space: Space, tmp_path: Path) -> None:
    """As where a search whose budget is spent is concluded with fewer trials."""

    study, folder = opened(tmp_path, space, params), tmp_path / "work"
    run(study, 2, folder)
    for number in (1, 2):  # of the second one, only the removal of its folder was cut off
        usage_note(folder / f"trial-{number}-abc" / "seed-0").write([{"asker": "one", "calls": 3}])
    drop_unfinished(study, folder, [0])
    assert not folder.exists()
    usage_note(folder / "trial-2-abc" / "seed-0").write([{"asker": "other", "calls": 4}])
    drop_unfinished(study, folder, [0])
    assert opened(tmp_path, space, params).usage() == {"calls": 7}


def test_a_killed_search_resumes(params: Params, space: Space, tmp_path: Path) -> None:
    killed = opened(tmp_path / "b", space, params)
    for _ in range(2):  # two are running when the process is killed
        killed.ask()
    trials = run(opened(tmp_path / "b", space, params), 4, tmp_path / "b" / "work")
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    assert trials[:2] == run(opened(tmp_path / "a", space, params), 2, tmp_path / "a" / "work")[:2]


def test_a_search_killed_while_it_removes_the_files_of_a_trial_resumes(
    params: Params, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path) -> None:
        (folder / "seed-0" / CURVE).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            run(opened(tmp_path, space, params), 2, tmp_path / "work")

    def train(*args: Any) -> None:
        assert not args[2].exists(), "half a checkpoint, from which training cannot resume"
        earn(*args)

    assert [trial.state for trial in run(opened(tmp_path, space, params), 2, tmp_path / "work", train)] == [
        "complete"
    ] * 2


def test_parallel_search_runs_as_many_trials(params: Params, space: Space, tmp_path: Path) -> None:
    trials = run(opened(tmp_path, space, params), 9, tmp_path / "work", workers=3, seeds=2)
    assert [trial.number for trial in trials] == list(range(9))
    assert all(len(trial.seed_scores) == 2 for trial in trials)
    assert len(run(opened(tmp_path / "b", space, params), 4, tmp_path / "b" / "work", workers=3)) == 4


def test_a_trial_that_diverges_trains_no_further_seed(params: Params, space: Space, tmp_path: Path) -> None:
    trained: list[str] = []

    def work(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
        trained.append(agent.name)
        fail_above(weight, hidden, agent, advance)

    trials = run(opened(tmp_path, space, params), 8, tmp_path / "work", work, seeds=2)
    complete = sum(trial.state == "complete" for trial in trials)
    assert 0 < complete < len(trials)
    assert (trained.count("seed-0"), trained.count("seed-1")) == (len(trials), complete)
    assert list((tmp_path / "work").iterdir()) == []


def lag_at_seventh(weight: float, hidden: int, agent: Path, advance: Callable[[int], None]) -> None:
    write_curve(agent, 0.0, updates=7) if agent.parent.name.startswith("trial-6-") else earn(
        weight, hidden, agent, advance
    )


def test_trials_below_the_median_are_pruned_and_leave_no_files(params: Params, space: Space, tmp_path: Path) -> None:
    trials = run(opened(tmp_path, space, params), 8, tmp_path / "work", lag_at_seventh, prune=True)
    (bad,) = [trial for trial in trials if trial.number == 6]
    assert (bad.state, bad.score) == ("pruned", None)
    assert bad.reports == ((1, 0.0), (2, 0.0)), "what came after that does not count"
    assert all(trial.state == "complete" for trial in trials[:5]), "the first are what others are compared with"
    assert list((tmp_path / "work").iterdir()) == []


def begin_and_wait(agent: Path, advance: Callable[[int], None]) -> None:
    (agent / "half written").touch()
    time.sleep(600)


def test_the_process_of_a_pruned_trial_is_ended(params: Params, space: Space, tmp_path: Path) -> None:
    study = opened(tmp_path, space, params)
    run(study, 6, tmp_path / "work")

    def jobs(values: Values, folder: Path) -> tuple[Mapping[Path, Job], int]:
        write_curve(folder / "seed-0", 0.0, updates=5)
        return {folder / "seed-0": Job("waits", begin_and_wait, (folder / "seed-0",))}, STEPS

    stopped: list[tuple[str, bool]] = []

    class Watched(Workers):
        def stop(self, jobs: Sequence[Job]) -> None:
            stopped.extend((job.name, any((tmp_path / "work").iterdir())) for job in jobs)
            super().stop(jobs)

    options = {"workers": 1, "prune": True, "advance": lambda *_, **__: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laurel.tuning.search.Workers", Watched)
        run_trials(study, 7, jobs, tmp_path / "work", **options)  # type: ignore[arg-type]
    assert study.trials()[-1].state == "pruned"
    assert stopped == [("waits", True)], "before its files are removed, and not when the search ends"
    assert list((tmp_path / "work").iterdir()) == []


def test_without_pruning_no_trial_is_pruned(params: Params, space: Space, tmp_path: Path) -> None:
    trials = run(opened(tmp_path, space, params), 10, tmp_path / "work")
    assert {trial.state for trial in trials} == {"complete"}
    assert all(len(trial.reports) == 9 for trial in trials)


def test_a_diverging_trial_is_a_result(params: Params, space: Space, tmp_path: Path) -> None:
    trials = run(opened(tmp_path, space, params), 8, tmp_path / "work", fail_above)
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed
    assert {trial.note for trial in failed} == {"training diverged"}
    assert all((trial.values[WEIGHT] > 0.1) == (trial.state == "failed") for trial in trials)  # type: ignore[operator]
    assert best(trials).values[WEIGHT] <= 0.1  # type: ignore[operator]
    with pytest.raises(DataError, match=r"None of \d trials has a score\. training diverged"):
        best(failed)


def test_values_that_do_not_go_together_are_a_result(params: Params, space: Space, tmp_path: Path) -> None:
    def jobs(values: Values, folder: Path) -> tuple[Mapping[Path, Job], int]:
        if values["agent.ppo.hidden"] == [8]:
            raise ParamsError("not with 8.")
        return jobs_of(earn)(values, folder)

    study = opened(tmp_path, space, params)
    steps = {"workers": 1, "prune": False, "advance": lambda *_, **__: None}
    run_trials(study, 6, jobs, tmp_path / "work", **steps)  # type: ignore[arg-type]
    trials = study.trials()
    assert len(trials) == 6
    assert {trial.note for trial in trials if trial.values["agent.ppo.hidden"] == [8]} == {"not with 8."}


def test_a_drawn_list_is_tried_in_order(params: Params, space: Space, tmp_path: Path) -> None:
    from laurel.tuning.candidates import candidates

    trials = run(opened(tmp_path, space, params, sampler="sobol"), 5, tmp_path / "work")
    assert [trial.values for trial in trials] == candidates(space, params, 5, "sobol", params.seed)


def test_a_grid_ends(params: Params, tmp_path: Path) -> None:
    space = read_space([f"{WEIGHT}=0.1,0.3", "agent.ppo.hidden=[8],[64, 64]"], params, "preference")
    assert len(run(opened(tmp_path, space, params, sampler="grid"), 30, tmp_path / "work", workers=2)) == 4


def test_a_different_study_of_the_same_name_is_not_resumed(params: Params, space: Space, tmp_path: Path) -> None:
    opened(tmp_path, space, params, about={"steps": 100, "space": {"a": {"low": 1}}})
    with pytest.raises(DataError) as error:
        opened(tmp_path, space, params, about={"steps": 100, "space": {"a": {"low": 2}}})
    assert 'the study "a" was started with space.a.low 1, but now it is 2. Name another one with --study.' in str(
        error.value
    )
    with pytest.raises(DataError, match="was started with a search of a, but now it is one of a, b"):
        opened(tmp_path, space, params, about={"steps": 100, "space": {"a": {"low": 1}, "b": {"low": 1}}})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "studies.db").write_text("no database at all, but text that is long enough")
    with pytest.raises(DataError, match=r"studies\.db: not a storage of studies \(.*\)\. Choose another --storage"):
        opened(tmp_path / "other", space, params)


def test_studies_begun_at_the_same_time_share_a_storage(params: Params, space: Space, tmp_path: Path) -> None:
    def begin(name: str) -> str:
        together.wait()
        about = {"steps": STEPS}
        assert Study(tmp_path / "studies.db", name, space, params, about, sampler="tpe").ask()
        return name

    names = ["a", "b", "c"]
    together = Barrier(len(names))
    with ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(begin, names)) == names


def test_the_database_of_a_study_uses_a_write_ahead_log(params: Params, space: Space, tmp_path: Path) -> None:
    opened(tmp_path, space, params)
    with closing(sqlite3.connect(tmp_path / "studies.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_trials_read_back(tmp_path: Path) -> None:
    trials = [
        Trial(0, {WEIGHT: 0.1, "agent.ppo.hidden": [8]}, "complete", 0.5, (0.4, 0.6), 0.7, ((1, 0.2), (2, 0.3))),
        Trial(1, {WEIGHT: 1, "agent.ppo.hidden": [9]}, "failed", None, note="$x^2$"),
    ]
    write_trials(tmp_path / "trials.json", trials)
    assert [t.values for t in read_trials(tmp_path / "trials.json")] == [t.values for t in trials]
    assert read_trials(tmp_path / "trials.json")[0] == trials[0]
    (tmp_path / "trials.json").write_text('[{"number": 1}]')
    with pytest.raises(DataError, match=re.escape("holds no trials")):
        read_trials(tmp_path / "trials.json")
