"""A study: the trials of one search, in an Optuna storage that outlives the process.

One process searches a study at a time. A trial that was running when the process ended is marked as failed, and its
candidate is tried again first under the same number; so a resumed search gives the results of an uninterrupted one if
trials run one at a time.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from laurel.data.directory import LIMITS, without_limits
from laurel.data.usage import Usage, added
from laurel.errors import DataError, ParamsError, first_line
from laurel.params import Params
from laurel.params.search import Searched, Space, is_whole
from laurel.seeding import derive_seed
from laurel.tuning.candidates import LEARNS, Candidate, candidates, own_values
from laurel.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

ABOUT, NUMBER, RESULT, USAGE, SECONDS = "laurel", "number", "result", "usage", "seconds"
"""Attributes of a study and of its trials."""
STARTUP_TRIALS = 5
"""Complete trials before any is pruned."""
FIRST_LOOK = 2
"""Tenths of its training after which a trial may be pruned."""


@dataclass(frozen=True)
class Asked:
    """A trial that is under way."""

    number: int
    values: Candidate
    handle: optuna.trial.Trial
    reported: set[int] = field(default_factory=set)
    """Tenths of the training that were reported."""


class Study:
    """The trials so far, and the next one."""

    def __init__(
        self, storage: Path, name: str, space: Space, params: Params, settings: Mapping[str, Any], *, sampler: str
    ) -> None:
        """Open a study, or begin it.

        Args:
            params: their own values are tried first; `seed` is used.
            settings: the settings that trials depend on, as JSON values; a study can only be continued with the same
                ones.

        Raises:
            DataError: the storage is not an SQLite file of studies, or the study has other parameters or another space.
        """
        import optuna
        from filelock import FileLock

        for logger in ("optuna", "alembic"):
            logging.getLogger(logger).setLevel(logging.ERROR)
        self._space, self._params, self._sampler = space, params, sampler
        self._distributions = {name: distribution_of(name, searched) for name, searched in space.items()}
        storage.parent.mkdir(parents=True, exist_ok=True)
        with (
            _explaining(storage),
            FileLock(storage.with_name(f".{storage.stem}.lock")),
        ):  # otherwise two processes create its tables
            self._study = optuna.create_study(
                study_name=name,
                storage=_storage(storage),
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, FIRST_LOOK),
            )
            self._check(storage, settings)
            self._before, self._began = float(self._study.user_attrs.get(SECONDS, 0.0)), time.monotonic()
            self.put_back()

    def _check(self, storage: Path, settings: Mapping[str, Any]) -> None:
        from laurel.tracking.tracker import flatten

        stored = self._study.user_attrs.get(ABOUT)
        current = json.loads(json.dumps(settings))
        if stored is None and not self._study.trials:
            self._study.set_user_attr(ABOUT, current)
            return
        name = f'{storage}: the study "{self._study.study_name}"'
        advice = "Name another one with --study."
        if stored is None:
            raise DataError(f"{name} is not Laurel's. {advice}")
        if any(
            limit in stored.get("params", {}).get("annotate", {}) for limit in LIMITS
        ):  # as earlier versions noted them
            stored = {**stored, "params": without_limits(stored["params"])}
        names = [list(settings["space"]) if "space" in settings else [] for settings in (stored, current)]
        if set(names[0]) != set(names[1]):
            was, is_ = (", ".join(sorted(searched)) for searched in names)
            raise DataError(f"{name} was started with a search of {was}, but now it is one of {is_}. {advice}")
        before, after = flatten(stored), flatten(current)
        for key in dict.fromkeys((*before, *after)):
            if before.get(key) != after.get(key):
                was, is_ = json.dumps(before.get(key)), json.dumps(after.get(key))
                raise DataError(f"{name} was started with {key} {was}, but now it is {is_}. {advice}")

    def put_back(self) -> None:
        """Mark abandoned trials as failed, and queue their candidates to be tried again."""
        from optuna.trial import TrialState

        for left in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(left.number, state=TrialState.FAIL)
            if NUMBER in left.user_attrs:  # without it, the process ended within `ask`
                values = left.system_attrs.get("fixed_params", left.params)
                self._study.enqueue_trial(values, user_attrs={NUMBER: left.user_attrs[NUMBER]})

    def ask(self) -> Asked | None:
        """Return the next candidate; None where a grid has no more."""
        import optuna
        from optuna.trial import TrialState

        if not self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            number = self._next_number()
            fixed = self._fixed(number)
            if self._sampler != LEARNS and fixed is None:
                return None
            if fixed is not None:
                written = {name: stored_as(value) for name, value in fixed.items()}
                self._study.enqueue_trial(written, user_attrs={NUMBER: number})
            # a sampler's random state is not kept: a seed for each trial makes a resumed study draw the same
            seed = derive_seed(self._params.seed, "tune", number)
            self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        handle = self._study.ask(self._distributions)
        if NUMBER not in handle.user_attrs:
            handle.set_user_attr(NUMBER, self._next_number())
        values = {name: self._read(name, value) for name, value in handle.params.items()}
        return Asked(handle.user_attrs[NUMBER], {name: values[name] for name in self._space}, handle)

    def _fixed(self, number: int) -> Candidate | None:
        """Return a candidate that does not depend on results; None if the next one does, or the grid has no more."""
        if self._sampler == LEARNS:
            return own_values(self._space, self._params) if number == 0 else None
        drawn = candidates(self._space, self._params, number + 1, self._sampler, self._params.seed)
        return drawn[number] if number < len(drawn) else None

    def _next_number(self) -> int:
        known = [trial.user_attrs.get(NUMBER, -1) for trial in self._study.get_trials(deepcopy=False)]
        return max(known, default=-1) + 1

    def _read(self, name: str, value: Any) -> JsonValue:
        searched = self._space[name]
        if searched.choices is not None:
            return next(choice for choice in searched.choices if stored_as(choice) == value)
        return searched.rounded(value)

    def report(self, asked: Asked, reports: Sequence[tuple[int, float]], *, prune: bool) -> bool:
        """Record scores so far; return whether the trial is worse than the median of the others and should be pruned.

        Later reports are ignored, so that the result does not depend on their timing.
        """
        for step, value in reports:
            if step in asked.reported:
                continue
            asked.reported.add(step)
            asked.handle.report(value, step)
            if prune and asked.handle.should_prune():
                return True
        return False

    def tell(self, asked: Asked, trial: Trial, usage: Usage | None = None) -> None:
        """Record a result, and what its training asked of language models."""
        from optuna.trial import TrialState

        result = {
            "state": trial.state,
            "seed_scores": list(trial.seed_scores),
            "last_return": trial.last_return,
            "note": trial.note,
        }
        asked.handle.set_user_attr(RESULT, result)
        asked.handle.set_user_attr(USAGE, dict(usage or {}))
        self._study.set_user_attr(SECONDS, self.seconds)
        if trial.state == "complete":
            self._study.tell(asked.handle, trial.score)
        else:  # a diverged trial counts as worse than one that was pruned later
            self._study.tell(asked.handle, state=TrialState.PRUNED)

    @property
    def seconds(self) -> float:
        """Seconds of work so far, with those of earlier searches up to their last trial that ended."""
        return self._before + time.monotonic() - self._began

    def use(self, usage: Usage) -> None:
        """Record what a trial asked of language models whose training is dropped before it has ended."""
        self._study.set_user_attr(USAGE, added(self._study.user_attrs.get(USAGE, {}), usage))

    def usage(self) -> Usage:
        """Return what all trials asked of language models that have ended or were dropped."""
        trials = self._study.get_trials(deepcopy=False)
        dropped = self._study.user_attrs.get(USAGE, {})
        return reduce(added, (trial.user_attrs.get(USAGE, {}) for trial in trials), dropped)

    def trials(self) -> list[Trial]:
        """Return the trials that have ended, by number."""
        from optuna.trial import TrialState

        ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return sorted((self._trial(trial) for trial in ended), key=lambda trial: trial.number)

    def _trial(self, stored: optuna.trial.FrozenTrial) -> Trial:
        result = stored.user_attrs[RESULT]
        return Trial(
            number=stored.user_attrs[NUMBER],
            values={name: self._read(name, stored.params[name]) for name in self._space},
            state=result["state"],
            score=stored.value if result["state"] == "complete" else None,
            seed_scores=tuple(result["seed_scores"]),
            last_return=result["last_return"],
            reports=tuple(sorted(stored.intermediate_values.items())),
            note=result["note"],
        )


def distribution_of(name: str, searched: Searched) -> Any:
    """Return the values of a parameter as an Optuna distribution."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if searched.choices is not None:
        return CategoricalDistribution([stored_as(choice) for choice in searched.choices])
    assert searched.low is not None
    assert searched.high is not None
    if is_whole(name, searched):
        return IntDistribution(int(searched.low), int(searched.high), log=searched.log)
    return FloatDistribution(searched.low, searched.high, log=searched.log)


def stored_as(value: JsonValue) -> Any:
    """Write values for which Optuna has no type, such as lists, as JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _storage(file: Path) -> optuna.storages.RDBStorage:
    import optuna

    # the URL only names the kind of storage
    return optuna.storages.RDBStorage("sqlite:///a", engine_kwargs={"creator": partial(_connect, file)})


def _connect(file: Path) -> sqlite3.Connection:
    """Connect as SQLAlchemy does, without waiting for the disk at each of the two dozen commits of a trial."""
    connection = sqlite3.connect(file, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL: a crash of this process loses nothing
    return connection


@contextmanager
def _explaining(storage: Path) -> Iterator[None]:
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError, RuntimeError, OSError) as error:
        reason = first_line(error)
        raise DataError(f"{storage}: not a storage of studies ({reason}). Choose another --storage.") from None


def check_sampler(sampler: str, space: Space, params: Params) -> None:
    """Raise ParamsError where a grid is to be drawn from a range."""
    if sampler != LEARNS:
        candidates(space, params, 1, sampler, params.seed)
    if not space:
        raise ParamsError("--search names no parameter.")
