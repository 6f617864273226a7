"""A server of language models that runs while questions are asked: `vllm serve`, started at the first question.

A watcher stands between, which ends the server when this process has ended, however that was. Where all answers are in
the store, no server is started; where one with this model listens already, it is asked instead.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from laurel.console import tell
from laurel.llm.chat import ChatModel, ChatRequest, Failure, RefusedError, Reply
from laurel.params.judges import OpenAIParams

PROGRAM = "LAUREL_VLLM"
"""Environment variable with the path of vLLM's command, which mostly has an environment of its own."""
POLL_SECONDS = 0.2
END_SECONDS = 20.0
"""That a server has to end when it is asked to."""
SHOWN = 2000
"""Characters of the end of a server's log that are shown where it fails."""
_RUNNING: dict[str, subprocess.Popen[bytes]] = {}
"""Address -> the watcher of the server there; one for all that this process asks."""


class ServedChat:
    """A chat model whose server is started when it is first asked."""

    def __init__(self, params: OpenAIParams, model: ChatModel) -> None:
        self.identity = model.identity
        self._params, self._model = params, model

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield as the model itself does.

        Raises:
            RefusedError: the server cannot be started, or the model refuses.
        """
        coming = iter(requests)
        first = next(coming, None)
        if first is None:
            return
        start(self._params)
        yield from self._model.ask(chain([first], coming))


def start(params: OpenAIParams) -> None:
    """Start the server that params ask for, unless it listens already; wait until it has loaded the model.

    Raises:
        RefusedError: there is no such command, it ends, or takes too long.
    """
    assert params.serve is not None
    assert params.base_url is not None
    if params.model in _models(params.base_url):
        return
    place = shutil.which(os.environ.get(PROGRAM, "vllm"))
    if place is None:
        raise RefusedError(
            "annotate.openai.serve starts vLLM, but there is no command vllm here. Install it (pip install "
            f"'.[vllm]' in an environment of its own) and put it on the PATH, or name it in {PROGRAM}."
        )
    url = urlsplit(params.base_url)
    gpus = params.serve.gpus or _gpus()
    command = [place, "serve", params.model, "--host", str(url.hostname), "--port", str(url.port)]
    command += ["--tensor-parallel-size", str(gpus)] if gpus > 1 else []
    command += ["--max-model-len", str(params.serve.max_model_len)] if params.serve.max_model_len else []
    with tempfile.NamedTemporaryFile(prefix="laurel-vllm-", suffix=".log", delete=False) as log:
        watcher = subprocess.Popen(  # noqa: S603 - its arguments are not read by a shell
            [sys.executable, "-m", "laurel.llm.served", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if not _RUNNING:
        atexit.register(stop)
    _RUNNING[params.base_url] = watcher
    tell(f"vllm serve {params.model} is being started; its log is {log.name}")
    until = time.monotonic() + 60 * params.serve.start_minutes
    while params.model not in _models(params.base_url):
        late = time.monotonic() > until
        if late or watcher.poll() is not None:
            stop(params.base_url)
            why = f"was not ready after {params.serve.start_minutes:g} minutes" if late else "ended"
            end = Path(log.name).read_text(encoding="utf-8", errors="replace")[-SHOWN:].strip()
            raise RefusedError(f"vllm serve {params.model} {why} (annotate.openai.serve). Its log ends with: {end}")
        time.sleep(POLL_SECONDS)


def stop(address: str | None = None) -> None:
    """Stop the server at an address, or all that this process has started."""
    for one in [address] if address else list(_RUNNING):
        watcher = _RUNNING.pop(one)
        assert watcher.stdin is not None
        watcher.stdin.close()  # the watcher sees the end of it
        watcher.wait()


def _models(address: str) -> list[str]:
    """Return the models that a server offers; none where there is no server."""
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/models", timeout=5) as answer:  # noqa: S310 - of params
            content: Any = json.load(answer)
        return [str(one["id"]) for one in content["data"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _gpus() -> int:
    import torch

    return max(torch.cuda.device_count(), 1)


def watch(command: Sequence[str]) -> int:
    """Run a command until it ends, or standard input does; return its exit code."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - as above

    def end() -> None:
        sys.stdin.buffer.read()
        _kill(server.pid, signal.SIGTERM)
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(server.pid, signal.SIGKILL)

    threading.Thread(target=end, daemon=True).start()
    code = server.wait()
    _kill(server.pid, signal.SIGKILL)  # its workers, if any are left
    return code


def _kill(group: int, how: signal.Signals) -> None:
    try:
        os.killpg(group, how)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    sys.exit(watch(sys.argv[1:]))
