"""Runs the pipeline on this machine with KFP's runners: every step is a process of this Python, or a container.

KFP's own output goes to a log file; standard error shows the steps' progress.
"""

import builtins
import contextlib
import io
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TextIO

from filelock import FileLock, Timeout
from kfp import local

from laurel.components import IMAGE
from laurel.components.step import BEGUN, DONE, FAILED, TRACKING_URI
from laurel.data.disk import reason_of
from laurel.data.replacing import lock_of, replace_directory
from laurel.errors import DataError, LaurelError
from laurel.interrupt import PARENT
from laurel.params import Params
from laurel.params.annotation import AnnotateParams
from laurel.params.pipeline import ROUND_STEPS, SWEEP_STEPS
from laurel.params.pipeline import STEPS as STEP_NAMES
from laurel.pipelines.containers import docker_runner, reaches_containers
from laurel.pipelines.definition import arguments, digest_of_sources, make_pipeline
from laurel.pipelines.files import code_with_files
from laurel.pipelines.stopping import StepProcesses, ended_once_interrupted
from laurel.pipelines.sweep import SweepPlan
from laurel.stages.preflight import check_run
from laurel.tracking.pipeline import close_pipeline_run, end_killed_pipelines

REPORTS, STUDY, STEPS, LOG, CACHE = "reports", "study", "steps", "pipeline.log", ".kfp_cache"
MADE = {REPORTS: "*/evaluate/reports", STUDY: "*/pick-best/study"}
"""Kind of run -> folder that its last step writes."""


class PipelineError(LaurelError):
    """A step failed; results of earlier steps are kept."""


def run_locally(
    params: Params,
    output: Path,
    *,
    runner: Literal["process", "docker"] = "process",
    image: str | None = None,
    resume: bool = False,
    retries: int = 0,
    debug: bool = False,
    sweep: SweepPlan | None = None,
) -> Path:
    """Run the pipeline; return the directory of report.html and metrics.json, or of a sweep that of best.yaml.

    Runs are logged only if MLFLOW_TRACKING_URI is set; those in containers also not if it is a database's file.

    Args:
        output: directory for reports/, or of a sweep study/ (replaced when the run has succeeded), steps/ (every
            step's artifacts, a folder for each run) and pipeline.log (the output of KFP and of the steps).
        runner: what a step is: a process of this Python, or a Docker container.
        image: what containers are made from, by default the one that `make image` makes.
        resume: reuse the results of steps with the same code and parameters from earlier runs with this output.
            The contents of files that parameters name, such as an environment's module, belong to the code.
        retries: further attempts at a step that failed.
        debug: show the whole log, and KFP's own error.
        sweep: candidates to try, instead of training and evaluating all arms.

    Raises:
        PipelineError: a step failed.
        DataError: the output cannot be written.
        LaurelError: the parameters do not fit together, as `laurel.stages.preflight` says.
        EngineError: Docker does not answer, or the image cannot be pulled.
    """
    output = output.resolve()
    kind = REPORTS if sweep is None else STUDY
    place = output / kind
    place = place.resolve() if place.is_symlink() else place
    foreign = place.is_file() or (place.is_dir() and any(place.iterdir()))
    if foreign and not (place / "manifest.json").is_file():
        raise DataError(f"{place}: holds files that Laurel did not write. Choose another --output.")
    if runner == "process":  # a container may have what this Python lacks, and the step `plan` looks there
        check_run(params)
    if runner == "docker":
        params = _tracked_from_containers(params)
    cache = output / STEPS / CACHE
    with (
        _alone(output, params) as log,
        _closed_if_stopped(params, output / STEPS),
        _listening(_Listener(log, sys.stderr, everything=debug)) as listener,
        _runner(runner, image or IMAGE, params.annotate, output / STEPS) as (chosen, name, code),
    ):
        earlier = set(_made(output, kind))
        if not resume:
            shutil.rmtree(cache, ignore_errors=True)
        pipeline = make_pipeline(params, image=name, on_this_machine=True, retries=retries, sweep=sweep)
        places = {"pipeline_root": str(output / STEPS), "cache_root": str(cache)}
        # no step has a workspace, for which KFP makes a temporary folder that a killed run leaves behind
        local.init(chosen, workspace_root="", enable_caching=True, **places)
        try:
            pipeline(**arguments(params, code_with_files(code, params, [output])))
            (produced,) = set(_made(output, kind)) - earlier
        # KFP raises the first, without a cause, for any step that fails; the other follows where it takes a
        # container that failed for one that succeeded
        except (RuntimeError, ValueError) as error:
            sentence = _explain(listener, str(error), output / LOG)
            raise PipelineError(f"{sentence} With --resume, finished steps are not repeated.") from error
        except OSError as error:  # of KFP itself, where it makes the steps' folders
            raise DataError(
                f"{output}: cannot be written ({reason_of(error)}). With --resume, finished steps are not repeated."
            ) from error
    partial = place.with_name(f".{kind}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(produced, partial)
        replace_directory(partial, place)
    except OSError as error:
        raise DataError(f"{place}: cannot be written ({reason_of(error)}). All of it is in {produced}.") from None
    return place


def _made(output: Path, kind: str) -> list[Path]:
    """List the artifacts of this run and earlier ones."""
    return [manifest.parent for manifest in (output / STEPS).glob(f"{MADE[kind]}/manifest.json")]


@contextlib.contextmanager
def _alone(output: Path, params: Params) -> Iterator[TextIO]:
    """Hold the lock of an output, and yield its log; end runs in MLflow that killed pipelines have left.

    Raises:
        DataError: another process holds the lock, or the output cannot be written.
    """
    try:
        (output / STEPS).mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_of(output), blocking=False)
        lock.acquire()
    except Timeout:
        raise DataError(
            f"{output}: another process is writing it. Wait for it to end, or choose another --output."
        ) from None
    except OSError as error:
        raise _unwritable(output, error) from None
    with lock:
        file = output / LOG
        if file.exists():  # written to until the latest pipeline ended
            names = [folder.name for folder in (output / STEPS).iterdir() if folder.name != CACHE]
            end_killed_pipelines(params.tracking, names, ended_at=file.stat().st_mtime)
        try:
            log = file.open("w", encoding="utf-8")
        except OSError as error:
            raise _unwritable(output, error) from None
        try:
            yield log
        finally:
            with contextlib.suppress(OSError):  # what a full disk does not take is lost
                log.close()


