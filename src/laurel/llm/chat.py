"""The interface of chat models: requests, replies, failures.

A request contains everything its answer depends on, and nothing about transport.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from laurel.errors import AnnotationError

LEAST_SECRET = 8
"""Characters of the shortest text that is taken for a secret in an answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    """Maximum number of tokens per answer."""
    seed: int | None = None
    """Seed, if the model supports one; requests that differ only in it are two questions."""
    reasoning_effort: str | None = None
    """Reasoning effort of a reasoning model; None: the model's default."""
    extra_body: str = ""
    """Further fields of the request that an answer depends on, as JSON with sorted keys."""

    def recorded(self) -> dict[str, Any]:
        """Return the fields for keys and stores. Newer fields are left out if not set, so that old keys stay valid."""
        newer_fields = {"reasoning_effort": self.reasoning_effort, "extra_body": self.extra_body}
        always = {name: value for name, value in asdict(self).items() if name not in newer_fields}
        return always | {name: value for name, value in newer_fields.items() if value}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A question to a chat model."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    choices: tuple[str, ...] = ()
    """If not empty: only these answers are valid, and the log-probability of each is requested."""
    schema: str | None = None
    """JSON schema of the answer, as text; for servers that can enforce one."""
    key: str = ""
    """A digest of everything the answer depends on, if the asker has computed one; it is not sent."""
    per_token: bool = False
    """If there are choices: their log-probabilities are means over their tokens, not sums."""

    def digest(self, identity: Identity) -> str:
        """Return a key of everything the answer depends on: this request, and the model."""
        if self.key:
            return self.key
        asked = {**asdict(self), "sampling": self.sampling.recorded()}
        if not self.per_token:  # a newer field: old keys stay valid
            del asked["per_token"]
        content = json.dumps([asked, asdict(identity)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a model."""

    model: str
    revision: str = ""
    """Commit, digest or adapter of the weights, if known."""
    endpoint: str = ""
    """Address of the server without credentials; empty for a model in this process."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that a server bills."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that came from the server's cache."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.output + other.output, self.cached + other.cached)


NO_TOKENS = Tokens()


class Reply(NamedTuple):
    """An answer."""

    text: str
    """Raw text of the model; empty if choices were scored instead."""
    logprobs: dict[str, float] | None = None
    """Choice -> log-probability, normalised over the choices; None if the model gives none."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str = "stop"
    """stop, length (cut off), content_filter, …"""
    seconds: float = 0.0
    """Duration at the server; 0 if not measured, e.g. in a batch."""
    cached_tokens: int | None = None
    """Cached input tokens, if the server reports them."""
    lost: Tokens = NO_TOKENS
    """Tokens of earlier attempts that were billed, but gave no answer."""
    batched: bool = False
    """Whether other processes may have received it, too, because they wait for the same batch."""

    def without_secrets(self, secrets: Iterable[str]) -> Reply:
        """Return the answer with secrets replaced, since a server may echo the key that it got.

        Placeholders of servers that need no key, shorter than LEAST_SECRET, may be words of an answer and stay.
        """
        return self._replace(text=without(self.text, (secret for secret in secrets if len(secret) >= LEAST_SECRET)))


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a server's text with secrets replaced.

    >>> without("Bearer k-1 is not allowed", ["k-1"])
    'Bearer *** is not allowed'
    """
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(secret, "***")
    return text


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, after all retries."""

    reason: str
    """One line, without secrets."""
    lost: Tokens = NO_TOKENS
    """Tokens of attempts that were billed all the same."""


@dataclass(frozen=True, slots=True)
class Withheld(Failure):
    """No answer because a budget was spent: the request was not sent, or not awaited."""


@dataclass(frozen=True, slots=True)
class Stopped(Failure):
    """No answer because asking stopped before another attempt; the earlier ones were billed."""


class RefusedError(AnnotationError):
    """The model cannot be asked at all: a wrong key, an unknown model, a request that it never accepts."""


class ChatModel(Protocol):
    """A language model that holds conversations.

    A model that works best with many requests per `ask`, such as a batch API that takes hours for any number of them,
    has their number as its attribute `at_once`.
    """

    identity: Identity

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer) as answers come in, in any order.

        Requests are taken from the iterator as they can be sent, so that memory does not grow with their number.
        Yielded answers have been received by the caller even if the run is killed right after.

        Raises:
            RefusedError: every further request would fail in the same way.
        """
        ...


class LazyChat:
    """A chat model that is loaded at the first question, so never if all answers are stored."""

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
