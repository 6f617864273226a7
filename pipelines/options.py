"""The options of a submission, and the collected problems and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from laurel.errors import LaurelError
from laurel.tuning.plan import Search

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The user's options for a submission to either backend."""

    params: Path = Path("params.yaml")
    template: Path | None = None
    image: str | None = None
    gpu_image: str | None = None
    gpu: str | None = None
    in_image: Sequence[str] = ()
    """Keys of parameters whose files the image holds."""
    code_version: str | None = None
    cache: bool = True
    secrets: Sequence[str] = ()
    schedule: str | None = None
    service_account: str | None = None
    project: str | None = None
    region: str | None = None
    bucket: str | None = None
    network: str | None = None
    api_endpoint: str | None = None
    host: str | None = None
    search: Search | None = None
    """The search of a sweep; None trains and evaluates all arms."""

    @property
    def vertex(self) -> bool:
        return self.host is None


@dataclass
class Findings:
    """The problems of a submission, and notes to its user, as sentences."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def check(self, problem: str | None) -> None:
        if problem:
            self.problems.append(problem)

    def attempt(self, make: Callable[[], T]) -> T | None:
        """Return the function's result, or record its error as a problem."""
        try:
            return make()
        except LaurelError as error:
            self.problems.extend(str(error).splitlines())
            return None
