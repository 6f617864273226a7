"""Following a run from afar: every change of a step's state, and at the end what failed.

Knows neither Vertex AI nor Kubeflow: it is given a way to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from laurel.errors import LaurelError

SUCCEEDED = "succeeded"
ENDED = (SUCCEEDED, "failed", "cancelled", "canceled", "skipped", "paused")
PATIENCE = 900.0
"""Seconds without an answer after which following is given up; the run goes on."""


class UnreachableError(LaurelError):
    """No answer this time; the next may come."""


@dataclass(frozen=True)
class Step:
    """A task of a run."""

    kind: str
    state: str
    reason: str = ""
    """Why it failed, as the backend says it."""
    log: str = ""
    """Where its log is."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    state: str
    steps: Mapping[str, Step] = field(default_factory=dict)
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def summary(self) -> list[str]:
        """Say the state of the run and of each step, and why what failed did."""
        return [f"run: {self.state}", *(f"{name}: {step.state}" for name, step in self.steps.items()), *self.failures()]

    def failures(self) -> list[str]:
        """Say which steps failed, why, and where their logs are."""
        lines = []
        for name, step in self.steps.items():
            if step.state == "failed":
                lines.append(f"step {name} failed: {step.reason or 'without a message of its own.'}")
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
    """Look until the run has ended, and say what changes; return its last state.

    Args:
        look: asks how far the run is; may raise UnreachableError, which is borne for a while.
        say: takes a line.
        seconds: between two looks.
        patience: seconds without an answer after which to give up.

    Raises:
        UnreachableError: no answer for longer than that.
    """
    seen: dict[str, str] = {}
    answered = time.monotonic()
    while True:
        try:
            progress = look()
        except UnreachableError as error:
            if time.monotonic() - answered > patience:
                raise
            _note(seen, say, {"": "no answer; asking again"}, str(error))
        else:
            answered = time.monotonic()
            seen.pop("", None)
            states = {name: step.state for name, step in progress.steps.items()}
            _note(seen, say, {**states, "run": progress.state})
            if progress.ended:
                return progress
        time.sleep(seconds)


def _note(seen: dict[str, str], say: Callable[[str], None], states: Mapping[str, str], detail: str = "") -> None:
    for name, state in states.items():
        if seen.get(name) != state:
            seen[name] = state
            label = f"{name}: " if name else ""
            say(f"{time.strftime('%H:%M:%S')} {label}{state}{f' ({detail})' if detail else ''}")
