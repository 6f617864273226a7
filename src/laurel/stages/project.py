"""Run all stages of a project in order, skipping those whose parameters and inputs have not changed.

Does not use DVC. Each stage is a separate process, which finally records the inputs of its output, as do stages that
are started by hand or by DVC.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laurel import __version__
from laurel.console import REASON_FILE, tell
from laurel.data.json_file import digest_json, read_json, write_json
from laurel.data.manifest import LIVE_PAGE, checked_manifest, read_manifest, stamp_directory
from laurel.errors import DataError, StageError
from laurel.evaluation.run_page import in_words
from laurel.interrupt import PARENT
from laurel.params import Params, load_params
from laurel.stages.own_files import own_files
from laurel.stages.pipeline import PLACES, STAGES, Stage

DONE = ".laurel.json"
"""File beside the outputs: stage -> its inputs, the digest of its output, and the stamp of its files."""
REPORTS = "reports"
INTERRUPTED = 130


def places(folder: Path) -> dict[str, Path]:
    """Return the directories of the stages' outputs in a project: PLACES, and the reports."""
    return {name: folder / place for name, place in PLACES.items()} | {REPORTS: folder / REPORTS}


def run_project(params_file: Path, folder: Path, *, force: bool = False) -> list[str]:
    """Run the stages of a project that are not up to date; return their names.

    Args:
        folder: of the outputs, which are named as in PLACES.

    Raises:
        ParamsError: as `load_params`.
        StageError: a stage failed, and has printed why, which is also the error's `reason`.
        KeyboardInterrupt: also if the running stage was interrupted.
    """
    params = load_params(params_file)
    folder.mkdir(parents=True, exist_ok=True)
    ran: list[str] = []
    took = {stage.name: _seconds(folder / stage.output) for stage in STAGES}
    tell(f"report: {(folder / REPORTS / 'report.html').resolve().as_uri()} once the last stage is done\n")
    for number, stage in enumerate(STAGES, start=1):
        if not force and up_to_date(stage, params, folder):
            tell(f"{stage.name}: up to date")
            continue
        times = [took[later.name] for later in STAGES[number - 1 :]]
        known = [seconds for seconds in times if seconds is not None]
        estimate = (
            f"; this and the following stages took {in_words(sum(known))} before" if len(known) == len(times) else ""
        )
        tell(f"stage {number} of {len(STAGES)}: {stage.name}{estimate}")
        _run(stage, params_file, folder)
        ran.append(stage.name)
    return ran


def _seconds(output: Path) -> float | None:
    """Return the seconds that the present output took; None if unknown."""
    try:
        seconds: float | None = read_manifest(output)["seconds"]
    except DataError:
        return None
    return seconds


def up_to_date(stage: Stage, params: Params, folder: Path) -> bool:
    """Whether this version of Laurel wrote a stage's output from these parameters and inputs."""
    state, recorded = _state(stage, params, folder), _recorded(folder).get(stage.name)
    if state is not None and not (folder / DONE).exists():
        tell(
            f"{folder / stage.output}: there is no {DONE} that says what it was made from, as after dvc pull, so "
            f"{stage.name} is run again. Use dvc repro to keep what DVC fetched."
        )
    if state is None or recorded is None or any(state[key] != recorded.get(key) for key in ("made_from", "digest")):
        return False
    if state["stamp"] != recorded.get("stamp"):
        try:
            checked_manifest(folder / stage.output, stage.name)
        except DataError:
            tell(
                f"{folder / stage.output}: was changed since laurel {stage.name} wrote it, so that stage is run again."
            )
            return False
    return True


def note(stage: Stage, params: Params, inputs: Mapping[str, Path], output: Path) -> None:
    """Record the inputs of a stage's output, unless one of these directories is outside the project's layout."""
    folder = Path(*output.parts[: -len(Path(stage.output).parts)])
    if {**inputs, "": output} != {name: places(folder)[name] for name in stage.inputs} | {"": folder / stage.output}:
        return
    if (state := _state(stage, params, folder)) is not None:
        write_json(folder / DONE, {**_recorded(folder), stage.name: state})


def _recorded(folder: Path) -> Mapping[str, Any]:
    """Return the content of DONE; empty where it is missing or damaged, so that stages run again."""
    try:
        states = read_json(folder / DONE) if (folder / DONE).exists() else {}
    except DataError:
        states = None
    if isinstance(states, dict) and all(isinstance(state, dict) for state in states.values()):
        return states
    tell(f"{folder / DONE}: is damaged, so it is unknown which stages are up to date, and all are run again.")
    return {}


def _state(stage: Stage, params: Params, folder: Path) -> dict[str, str] | None:
    """Return digests of a stage's output and inputs; None if any of them is missing."""
    judges = params.judges if "judges" in stage.sections else None
    outputs = places(folder)
    try:
        inputs = {name: read_manifest(outputs[name])["digest"] for name in stage.inputs}
        digest = read_manifest(folder / stage.output, stage.name)["digest"]
    except DataError:
        return None
    used = stage.used(params)
    files = own_files(used, outputs.values())
    content = {"params": used, "files": files, "judges": judges, "inputs": inputs, "version": __version__}
    return {"made_from": digest_json(content), "digest": digest, "stamp": stamp_directory(folder / stage.output)}


def _run(stage: Stage, params_file: Path, folder: Path) -> None:
    """Run a stage in a separate process, which stops if this one is killed.

    Ctrl-C is forwarded by this one, so that the stage is interrupted once.
    """
    outputs = places(folder)
    inputs = [word for name in stage.inputs for word in (f"--{name}", str(outputs[name]))]
    command = [sys.executable, "-m", "laurel", stage.name, "--params", str(params_file), *inputs]
    command += ["--output", str(folder / stage.output)]
    command += ["--live", str(folder / REPORTS / LIVE_PAGE)] if stage.name == "train-agents" else []
    with tempfile.TemporaryDirectory() as scratch:
        reason_file = Path(scratch, "reason")
        environment = {**os.environ, REASON_FILE: str(reason_file), PARENT: str(os.getpid())}
        with subprocess.Popen(command, process_group=0, env=environment) as process:  # noqa: S603 - our own command
            while True:
                try:
                    code = process.wait()
                    break
                except KeyboardInterrupt:
                    process.terminate()  # not SIGINT, which background processes of a shell ignore
        reason = reason_file.read_text(encoding="utf-8") if reason_file.exists() else ""
    if code in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if code:
        outcome = f"was killed by signal {-code}" if code < 0 else "failed"
        raise StageError(
            f"{stage.name} {outcome}. Finished work is kept: fix it, and run the same command to resume.", reason
        )
