"""`vllm serve` during annotation, simulated by a script, without GPU and vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from served_judge import stand_in

from laurel.envs import adapter_for
from laurel.errors import LaurelError, ParamsError
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.llm import served
from laurel.params import parse_params
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import ServeParams
from minimal_params import MINIMAL
from ports import free_port


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(served.PROGRAM, str(stand_in(tmp_path)))
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(tmp_path / "responses.db"))
    return f"http://127.0.0.1:{free_port()}/v1"


def judge(folder: Path, address: str, model: str = "tiny", **serve: int) -> AnnotateParams:
    content = {
        "annotator": "openai",
        "openai": {"model": model, "base_url": address, "serve": serve},
        "language_model": {"responses": str(folder / "responses.db")},
    }
    return parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}, "annotate": content}, "a test").annotate


def listening(address: str) -> bool:
    return bool(served.models_at(address))


def test_the_server_is_started_once_on_all_gpus_and_not_for_answers_that_are_kept(tmp_path: Path, address: str) -> None:
    params = judge(tmp_path, address, gpus=2, max_model_len=4096)
    adapter = adapter_for(parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}}, "a test").env)
    pairs = [Pair("a", "b"), Pair("c", "d")]

    def ask() -> list[str]:
        return [judgement.status for judgement in kind_of(params).make(adapter, 0).annotate(pairs)]

    first = ask()
    assert listening(address)
    kind_of(params).make(adapter, 0)
    served.stop()
    assert not listening(address)
    assert ask() == first, "from the store"
    started = (tmp_path / "started").read_text().splitlines()
    assert len(started) == 1
    assert '"--tensor-parallel-size", "2"' in started[0]
    assert '"--max-model-len", "4096"' in started[0]


@pytest.mark.parametrize(("kill", "how"), [(os.kill, signal.SIGKILL), (os.killpg, signal.SIGTERM)])
def test_the_server_ends_with_a_process_that_is_killed(
    address: str, kill: Callable[[int, int], None], how: signal.Signals
) -> None:
    arguments = f"'tiny', {address!r}, ServeParams(gpus=1)"
    code = f"from laurel.params.judges import *; from laurel.llm.served import start; start({arguments}); input()"
    asking = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not listening(address):
        assert time.monotonic() < until
        time.sleep(0.05)
    kill(asking.pid, how)
    asking.wait()
    while listening(address):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_models_that_cannot_be_served_are_refused(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LaurelError, match=r"ended .*no GPU was found"):
        served.start("broken", address, ServeParams(gpus=1))
    monkeypatch.setenv(served.PROGRAM, "no-such-command")
    with pytest.raises(LaurelError, match="there is no command vllm"):
        served.start("broken", address, ServeParams(gpus=1))
    with pytest.raises(ParamsError, match="of this machine"):
        judge(tmp_path, "http://192.0.2.1:8000/v1")
