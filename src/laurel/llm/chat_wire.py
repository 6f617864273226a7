"""OpenAI's chat-completions protocol: the JSON of requests, and replies parsed from answers."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from laurel.llm import replies
from laurel.llm.chat import ChatRequest, Failure, Reply, Tokens

logger = logging.getLogger(__name__)

CHOICE_TOKENS = 4
"""Maximum number of tokens of a choice, which may follow a space or a quotation mark."""
BYTES_PER_TOKEN = 4
"""Typical value for English text."""
_OPTIONAL = frozenset({"response_format", "logprobs", "top_logprobs"})
"""Fields, or values of fields, that a server may not support; answers do not depend on them."""
_REFUSAL = re.compile(r"support|recogni[sz]ed|unknown|unexpected|permitted|allowed|extra", re.IGNORECASE)


NO_COMPLETION = "the answer is not a chat completion"
NO_CHOICE = "the answer has no choice"
STREAMED = (b"data:", b"event:", b":")
"""Beginnings of a stream of server-sent events."""
LEAST_MASS = 0.01
"""Minimum total probability of the choices: with less, the model is about to write something else, and the
probabilities of the choices are dominated by rounding."""
ROUNDING = 1e-6
"""Error of a sum of probabilities that a server has rounded."""


class Dialect:
    """The fields that a server accepts: refused ones are left out for the rest of a run.

    The maximum length of an answer is `max_tokens` at most servers and `max_completion_tokens` at OpenAI's; if one is
    refused, the other is tried.
    """

    def __init__(self, model: str, length: str = "max_tokens", structured: bool = True) -> None:
        self._model = model
        self._length = length
        self._left_out = set() if structured else {"response_format"}

    def body(self, request: ChatRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "temperature": sampling.temperature,
            self._length: longest_answer(request),
        }
        if sampling.top_p != 1.0:
            body["top_p"] = sampling.top_p
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.reasoning_effort is not None:
            body["reasoning_effort"] = sampling.reasoning_effort
        if request.choices:
            body |= {"logprobs": True, "top_logprobs": 20}
        elif request.schema is not None:
            schema = {"name": "answer", "schema": json.loads(request.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body = {field: value for field, value in body.items() if field not in self._left_out}
        return {**json.loads(sampling.extra_body), **body} if sampling.extra_body else body

    def adapt(self, body: Mapping[str, Any], error: Any, message: str) -> bool:
        """Learn from a refusal (400 or 422) of `body`; return whether the request is worth another try.

        Args:
            body: the request's body, possibly from before the last change of the dialect.
            error: the server's error object.
        """
        param = str(error.get("param") or "") if isinstance(error, Mapping) else ""
        named = {field for field in body if field == param or ("_" in field and field in message)}
        if "logprobs" in body and "logprobs" in f"{param} {message}":
            named |= {"logprobs", "top_logprobs"}
        if not named & _OPTIONAL and not _REFUSAL.search(message):
            return False  # e.g. "max_tokens is too large for this context"
        for length, alternative in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            if length in named and not _is_too_long(message):
                if self._length == length and alternative not in self._left_out:
                    self._left_out.add(length)  # not tried again
                    self._length = alternative
                    logger.debug("The server accepts %s instead of %s.", alternative, length)
                return self._length != length
        droppable = named & (_OPTIONAL | {"seed", "temperature", "top_p"})
        new = droppable - self._left_out
        if new:
            self._left_out |= new
            logger.warning(
                'The server does not accept %s for model "%s", so the rest of the run leaves it out. Its message: %s',
                " and ".join(sorted(new)),
                self._model,
                message,
            )
        return bool(droppable)


def _is_too_long(message: str) -> bool:
    return re.search(r"context length|too large|too long|maximum context", message, re.IGNORECASE) is not None


def tokens_of(request: ChatRequest) -> float:
    """Return the approximate number of tokens of a request in a server's rate limit, which includes the answer's
    maximum.
    """
    return input_tokens_of(request) + longest_answer(request)


def input_tokens_of(request: ChatRequest) -> float:
    """Return the approximate number of tokens of a question."""
    texts = (message.content.encode("utf-8", "surrogatepass") for message in request.messages)
    return sum(map(len, texts)) / BYTES_PER_TOKEN


def longest_answer(request: ChatRequest) -> int:
    """Return the maximum number of tokens of an answer."""
    max_tokens = request.sampling.max_tokens
    reasons = request.sampling.reasoning_effort not in (None, "none")  # reasoning precedes the choice
    return min(max_tokens, CHOICE_TOKENS) if request.choices and not reasons else max_tokens


def read_reply(content: bytes, request: ChatRequest, seconds: float) -> Reply | Failure:
    """Parse an answer; a Failure if it is not a chat completion. Never raises."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        if content.lstrip().startswith(STREAMED):
            return Failure(
                "the answer is a stream of events, which was not asked for; turn streaming off at the server"
            )
        if content.lstrip().startswith(b"<"):
            return Failure("the answer is a web page, as from an address without the API")
        return Failure("the answer is not JSON, or incomplete" if content.strip() else "the answer is empty")
    return read_completion(answer, request, seconds)


