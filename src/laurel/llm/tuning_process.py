"""Tuning of a causal language model by several processes: one per GPU, or on the CPU.

Each call writes a job into a folder (rows, settings, trainable weights) and starts `torch.distributed.run`, whose
processes load the model, train it in parallel, and end; the first of them writes the new weights. The watchdog of
`laurel.llm.served` ends them when the caller ends for any reason. No process runs between calls.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from laurel.errors import LaurelError, TrainingError, first_line
from laurel.llm.causal import is_adapted, load_causal, put_weights, save_causal, weights_of
from laurel.llm.local_model import LocalModel
from laurel.llm.lora import with_lora
from laurel.llm.shared_batches import place, processes_for
from laurel.llm.trl_tuning import (
    PAIRED,
    Group,
    Loss,
    Pair,
    Tuning,
    imitate,
    learn_from_groups,
    learn_from_pairs,
    step_of,
)

KEY = "agent.language_model.processes"
JOB, BASE, START, RESULT = "job.json", "base", "start.safetensors", "result.safetensors"
FAILED = "failed-*.json"
"""Error files of failed processes, with their rank in place of *."""
WATCHED_SECONDS = 1.0
SHOWN = 2000
"""Number of last characters of the log that are shown if processes die without an error file."""


def tune(
    local: LocalModel,
    loss: Loss | Literal["imitate"],
    rows: Sequence[Any],
    tuning: Tuning,
    seed: int,
    processes: int = 1,
) -> float:
    """Train the model in place by any of `laurel.llm.trl_tuning`'s functions; return the loss.

    Args:
        local: the model.
        loss: the function; imitate takes rows of prompts and answers, others pairs or groups.
        rows: training data.
        tuning: `batch_size` counts the rows of all processes.
        seed: of the order of the rows.
        processes: number of processes that share each batch; 1: this process alone.

    Raises:
        MissingPackageError: TRL is not installed.
        TrainingError: the loss is NaN or infinite, or a process failed.
    """
    if loss not in (*PAIRED, "imitate"):  # so that a batch with few groups is the same for any number of processes
        processes = processes_for(step_of(rows, loss, tuning, processes), processes)
    if min(processes, len(rows)) == 1:
        return _work(local, loss, rows, tuning, seed)
    if local.device.type == "cuda":
        _make_room(processes)
    with tempfile.TemporaryDirectory(prefix="laurel-tuning-") as name:
        folder = Path(name)
        _write(folder, local, loss, rows, tuning, seed)
        _run(folder, min(processes, len(rows)))
        return _take(folder, local)


def _work(local: LocalModel, loss: Any, rows: Sequence[Any], tuning: Tuning, seed: int) -> float:
    if loss == "imitate":
        return imitate(local, rows, tuning, seed)
    if loss in PAIRED:
        return learn_from_pairs(local, rows, loss, tuning, seed)
    return learn_from_groups(local, rows, loss, tuning, seed)


def _make_room(processes: int) -> None:
    import torch

    if processes > torch.cuda.device_count():
        raise TrainingError(
            f"{KEY} is {processes}, but this machine has {torch.cuda.device_count()} GPUs, and each process needs one. "
            "Lower it."
        )
    torch.cuda.empty_cache()  # the first process uses the same GPU


def _write(folder: Path, local: LocalModel, loss: str, rows: Sequence[Any], tuning: Tuning, seed: int) -> None:
    from safetensors.torch import save_file

    rank = local.model.peft_config["default"].r if is_adapted(local) else 0
    if not rank:
        save_causal(local, folder / BASE)
    save_file({name: weight.contiguous().cpu() for name, weight in weights_of(local.model).items()}, folder / START)
    job = {
        "model": local.identity.model if rank else str(folder / BASE),
        "lora_rank": rank,
        "dtype": str(local.model.dtype).removeprefix("torch."),
        "device": local.device.type,
        "loss": loss,
        "rows": rows,
        "how": dataclasses.asdict(tuning),
        "seed": seed,
    }
    (folder / JOB).write_text(json.dumps(job), encoding="utf-8")


def _run(folder: Path, processes: int) -> None:
    """Run the job's processes to their end.

    Raises:
        TrainingError: one of them failed.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "laurel.llm.tuning_process", str(folder)]
    with (folder / "log").open("wb") as log:
        watcher = subprocess.Popen(  # noqa: S603 - its arguments are not read by a shell
            [sys.executable, "-m", "laurel.llm.served", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    assert watcher.stdin is not None
    try:
        watcher.wait()
    finally:
        watcher.stdin.close()  # the watchdog notices the end of its input
        watcher.wait()
    if (folder / RESULT).exists():
        return
    # the others may fail because the first one did
    failures = sorted(folder.glob(FAILED), key=lambda path: path.stat().st_mtime_ns)
    if failures:
        failure = json.loads(failures[0].read_text(encoding="utf-8"))
        raise TrainingError(failure["sentence"]) from _InProcessError(failure["trace"])
    end = (folder / "log").read_text(encoding="utf-8", errors="replace")[-SHOWN:]
    raise TrainingError(
        f"One of the {processes} processes that tune the language model ({KEY}) was killed (out of memory?). Run the "
        "same command again to resume; lower agent.language_model.batch_size if memory is short."
    ) from _InProcessError(end)


class _InProcessError(Exception):
    """A process's traceback, or the end of its log, as text, for `--debug`."""


def _take(folder: Path, local: LocalModel) -> float:
    """Load the new weights into the model; return the loss."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    put_weights(local.model, load_file(folder / RESULT))
    with safe_open(folder / RESULT, "pt") as file:
        return float(file.metadata()["loss"])


def _main(folder: Path) -> int:
    """Run one process's part of a job; return its exit code."""
    process = place()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        _do(folder)
    except Exception as error:  # noqa: BLE001 - the caller reports any exception
        sentence = str(error) if isinstance(error, LaurelError) else _sentence(error)
        written = json.dumps({"sentence": sentence, "trace": f"\n{traceback.format_exc()}"})
        (folder / FAILED.replace("*", str(process.rank))).write_text(written, encoding="utf-8")
        return 1
    return 0


def _sentence(error: Exception) -> str:
    return f"A process that tunes the language model ({KEY}) failed: {type(error).__name__}: {first_line(error)}"


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even if the parent was killed."""
    while os.getppid() == parent:
        time.sleep(WATCHED_SECONDS)
    os._exit(1)


def _do(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    if job["device"] == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    local = load_causal(job["model"], device=job["device"], dtype=job["dtype"])
    if job["lora_rank"]:
        local.model.requires_grad_(False)
        local = with_lora(local, job["lora_rank"])
    put_weights(local.model, load_file(folder / START))
    kind: Any = Pair if job["loss"] in PAIRED else tuple if job["loss"] == "imitate" else Group
    rows = [tuple(row) if kind is tuple else kind(*row) for row in job["rows"]]
    loss = _work(local, job["loss"], rows, Tuning(**job["how"]), job["seed"])
    if place().rank == 0:
        new = {name: weight.contiguous().cpu() for name, weight in weights_of(local.model).items()}
        save_file(new, folder / f"{RESULT}.part", metadata={"loss": repr(loss)})
        (folder / f"{RESULT}.part").rename(folder / RESULT)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
