"""The pipeline on this machine: every step a process of this Python, by KFP's own runner.

KFP is talkative: all it says goes to a log file, and on standard error stands what the steps say of their
progress. Knows nothing about the stages but the lines by which a step says how far it is.
"""

import builtins
import contextlib
import io
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kfp import local

from laurel import __version__
from laurel.components.step import BEGUN, DONE, FAILED
from laurel.data.directory import replace_directory
from laurel.errors import DataError, LaurelError
from laurel.params import STEPS as STEP_NAMES
from laurel.params import Params
from laurel.pipelines.definition import arguments, make_pipeline
from laurel.tracking import git_sha

REPORTS, STEPS, LOG = "reports", "steps", "pipeline.log"


class PipelineError(LaurelError):
    """A step that failed; those before it are kept."""


def run_locally(params: Params, output: Path, *, debug: bool = False) -> Path:
    """Run the pipeline; return the directory of report.html and metrics.json.

    Runs are logged to MLFLOW_TRACKING_URI; without it they are not logged.

    Args:
        params: of the run.
        output: directory for reports/ (replaced when the run has succeeded), steps/ (every step's artifacts, a
            folder for each run) and pipeline.log (what KFP and the steps said).
        debug: show the whole log, and KFP's own error.

    Raises:
        PipelineError: a step failed.
        DataError: the output cannot be written.
    """
    output = output.resolve()
    reports = output / REPORTS
    foreign = reports.is_file() or (reports.is_dir() and any(reports.iterdir()))
    if foreign and not (reports / "manifest.json").is_file():
        raise DataError(f"{reports}: holds files that are not Laurel's. Choose another --output.")
    try:
        (output / STEPS).mkdir(parents=True, exist_ok=True)
        log = (output / LOG).open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{output}: cannot be written ({error.strerror}). Choose another --output.") from None
    pipeline = make_pipeline(params, on_this_machine=True)
    earlier = set(_reports(output))
    with log, _listening(_Listener(log, sys.stderr, everything=debug)) as listener:
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(output / STEPS))
        try:
            pipeline(**arguments(params, git_sha() or __version__))
        except RuntimeError as error:  # KFP raises it, without a cause, for any step that fails
            raise PipelineError(_explain(listener, str(error), output / LOG)) from error
    (made,) = set(_reports(output)) - earlier
    partial = reports.with_name(f".{REPORTS}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(made, partial)
        replace_directory(partial, reports)
    except OSError as error:
        raise DataError(f"{reports}: cannot be written ({error}). The report is whole in {made}.") from None
    return reports


def _reports(output: Path) -> list[Path]:
    """List the reports of this run and earlier ones."""
    return [manifest.parent for manifest in (output / STEPS).glob("*/evaluate/reports/manifest.json")]


class _Listener(io.TextIOBase):
    """A stand-in for standard output: keeps everything in a log, shows what a user wants to see, and remembers.

    KFP writes every line of a step with one call, from as many threads as it runs steps.
    """

    def __init__(self, log: TextIO, screen: TextIO, *, everything: bool) -> None:
        self._log, self._screen, self._everything = log, screen, everything
        self.unfinished: list[str] = []
        """Steps that began and did not end well, in that order."""
        self.sentences: dict[str, str] = {}
        """Step -> what it said of its failure."""

    def write(self, text: str) -> int:
        self._log.write(text)
        self._log.flush()
        line = text.strip()
        if said := re.fullmatch(r"laurel step (.+?): (\w[\w ]*)(?: \((.*)\))?", line):
            self._note(*said.groups())
            self._show(f"{said[1]}: {said[2]}" + (f" ({said[3]})" if said[3] and said[2] != FAILED else ""))
        elif self._everything:
            self._screen.write(text)
        elif warning := re.fullmatch(r"\[KFP Executor .* WARNING\]: (.*)", line):
            self._show(f"WARNING: {warning[1]}")
        elif any(line.startswith(f"{step}: ") for step in STEP_NAMES):  # a stage's progress
            self._show(line)
        return len(text)

    def _note(self, step: str, event: str, detail: str | None) -> None:
        if event == BEGUN:
            self.unfinished.append(step)
        elif event == DONE:
            self.unfinished.remove(step)
        elif event == FAILED:
            self.sentences[step] = detail or ""

    def _show(self, line: str) -> None:
        self._screen.write(f"{line}\n")
        self._screen.flush()


@contextlib.contextmanager
def _listening(listener: _Listener) -> Iterator[_Listener]:
    """Let KFP write to the listener, and put back what its threads may leave changed: `print` and the log handlers."""
    root = logging.getLogger()
    level, handlers, printing = root.level, root.handlers[:], builtins.print
    try:
        with contextlib.redirect_stdout(listener):
            yield listener
    finally:
        builtins.print = printing
        root.setLevel(level)
        root.handlers[:] = handlers


def _explain(listener: _Listener, message: str, log: Path) -> str:
    """Name the step that failed, and why where it said so."""
    named = re.search(r"Inner task failed: '?([\w-]+)", re.sub(r"\x1b\[\d+m", "", message))
    step = next(iter(listener.unfinished), named[1] if named else "the pipeline")
    step = next((name for name in listener.unfinished if name in listener.sentences), step)
    if step in listener.sentences:
        return f"step {step} failed: {listener.sentences[step]}"
    return f"step {step} failed without a reason of its own: it was killed, or has a defect. What it said is in {log}."