def read_completion(answer: Any, request: ChatRequest, seconds: float) -> Reply | Failure:
    """Convert a server's JSON answer to a Reply; the only place where this happens.

    The text is required. Other invalid fields (token counts, log-probabilities, finish reason) count as unknown, so
    that the answer is kept and read by its text. Never raises.
    """
    if not isinstance(answer, Mapping):
        return Failure(NO_COMPLETION)
    n_input, n_output, n_cached = _tokens(_mapping(answer.get("usage")))
    billed = Tokens(n_input or 0, n_output or 0, n_cached or 0)
    choices = answer.get("choices")
    error = answer.get("error")
    if error and not choices:
        says = error.get("message") if isinstance(error, Mapping) else error
        return Failure(f"the answer contains an error: {says}", billed)
    if choices == []:
        return Failure(NO_CHOICE, billed)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        return Failure(NO_COMPLETION, billed)
    read = replies.answer_of(message, replies.finish_reason(choice.get("finish_reason")))
    if read is None:
        return Failure("the answer's content is neither text nor a list of parts", billed)
    text, ended = read
    return Reply(
        text=text,
        logprobs=_logprobs(choice.get("logprobs"), request.choices) if request.choices else None,
        input_tokens=n_input,
        output_tokens=n_output,
        finish_reason=ended,
        seconds=replies.seconds(seconds),
        cached_tokens=n_cached,
    )


def _tokens(usage: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return the tokens of the question, of the answer with its reasoning, and of the question's cached part.

    xAI and Google count reasoning only in `total_tokens`, and bill it as output
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits). Other servers count cached tokens apart, so
    that these may be what the total has beyond question and answer. DeepSeek has another name for cached tokens.
    """
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens")
    n_input, n_output, total, hits = (replies.token_count(usage.get(name)) for name in names)
    n_cached = replies.token_count(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    n_cached = hits if n_cached is None else n_cached
    if n_input is not None and n_output is not None and total is not None:
        uncounted = total - n_input - n_output
        n_output += uncounted if uncounted > 0 and uncounted != n_cached else 0
    return n_input, n_output, n_cached


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _logprobs(reported: Any, choices: tuple[str, ...]) -> dict[str, float] | None:
    """Return the normalised log-probability of each choice, from the first token that is not only spaces or quotes.

    A choice that is not among the top tokens gets an upper bound of its probability: that of the least likely of them,
    or what they leave of 1, if that is less. None if one of the numbers is not a log-probability, or if the answer most
    likely begins with something else.
    """
    tokens = _mapping(reported).get("content")
    first = next((token for token in tokens if _plain(_token(token))), None) if isinstance(tokens, list) else None
    top = _mapping(first).get("top_logprobs")
    if not isinstance(top, list) or not top:
        return None
    known = [(_plain(_token(token)), replies.log_probability(_mapping(token).get("logprob"))) for token in top]
    mass: dict[str, float] = {}
    least = rest = 1.0
    for token, logprob in known:
        if logprob is None:
            return None
        least = min(least, math.exp(logprob))
        rest -= math.exp(logprob)
        choice = _choice_of(token, choices)
        if choice is not None:
            mass[choice] = mass.get(choice, 0.0) + math.exp(logprob)
    if sum(mass.values()) < LEAST_MASS:
        return None
    floor = min(least, max(rest, ROUNDING)) or 1e-12
    masses = {choice: mass.get(choice) or floor for choice in choices}
    total = math.log(sum(masses.values()))
    return {choice: math.log(value) - total for choice, value in masses.items()}


def _token(token: Any) -> str:
    text = _mapping(token).get("token")
    return text if isinstance(text, str) else ""


def _plain(token: str) -> str:
    return token.strip(" \t\r\n\"'`*([Ġ▁").casefold()


def _choice_of(token: str, choices: tuple[str, ...]) -> str | None:
    """Return the only choice that equals or starts with a token."""
    if not token:
        return None
    exact = [choice for choice in choices if _plain(choice) == token]
    begun = [choice for choice in choices if _plain(choice).startswith(token)]
    return exact[0] if exact else begun[0] if len(begun) == 1 else None
