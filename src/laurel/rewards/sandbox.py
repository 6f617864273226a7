"""Runs a reward function that a language model wrote, in Monty: a Python without files, network or host objects.

Monty (pydantic-monty) is a separate interpreter in a separate process, with limits on time, memory and depth; a worker
that exceeds its limits is killed. Its results are data, of which only finite numbers are used.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from laurel.arrays import DoubleArray
from laurel.errors import LaurelError
from laurel.extras import need

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

    from laurel.envs.numbers import Number

PACKAGE = "pydantic_monty"
BATCH = 4096
"""Maximum number of rows per batch."""
NUMBERS = 2**18
"""Maximum number of observed numbers per batch, of which each takes some 36 bytes of MEMORY: a function must not be
stopped for what it is given. A batch of images has fewer rows."""
SECONDS, MEMORY, DEPTH = 2.0, 64 * 2**20, 100
"""Limits on the evaluation of a batch: time, bytes, nested calls."""
SUSPENSIONS = 100
"""Maximum number of requests for missing names or files before a function is stopped."""
LARGEST = 1e6
"""Maximum magnitude of a reward."""
MOST_COMPONENTS, LONGEST_NAME, LONGEST_REASON = 12, 40, 160
MODULES = ("math",)
"""Modules available without import."""
_MEASURED = re.compile(r"limit exceeded: [^>]+ > (.+)$")
"""What a function took of a limit. It is left out, as it differs between runs: reasons are stored and shown to the
writer, whose answers are stored by the question."""
_SETUP = "\n".join(f"import {module}" for module in MODULES)
_DRIVER = """
def _named(values):
    return dict(zip(_names, values)) if _names else values

def _row(before, action, after):
    try:
        return (True, reward(_named(before), action, _named(after)))
    except Exception as error:
        return (False, type(error).__name__ + ": " + str(error)[:200])