def _unwritable(output: Path, error: OSError) -> DataError:
    return DataError(f"{output}: cannot be written ({reason_of(error)}). Choose another --output.")


@contextlib.contextmanager
def _closed_if_stopped(params: Params, steps: Path) -> Iterator[None]:
    """Close the pipeline's run in MLflow if the block is stopped by Ctrl-C: then KFP does not run `finish`.

    Args:
        steps: where KFP makes a folder of each pipeline's name.
    """
    existing = set(steps.iterdir())
    try:
        yield
    except KeyboardInterrupt:
        for folder in set(steps.iterdir()) - existing - {steps / CACHE}:
            close_pipeline_run(params.env, params.tracking, folder.name, "CANCELLED", "", [folder.name])
        raise


@contextlib.contextmanager
def _runner(
    name: str, image: str, asked: AnnotateParams, root: Path
) -> Iterator[tuple[local.SubprocessRunner | local.DockerRunner, str, str]]:
    """Yield KFP's runner, the image of its steps (also if they are processes), and an identifier of their code.

    Steps end once Ctrl-C is pressed or SIGTERM is received; those that are processes, once this one is killed, too.
    """
    if name == "docker":
        with docker_runner(image, asked, root) as chosen:
            yield chosen
    else:
        steps = StepProcesses()
        try:
            with ended_once_interrupted(steps.end, threading.Event()):
                os.environ[PARENT] = str(os.getpid())  # KFP's runner takes no variables for its processes
                yield local.SubprocessRunner(use_venv=False), image, digest_of_sources()
        finally:
            os.environ.pop(PARENT, None)
            steps.wait()


def _tracked_from_containers(params: Params) -> Params:
    """Turn tracking off, with a message, if containers cannot reach the tracking store."""
    if not params.tracking.enabled or reaches_containers(os.environ.get(TRACKING_URI, "")):
        return params
    sys.stderr.write(
        "WARNING: runs are not logged: containers cannot reach a database's file. Set MLFLOW_TRACKING_URI to the "
        "address of an MLflow server.\n"
    )
    return params.model_copy(update={"tracking": params.tracking.model_copy(update={"enabled": False})})


class _Listener(io.TextIOBase):
    """Replaces standard output: writes everything to a log, shows progress lines, and records failures.

    KFP writes every line of a step with one call, from as many threads as it runs steps.
    """

    def __init__(self, log: TextIO, screen: TextIO, *, everything: bool) -> None:
        self._log, self._screen, self._everything = log, screen, everything
        self.unfinished: list[str] = []
        """Steps that started without succeeding, in order."""
        self.sentences: dict[str, str] = {}
        """Step -> its message of failure."""
        self._running: dict[int, str] = {}
        """Thread of KFP -> the step that it runs, which may be one of several branches."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # a full disk: the steps themselves say so
            self._log.write(text)
            self._log.flush()
        line, running = text.strip(), self._running.get(threading.get_ident())
        if match := re.fullmatch(r"laurel step (.+?): (\w[\w ]*)(?: \((.*)\))?", line):
            self._note(*match.groups())
            self._show(f"{match[1]}: {match[2]}" + (f" ({match[3]})" if match[3] and match[2] != FAILED else ""))
        elif self._everything:
            self._screen.write(text)
        elif warning := re.fullmatch(r"\[KFP Executor .* WARNING\]: (.*)", line):
            self._show(f"WARNING: {f'{running}: ' if running else ''}{warning[1]}")
        elif line.startswith(tuple(f"{step}: " for step in (*STEP_NAMES, *SWEEP_STEPS, *ROUND_STEPS))):  # progress
            step, _, message = line.partition(": ")
            self._show(f"{running or step}: {message}")
        return len(text)

    def _note(self, step: str, event: str, detail: str | None) -> None:
        if event == BEGUN:
            self.unfinished.append(step)
            self._running[threading.get_ident()] = step
        elif event == DONE:
            self.unfinished = [name for name in self.unfinished if name != step]  # attempts that failed, too
        elif event == FAILED:
            self.sentences[step] = detail or ""

    def _show(self, line: str) -> None:
        self._screen.write(f"{line}\n")
        self._screen.flush()


@contextlib.contextmanager
def _listening(listener: _Listener) -> Iterator[_Listener]:
    """Redirect KFP's output to the listener, and afterwards restore `print` and the log handlers."""
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
    """Return the name of the failed step, with its reason if known."""
    named = re.search(r"Inner task failed: '?([\w-]+)", re.sub(r"\x1b\[\d+m", "", message))
    step = next(iter(listener.unfinished), named[1] if named else "the pipeline")
    same_step = [name for name in listener.unfinished if name.partition(" ")[0] == step.partition(" ")[0]]
    step = next((name for name in same_step if name in listener.sentences), step)
    if step in listener.sentences:
        return f"step {step} failed: {listener.sentences[step]}"
    return f"step {step} failed without a reason: it was killed, or has a bug. Its output is in {log}."
