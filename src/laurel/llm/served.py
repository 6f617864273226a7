"""A temporary server of a language model, `vllm serve`; for a judge, started at the first question.

A watchdog process ends the server when this process has ended for any reason. If all answers are stored, no server is
started; if a server of this model already listens, it is used instead.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from laurel.console import tell
from laurel.interrupt import ignore_terminal
from laurel.llm.chat import ChatModel, ChatRequest, Failure, RefusedError, Reply
from laurel.params.judges import OpenAIParams, ServeParams

PROGRAM = "LAUREL_VLLM"
"""Environment variable with the path of vLLM's command, which is usually in a separate Python environment."""
POLL_SECONDS = 0.2
END_SECONDS = 20.0
"""Seconds that a server may take to terminate."""
SHOWN = 2000
"""Number of last characters of a server's log that are shown if it fails."""
_RUNNING: dict[str, subprocess.Popen[bytes]] = {}
"""Address -> the watchdog of the server there."""


class ServedChat:
    """A chat model whose server is started when it is first asked."""

    def __init__(self, params: OpenAIParams, model: ChatModel) -> None:
        self.identity = model.identity
        self._params, self._model = params, model

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield the model's answers.

        Raises:
            RefusedError: the server cannot be started, or the model refuses.
        """
        coming = iter(requests)
        first = next(coming, None)
        if first is None:
            return
        assert self._params.base_url is not None
        assert self._params.serve is not None
        start(self._params.model, self._params.base_url, self._params.serve)
        yield from self._model.ask(chain([first], coming))


def start(
    model: str,
    base_url: str,
    serve: ServeParams,
    *,
    key: str = "annotate.openai.serve",
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a server of a model, unless one already listens; wait until it has loaded the model.

    Args:
        model: a name on the hub, or a directory.
        base_url: its address.
        serve: settings of the server.
        key: the parameter that requests it, for errors.
        options: further options of `vllm serve`.
        environment: additional environment variables.

    Raises:
        RefusedError: the command is missing, ends, or takes too long.
    """
    if model in models_at(base_url):
        return
    place = shutil.which(os.environ.get(PROGRAM, "vllm"))
    if place is None:
        raise RefusedError(
            f"{key} starts vLLM, but there is no command vllm here. Install it (pip install '.[vllm]' in a separate "
            f"environment) and put it on the PATH, or name it in {PROGRAM}."
        )
    url = urlsplit(base_url)
    gpus = serve.gpus or gpus_here()
    command = [place, "serve", model, "--host", str(url.hostname), "--port", str(url.port)]
    command += ["--tensor-parallel-size", str(gpus)] if gpus > 1 else []
    command += ["--max-model-len", str(serve.max_model_len)] if serve.max_model_len else []
    with tempfile.NamedTemporaryFile(prefix="laurel-vllm-", suffix=".log", delete=False) as log:
        watcher = subprocess.Popen(  # noqa: S603 - its arguments are not read by a shell
            [sys.executable, "-m", "laurel.llm.served", *command, *options],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    if not _RUNNING:
        atexit.register(stop)
    _RUNNING[base_url] = watcher
    tell(f"vllm serve {model} is being started; its log is {log.name}")
    deadline = time.monotonic() + 60 * serve.start_minutes
    while model not in models_at(base_url):
        late = time.monotonic() > deadline
        if late or watcher.poll() is not None:
            stop(base_url)
            outcome = f"was not ready after {serve.start_minutes:g} minutes" if late else "ended"
            end = Path(log.name).read_text(encoding="utf-8", errors="replace")[-SHOWN:].strip()
            raise RefusedError(f"vllm serve {model} {outcome} ({key}). Its log ends with: {end}")
        time.sleep(POLL_SECONDS)


def stop(address: str | None = None) -> None:
    """Stop the server at an address, or all servers, if started by this process."""
    for url in [address] if address else list(_RUNNING):
        watcher = _RUNNING.pop(url, None)
        if watcher is None:
            continue
        assert watcher.stdin is not None
        watcher.stdin.close()  # the watchdog notices the end of its input
        watcher.wait()


def models_at(address: str) -> list[str]:
    """Return the models of a server; empty if there is no server."""
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/models", timeout=5) as answer:  # noqa: S310 - of params
            content: Any = json.load(answer)
        return [str(model["id"]) for model in content["data"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def gpus_here() -> int:
    """Return how many GPUs there are, at least 1."""
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
    _kill(server.pid, signal.SIGKILL)  # remaining workers, if any
    return code


def _kill(group: int, signum: signal.Signals) -> None:
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    ignore_terminal()  # Ctrl-C is for the process that asks
    # so is SIGTERM to a process group; a handler that does nothing, as the server would inherit SIG_IGN
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(watch(sys.argv[1:]))