[_row(*_one) for _one in _rows]
"""


class SandboxError(LaurelError):
    """A function that exceeded its limits, or cannot be run at all."""


@dataclass(frozen=True)
class Evaluated:
    """Results of a function for N rows."""

    rewards: DoubleArray
    """(N,) NaN if it failed."""
    components: Mapping[str, DoubleArray]
    """Name -> (N,) NaN if not returned."""
    failures: Mapping[str, int]
    """Reason for failure -> number of rows."""

    @property
    def failed(self) -> int:
        return int(np.isnan(self.rewards).sum())


class Sandbox:
    """A function `reward(observation, action, next_observation)`, ready to be called; a context manager.

    Args:
        source: Python that defines it.
        names: of an observation's numbers, which are then passed as a dict; (): as a list.
        seconds: limit for a batch.
        memory: limit in bytes.

    Raises:
        MissingPackageError: Monty is not installed.
    """

    def __init__(
        self, source: str, names: Sequence[str] = (), *, seconds: float = SECONDS, memory: int = MEMORY
    ) -> None:
        need(PACKAGE)
        from pydantic_monty import Monty

        self._source, self._names = source, tuple(names)
        self._limits: dict[str, Any] = {
            "max_feed_duration_secs": seconds,
            "max_memory": memory,
            "max_recursion_depth": DEPTH,
            "max_suspensions": SUSPENSIONS,
            "max_total_sleep_secs": 0.0,
        }
        self._pool: Monty = Monty(max_processes=1, request_timeout=2 * seconds + 1)
        self._session: MontySession | None = None
        self._end: Callable[[], object] = _nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the worker; the next call starts another one."""
        self._session = None
        self._end()

    def evaluate(
        self, before: Sequence[Sequence[Number]], actions: Sequence[Any], after: Sequence[Sequence[Number]]
    ) -> Evaluated:
        """Call the function for N rows: numbers before and after, and the action between them.

        Raises:
            SandboxError: it exceeded its limits, or defines no such function.
        """
        from pydantic_monty import MontyError

        rows = list(zip(before, actions, after, strict=True))
        answers: list[Any] = []
        try:
            session = self._session or self._begin()
            size = max(1, min(BATCH, NUMBERS // max(1, 2 * len(rows[0][0])))) if rows else BATCH
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                answer = session.feed_run(_DRIVER, inputs={"_rows": part}, print_callback=_silent())
                if not isinstance(answer, list) or len(answer) != len(part):
                    self.close()
                    raise SandboxError("it changed what its caller returns")
                answers += answer
        except MontyError as error:
            self.close()
            raise SandboxError(_reason(error)) from None
        return _read(answers)

    def _begin(self) -> MontySession:
        pool = self._pool.__enter__()
        session = pool.checkout(
            limits=self._limits,  # type: ignore[arg-type]
            print_flush_interval=None,
            assert_message_annotations=False,
            os_policy={"datetime": datetime(2000, 1, 1, tzinfo=UTC), "sleep": "zero", "random_start": {"seed": 0}},
        )
        self._end = weakref.finalize(self, partial(_end, pool, session.__enter__()))
        session.feed_run(_SETUP, inputs={"_names": self._names})
        session.feed_run(self._source, print_callback=_silent())
        self._session = session
        return session


def _silent() -> Any:
    """Return a stream that receives printed text, up to a limit, instead of the terminal."""
    from pydantic_monty import CollectString

    return CollectString(2**16)


def _nothing() -> None:
    """Do nothing: no worker was started."""


def _end(pool: Monty, session: MontySession) -> None:
    session.__exit__(None, None, None)
    pool.__exit__(None, None, None)


def _reason(error: Any) -> str:
    """Return a line on why Monty stopped a function."""
    from pydantic_monty import MontyCrashedError, MontySyntaxError

    if isinstance(error, MontyCrashedError):
        return "it did not stop at its limits, so its process was killed"
    text = str(error).strip().splitlines() or [type(error).__name__]
    if "suspension limit" in text[-1]:
        return f"it asked more than {SUSPENSIONS} times for names or files that are not there"
    kind = "it cannot be read: " if isinstance(error, MontySyntaxError) else ""
    return kind + _printable(_MEASURED.sub(r"limit of \1 exceeded", text[-1]))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:LONGEST_REASON]


def _read(answers: Sequence[Any]) -> Evaluated:
    rewards = np.full(len(answers), np.nan)
    components: dict[str, DoubleArray] = {}
    failures: Counter[str] = Counter()
    for row, answer in enumerate(answers):
        if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not bool:
            failures["it returned something else than a number"] += 1
            continue
        done, value = answer
        parts: Mapping[Any, Any] = {}
        if not done:
            # a value that is not text is not the driver's: the function can replace names that the driver uses
            failures[_printable(value) if type(value) is str else "it changed what its caller returns"] += 1
            continue
        if type(value) is tuple and len(value) == 2 and type(value[1]) is dict:
            value, parts = value
        problem = _problem(value) or _problem_of_parts(parts)
        if problem:
            failures[problem] += 1
            continue
        rewards[row] = value
        for name, part in parts.items():
            if name not in components and len(components) < MOST_COMPONENTS:
                components[name] = np.full(len(answers), np.nan)
            if name in components:
                components[name][row] = part
    return Evaluated(rewards, components, dict(failures.most_common()))


def _problem(value: Any) -> str:
    """Return why a value cannot be a reward, or an empty string."""
    if type(value) not in (int, float):
        return f"it returned {_KINDS.get(type(value), 'something else than a number')}"
    if isinstance(value, float) and not math.isfinite(value):
        return "it returned NaN or infinity"
    return f"it returned a number beyond {LARGEST:g}" if abs(value) > LARGEST else ""


def _problem_of_parts(parts: Mapping[Any, Any]) -> str:
    for name, part in parts.items():
        if type(name) is not str or not name.isprintable() or len(name) > LONGEST_NAME:
            return f"it named a component by something else than a text of {LONGEST_NAME} characters"
        if problem := _problem(part):
            return f"of the component {name}, {problem}"
    return ""


_KINDS: Mapping[type, str] = {bool: "a truth value", str: "text", type(None): "nothing", list: "a list", dict: "a dict"}
