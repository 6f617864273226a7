"""The interface of chat models: requests, replies, failures.

A request holds all that its answer depends on, and nothing about transport.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from laurel.errors import AnnotationError


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is drawn."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    """Tokens of an answer at most."""
    seed: int | None = None
    """Seed of the draw, where the model takes one; requests that differ only in it are two questions."""
    reasoning_effort: str | None = None
    """How much a reasoning model thinks before it answers; None leaves it to the model."""
    extra_body: str = ""
    """Further fields of the request that an answer depends on, as JSON with sorted keys."""

    def recorded(self) -> dict[str, Any]:
        """Return the fields that keys and stores hold. Newer fields are left out where not set: old keys stay valid."""
        later = {"reasoning_effort": self.reasoning_effort, "extra_body": self.extra_body}
        always = {name: value for name, value in asdict(self).items() if name not in later}
        return always | {name: value for name, value in later.items() if value}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A question to a chat model."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    choices: tuple[str, ...] = ()
    """If any: only these answers are valid, and the log-probability of each is wanted."""
    schema: str | None = None
    """JSON schema of the answer, as text; for servers that can enforce one."""
    key: str = ""
    """A digest of all that the answer depends on, where the asker has made one; it is not sent."""
    per_token: bool = False
    """If there are choices: their log-probabilities are means over their tokens, not sums."""

    def digest(self, identity: Identity) -> str:
        """Return a key of all that the answer depends on: this request, and who is asked."""
        if self.key:
            return self.key
        asked = {**asdict(self), "sampling": self.sampling.recorded()}
        if not self.per_token:  # a newer field: old keys stay valid
            del asked["per_token"]
        content = json.dumps([asked, asdict(identity)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answers."""

    model: str
    revision: str = ""
    """Commit, digest or adapter of the weights, where that is known."""
    endpoint: str = ""
    """Address of the server without credentials; empty for a model in this process."""


class Reply(NamedTuple):
    """An answer."""

    text: str
    """Raw, as the model gave it; empty where choices were scored instead of text written."""
    logprobs: dict[str, float] | None = None
    """Choice -> log-probability, normalised over the choices; None where the model gives none."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str = "stop"
    """stop, length (cut off), content_filter, …"""
    seconds: float = 0.0
    """How long the server took; 0 where that was not measured, as of a batch."""
    cached_tokens: int | None = None
    """Input tokens that the server had read before, where it says so."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, after all retries."""

    reason: str
    """One line, without secrets."""


@dataclass(frozen=True, slots=True)
class Withheld(Failure):
    """No answer because a budget was spent: it was not asked, or not waited for."""


class RefusedError(AnnotationError):
    """The model cannot be asked at all: a wrong key, an unknown model, a request it will never take."""


class ChatModel(Protocol):
    """A language model that holds conversations.

    A model that works best with many requests in one `ask`, such as one that takes hours for any number of them, says
    how many in an attribute `at_once`.
    """

    identity: Identity

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer) as answers come in, in any order.

        Requests are drawn as they can be sent, so that memory does not grow with their number. What was yielded
        is known to the caller even if the run is killed right after.

        Raises:
            RefusedError: every further request would fail alike.
        """
        ...


class LazyChat:
    """A chat model that is loaded when it is first asked, so never if all answers are stored."""

    def __init__(self, identity: Identity, load: Callable[[], ChatModel]) -> None:
        self.identity = identity
        self._load = load
        self._model: ChatModel | None = None

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield as the model itself does; errors are its own, and those of loading it."""
        coming = iter(requests)
        first = next(coming, None)
        if first is None:
            return
        self._model = self._model or self._load()
        yield from self._model.ask(chain([first], coming))
