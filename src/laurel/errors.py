"""Errors that a user can fix. The message says what is wrong, where, what is allowed, and how to fix it.

Any other exception that reaches the user is a bug in Laurel and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class LaurelError(Exception):
    """An error that the user can fix. The command line prints its message and exits with code 2."""


class ParamsError(LaurelError):
    """A parameter that is missing, unknown, of the wrong type or out of range."""


class DataError(LaurelError):
    """A file that one stage writes and another reads is missing, damaged or of the wrong kind."""


class EnvError(LaurelError):
    """An environment that cannot be made, or has spaces that Laurel cannot handle."""


class MissingHereError(LaurelError):
    """A package that this machine lacks; the image of a pipeline's steps may have it."""


class MissingEnvError(EnvError, MissingHereError):
    """An environment whose package is not installed here."""


class MissingPackageError(ParamsError, MissingHereError):
    """Parameters that need a package which is not installed here."""


class ActorError(LaurelError):
    """An actor of another package that raises, or returns invalid actions."""


class PluginError(LaurelError):
    """A plug-in of another package that raises."""


class AnnotationError(LaurelError):
    """Too many pairs without a usable label, or a language model that cannot be loaded."""


class RefusedLabelsError(AnnotationError):
    """Labels that failed a gate.

    Args:
        reasons: a line for each.
        kept: the directory in which the labels and their quality report are kept; None: they are not, or not yet.
    """

    def __init__(self, reasons: str, kept: Path | None = None) -> None:
        super().__init__(reasons if kept is None else f"{reasons}\nThe labels are kept: laurel show {kept}")
        self.reasons, self.kept = reasons, kept


class PromptError(LaurelError):
    """A prompt that cannot be found, read or rendered, or that does not accept the given goal."""


class TrainingError(LaurelError):
    """Training cannot continue, e.g. because it diverged."""


class StageError(LaurelError):
    """A stage that ended with an error, which has been shown to the user.

    Args:
        message: which stage, and how to continue.
        reason: the stage's own message, as far as known.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class WorkerError(LaurelError):
    """A worker process that died; what it had finished is kept."""


def closest(name: str, allowed: Iterable[str], cutoff: float = 0.5) -> str:
    """Return ' Did you mean "x"?' for the nearest allowed name, or an empty string if none is similar to `cutoff`."""
    match = difflib.get_close_matches(name, list(allowed), n=1, cutoff=cutoff)
    return f' Did you mean "{match[0]}"?' if match else ""


def no_such(noun: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the closest known name, and all known names."""
    names = list(known)
    return f'there is no {noun} "{name}".{closest(name, names)} There are {", ".join(names)}'


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's message without its full stop, or the class name if the message is empty.

    >>> first_line(ValueError("It broke.\nSo it goes.")), first_line(KeyError())
    ('It broke', 'KeyError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")
