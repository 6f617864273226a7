"""Follows a run: prints every change of a step's state, and at the end what failed.

Works for any backend: the caller passes a function that looks up the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from laurel.errors import LaurelError
from laurel.params.pipeline import ROUND_STEPS, STEPS, SWEEP_STEPS

SUCCEEDED = "succeeded"
ENDED = (SUCCEEDED, "failed", "cancelled", "canceled", "skipped", "paused")
SAME_AGAIN = "Try again later: the same command finds the run if it has begun, and does not start it twice."
"""What to do when it is unclear whether a run has begun."""
PATIENCE = 900.0
"""Seconds without an answer after which following ends; the run continues."""
LONGEST_PAUSE = 120.0
"""Maximum polling interval in seconds while there is no answer."""


class UnreachableError(LaurelError):
    """A poll without an answer, which may be temporary."""


@dataclass(frozen=True)
class Step:
    """A task of a run."""

    kind: str
    state: str
    reason: str = ""
    """The backend's reason for a failure."""
    log: str = ""
    """Location of its log."""


@dataclass(frozen=True)
class Progress:
    """The state of a run."""

    state: str
    steps: Mapping[str, Step] = field(default_factory=dict)
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def summary(self) -> list[str]:
        """Describe the state of the run and of each step, with reasons for failures."""
        return [f"run: {self.state}", *(f"{name}: {step.state}" for name, step in self.steps.items()), *self.failures()]

    def failures(self) -> list[str]:
        """List failed steps with reasons and logs."""
        lines = []
        for name, step in self.steps.items():
            if step.state == "failed":
                lines.append(f"step {name} failed: {step.reason or 'without a message.'}")
                lines += [f"  log: {step.log}"] if step.log else []
        if self.state in ENDED and self.state != SUCCEEDED and self.reason:
            lines.append(f"the run {self.state}: {self.reason}")
        return lines


def follow(
    look: Callable[[], Progress],
    say: Callable[[str], None],
    *,
    seconds: float,
    patience: float = PATIENCE,
) -> Progress:
    """Poll until the run has ended, and print changes; return its last state.

    Args:
        look: looks up the state; an UnreachableError is tolerated for a while.
        seconds: between two looks; more and more while there is no answer.
        patience: seconds without an answer after which to give up.

    Raises:
        UnreachableError: no answer for longer than that.
    """
    seen: dict[str, str] = {}
    answered, missed = time.monotonic(), 0
    while True:
        try:
            progress = look()
        except UnreachableError as error:
            if time.monotonic() - answered > patience:
                raise
            missed += 1
            _note(seen, say, {"": "no answer; the run continues, and is polled again"}, str(error))
        else:
            answered, missed = time.monotonic(), 0
            seen.pop("", None)
            states = {name: step.state for name, step in progress.steps.items()}
            _note(seen, say, {**states, "run": progress.state})
            if progress.ended:
                return progress
        time.sleep(max(seconds, min(seconds * 2**missed, LONGEST_PAUSE)))


def step_of(task: str) -> str | None:
    """Return which step a backend's task is by its name; None for a loop, a part of the graph, or the graph."""
    return next((step for step in (*STEPS, *SWEEP_STEPS, *ROUND_STEPS) if task.startswith(step)), None)


def _note(seen: dict[str, str], say: Callable[[str], None], states: Mapping[str, str], detail: str = "") -> None:
    for name, state in states.items():
        if seen.get(name) != state:
            seen[name] = state
            label = f"{name}: " if name else ""
            say(f"{time.strftime('%H:%M:%S')} {label}{state}{f' ({detail})' if detail else ''}")
