"""Sampling from `vllm serve` on this machine, whose LoRA weights are updated while it runs.

vLLM batches requests as they arrive, and the order of summation depends on the batch: equal seeds may give different
answers. Its API is that of 0.30: `/v1/completions` with tokens in and out, `/v1/load_lora_adapter`.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from uuid import uuid4

import numpy as np

from laurel.llm.chat import RefusedError
from laurel.llm.sampling import Sampled
from laurel.llm.served import gpus_here, start, stop
from laurel.llm.smollm2 import path_of
from laurel.params.language_actor import MOST_SERVED, LanguageActorParams

if TYPE_CHECKING:
    from laurel.llm.local_model import LocalModel

KEY = "agent.language_model.serve"
RANKS = (8, 16, 32, 64, 128, 256, 320, MOST_SERVED)
"""Maximum ranks supported by vLLM."""
AT_ONCE = 64
"""Maximum number of answers per request: more are refused by some versions."""
IN_FLIGHT = 64
"""Concurrent requests."""
SECONDS = 600.0
"""Timeout of a request."""
SHOWN = 300


class ServedModel:
    """A language model behind a server that is started at the first request.

    Args:
        settings: of the model and, in `serve`, the server.
    """

    def __init__(self, settings: LanguageActorParams) -> None:
        assert settings.serve is not None
        self._settings, self._serve = settings, settings.serve
        self._folder = TemporaryDirectory(prefix="laurel-adapters-")
        self._next: LocalModel | None = None
        self._name: str | None = None
        """Name of the LoRA weights that are sampled from."""
        self._stops: frozenset[int] = frozenset()

    def take(self, local: LocalModel) -> None:
        """Sample from this model's weights at the time of the next request."""
        self._next = local

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        rng: np.random.Generator,
        *,
        max_tokens: int,
        temperature: float,
        regex: str | None,
    ) -> Sampled:
        """Sample an answer to each of N prompts, given as tokens.

        Args:
            prompts: to be answered.
            rng: for the seeds of the requests.
            max_tokens: of an answer, including its end token.
            temperature: of the draw.
            regex: that answers must match; None: no constraint.

        Raises:
            RefusedError: the server cannot be started or asked, or its answer is not valid.
        """
        if self._next:
            self._load(self._next)
            self._next = None
        places: dict[tuple[int, ...], list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(tuple(prompt), []).append(place)
        parts = [
            (prompt, indices[first : first + AT_ONCE])
            for prompt, indices in places.items()
            for first in range(0, len(indices), AT_ONCE)
        ]
        common = {
            "model": self._name,
            "max_tokens": max_tokens,
            "temperature": temperature,
            **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},  # the model may have other defaults
            "stop_token_ids": sorted(self._stops),
            "logprobs": 0,
            "return_token_ids": True,
            **({"structured_outputs": {"regex": regex}} if regex else {}),
        }
        asked = [
            {**common, "prompt": prompt, "n": len(indices), "seed": seed}
            for (prompt, indices), seed in zip(parts, rng.integers(2**31, size=len(parts)).tolist(), strict=True)
        ]
        drawn = Sampled([[] for _ in prompts], np.zeros(len(prompts), dtype=np.float32), [None] * len(prompts))
        pool = ThreadPoolExecutor(IN_FLIGHT)
        try:
            for (_, indices), answer in zip(parts, pool.map(self._answers, asked), strict=True):
                for place, (tokens, log_prob) in zip(indices, answer, strict=True):
                    drawn.ends[place] = tokens.pop() if tokens and tokens[-1] in self._stops else None
                    drawn.tokens[place][:], drawn.log_prob[place] = tokens, log_prob
        finally:
            pool.shutdown(cancel_futures=True)
        return drawn

    def _answers(self, asked: Mapping[str, Any]) -> list[tuple[list[int], float]]:
        """Return the tokens, including end tokens, and the log-probabilities of a request's answers."""
        content = self._post("completions", asked)
        try:
            choices = sorted(json.loads(content)["choices"], key=lambda choice: int(choice["index"]))
            answers = [
                ([int(token) for token in choice["token_ids"]], float(sum(choice["logprobs"]["token_logprobs"])))
                for choice in choices
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(
                f"The server at {self._serve.base_url} answers without the tokens and log-probabilities that "
                f"vLLM 0.30 gives ({type(error).__name__}: {error}); {KEY} needs that version or a later one."
            ) from None
        if len(answers) != asked["n"]:
            raise RefusedError(f"The server at {self._serve.base_url} gave {len(answers)} answers, not {asked['n']}.")
        return answers

    def _load(self, local: LocalModel) -> None:
        """Send the current weights to the server under a new name, since its cache is keyed by name."""
        from laurel.llm.causal import save_causal

        start_server(self._settings)
        previous, self._name, self._stops = self._name, f"laurel-{uuid4().hex}", local.stops
        place = Path(self._folder.name, self._name)
        save_causal(local, place)
        self._post("load_lora_adapter", {"lora_name": self._name, "lora_path": str(place)})
        if previous:
            self._post("unload_lora_adapter", {"lora_name": previous})
            rmtree(Path(self._folder.name, previous))

    def _post(self, path: str, content: Mapping[str, Any]) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - an address of this machine
            f"{self._serve.base_url}/{path}",
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                body: bytes = answer.read()
        except HTTPError as error:
            cause = error.read().decode(errors="replace")[:SHOWN]
            options = " ".join(options_of(self._settings))
            raise RefusedError(
                f"The server at {self._serve.base_url} ({KEY}) refuses {path}: {error.code} {cause}. A server that you "
                f"start yourself needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and the options {options}."
            ) from None
        except OSError as error:
            raise RefusedError(f"The server at {self._serve.base_url} ({KEY}) does not answer: {error}.") from None
        return body


def options_of(settings: LanguageActorParams) -> list[str]:
    """Return the options of `vllm serve` that an actor needs."""
    serve = settings.serve
    assert serve is not None
    copies = serve.copies or max(gpus_here() // serve.gpus, 1)
    rank = next(rank for rank in RANKS if settings.rank <= rank)
    options = ["--enable-lora", "--max-lora-rank", str(rank), "--dtype", settings.dtype]
    options += ["--logprobs-mode", "processed_logprobs", "--gpu-memory-utilization", str(serve.gpu_memory)]
    if copies > 1:  # one server for all copies: LoRA weights reach only the copies behind the server that receives them
        options += ["--data-parallel-size", str(copies), "--api-server-count", "1"]
    return options


def start_server(settings: LanguageActorParams) -> None:
    """Start the server of settings, unless it already listens.

    Raises:
        RefusedError: it cannot be started.
    """
    assert settings.serve is not None
    start(
        path_of(settings.model),
        settings.serve.base_url,
        settings.serve,
        key=KEY,
        options=options_of(settings),
        environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
    )


@contextmanager
def servers(actors: Iterable[LanguageActorParams]) -> Iterator[None]:
    """Start the servers of actors, one per address, and stop them after the block; processes may share them.

    Raises:
        RefusedError: one cannot be started.
    """
    by_address = {settings.serve.base_url: settings for settings in actors if settings.serve}
    try:
        for settings in by_address.values():
            start_server(settings)
        yield
    finally:
        for address in by_address:
            stop(address)
