"""Tuning a language model in two processes: same result as in one, resumable, one-sentence errors, no left-over
files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from move_lists import GRID, SMALL
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import load_file
from shared_tuning import ANSWERS, tune_by_each

from laurel.agents.algorithms import initial_policy
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.envs import adapter_for
from laurel.errors import TrainingError
from laurel.llm import tuning_process
from laurel.llm.causal import load_causal, weights_of
from laurel.llm.lora import with_lora
from laurel.llm.shared_batches import Parts, Place, processes_for
from laurel.llm.tiny_model import write_tiny_model
from laurel.llm.trl_tuning import Tuning
from laurel.llm.tuning_process import tune
from laurel.params import parse_params
from laurel.params.language_actor import LanguageActorParams
from laurel.params.training import ShapingParams
from laurel.pipelines.machines import uses_all
from laurel.training.loop import train
from laurel.training.task import Task
from minimal_params import MINIMAL

HERE = Path(__file__).parent
SECONDS = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"You are in row {row}." for row in range(5)] + list(ANSWERS)
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), texts, width=16, heads=2, vocabulary=320)


def difference(left: Path, right: Path) -> float:
    """Return the largest difference of a weight."""
    first, second = load_file(left), load_file(right)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.slow
def test_each_loss_of_two_processes_is_that_of_one(model: Path, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("one", "two")}
    for folder in folders.values():
        folder.mkdir()
    torch.manual_seed(0)
    local = with_lora(load_causal(str(model)), 4)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "shared_tuning.py"), str(model), str(folders["two"])]
    together = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    before = weights_of(local.model)
    tune_by_each(local, folders["one"])
    assert together.wait(10 * SECONDS) == 0
    files = sorted(path.name for path in folders["one"].iterdir())
    assert len(files) == 7
    for file in files:
        alone, shared = (folder / file for folder in folders.values())
        assert difference(alone, shared) < 1e-4, file
        moved = load_file(alone)
        assert max(float((moved[name] - before[name]).abs().max()) for name in before) > 5e-3, file
        losses = [float(safe_open(path, "pt").metadata()["loss"]) for path in (alone, shared)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5), file


def test_every_process_takes_its_share_of_each_batch() -> None:
    for seed in (None, 7):
        (alone,) = ([batch for _ in range(2) for batch in parts] for parts in [Parts(11, 4, seed, Place(0, 1))])
        parts = [Parts(11, 4, seed, Place(rank, 2)) for rank in range(2)]
        assert [len(part) for part in parts] == [3, 3]
        both = [[a + b for a, b in zip(*parts, strict=True)] for _ in range(2)]
        assert [row for batch_of_process in both for row in batch_of_process] == [
            batch[: len(batch) // 2 * 2] for batch in alone
        ]
        assert (both[0] == both[1]) == (seed is None)
    assert len(Parts(9, 4, 0, Place(1, 2))) == len(list(Parts(9, 4, 0, Place(1, 2)))) == 2
    assert [processes_for(n, 4) for n in (1, 2, 6, 7, 8)] == [1, 2, 3, 1, 4]


@pytest.mark.slow
def test_a_killed_training_of_two_processes_ends_with_the_same_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_for(GRID)
    tiny = initial_policy(adapter, LanguageActorParams(), 0, 0)
    assert isinstance(tiny, LanguageModelPolicy)
    tiny.write_beside(tmp_path)
    content = {**SMALL, "n_envs": 64, "model": str(tmp_path / "language_model"), "lora_rank": 2, "batch_size": 16}
    started, run = [], tuning_process._run

    def counted(folder: Path, processes: int) -> None:
        started.append(processes)
        run(folder, processes)

    def trained(folder: str, processes: int = 2) -> Path:
        settings = LanguageActorParams.model_validate({**content, "processes": processes})
        task, done = Task("lm", 0, 0, GRID, settings, ShapingParams(), steps=4 * 64, checkpoint_steps=64), 0

        def copy(steps: int) -> None:
            nonlocal done
            done += steps
            copied = tmp_path / f"{folder}_killed"
            if done == 2 * 64 and "killed" not in folder:
                copytree(tmp_path / folder, copied)  # what a kill after the first of two rounds leaves

        train(task, adapter, None, tmp_path / folder, copy)
        return tmp_path / folder / "adapter" / "adapter_model.safetensors"

    monkeypatch.setattr(tuning_process, "_run", counted)
    whole = trained("two").read_bytes()
    trained("one", processes=1)
    first = (tmp_path / f"{name}_killed" / "model.safetensors" for name in ("two", "one"))
    assert difference(*first) < 1e-4
    assert trained("two_killed").read_bytes() == whole
    assert started == [2, 2, 2]  # two rounds, and the second again


def test_a_process_that_fails_gives_a_sentence(model: Path) -> None:
    local = load_causal(str(model))
    lost = with_lora(replace(local, identity=replace(local.identity, model="/no/such/folder")), 2)
    with pytest.raises(TrainingError) as raised:
        tune(lost, "imitate", [("You are in row 1.", "left")] * 4, Tuning(batch_size=2), 0, processes=2)
    assert str(raised.value).startswith('Language model "/no/such/folder" cannot be loaded: there is no such directory')
    assert "\n" not in str(raised.value)
    assert "Traceback" in str(raised.value.__cause__)


def running(word: str) -> list[int]:
    """Return the processes that have a word in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_no_process_is_left_after_a_kill(model: Path, tmp_path: Path) -> None:
    code = (
        "from laurel.llm.causal import load_causal\nfrom laurel.llm.trl_tuning import Tuning\n"
        "from laurel.llm.tuning_process import tune\n"
        f"tune(load_causal({str(model)!r}), 'imitate', [('You', 'left')] * 4, Tuning(epochs=10**6), 0, processes=2)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    place, until = f"{tmp_path}/laurel-tuning-", time.monotonic() + SECONDS
    while len(running(place)) < 4:  # the watchdog, torch.distributed.run and two processes
        assert time.monotonic() < until
        time.sleep(0.1)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    while left := running(place):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_batches_that_cannot_be_shared_are_refused() -> None:
    def checked(**changes: Any) -> LanguageActorParams:
        return LanguageActorParams.model_validate({"model": "m", **changes})

    for right in ({"processes": 4}, {"processes": 4, "loss": "grpo"}, {"processes": 2, "loss": "infonce"}):
        assert checked(**right).processes == right["processes"]
    assert "processes" not in checked().model_dump()
    with pytest.raises(ValidationError, match=r"processes 3 and batch_size 32, which .* set batch_size to 33"):
        checked(processes=3)
    with pytest.raises(ValidationError, match=r"processes 3 and 4 groups a step .* set batch_size to 48"):
        checked(processes=3, loss="rloo")


def test_a_pipeline_knows_that_several_accelerators_are_used() -> None:
    def used(device: str, processes: int) -> bool:
        section = {"algorithm": "language_model", "language_model": {"model": "m", "processes": processes}}
        agent = {**MINIMAL["agent"], "device": device}
        arms = {"lm": {"reward": None, "agent": section}}
        params = parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}, "arms": arms, "agent": agent}, "a test")
        return uses_all(params, "train-agents")

    assert [used("cuda", 2), used("auto", 2), used("cuda", 1), used("cpu", 2)] == [True, True, False, False]
