"""Validates the fields of an answer from a server or a store.

Invalid fields count as unknown: they never reach a label, a sum or a table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

LONGEST_TEXT = 100_000
"""Maximum number of characters stored of an answer, about 25,000 tokens of reasoning and answer. A text of this length
was truncated and is not parsed, since its end with the answer may be missing."""
MOST_TOKENS = 10**9
"""Maximum valid number of tokens per request; more is an error."""
ABOVE_ZERO = 1e-3
"""Largest positive log-probability that counts as a rounding error instead of invalid."""
REASONING, REASONING_CUT = "reasoning", "reasoning_length"
"""Finish reasons of an answer with only reasoning: ended by itself, or cut off (max_tokens)."""
CHANNEL = "<|channel|>"
"""The mark that begins a channel in the harmony format."""
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking"})
_CHANNEL = re.compile(r"<\|channel\|>(?P<header>[^<]*(?:<\|constrain\|>[^<]*)?)<\|message\|>")
_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE = re.compile(r"\Aanalysis.*?assistantfinal(?:json)?(?P<final>.*)\Z", re.DOTALL)


def token_count(value: Any) -> int | None:
    """Return a number of tokens; None if it is not one.

    >>> token_count(12), token_count("12"), token_count(-1), token_count("a dozen"), token_count(True)
    (12, 12, None, None, None)
    """
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        return None
    return value


def log_probability(value: Any) -> float | None:
    """Return a log-probability, including -inf; None if it is NaN, above 0 or not a number.

    >>> log_probability(-0.5), log_probability(1e-6), log_probability(0.5), log_probability("-0.5")
    (-0.5, 0.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not value <= ABOVE_ZERO:  # also for NaN
        return None
    try:
        return min(float(value), 0.0)
    except OverflowError:  # an integer of hundreds of digits
        return None


def scores(value: Any) -> dict[str, float] | None:
    """Return choice -> log-probability for storage; None if one of them is not finite or not a number."""
    if not isinstance(value, Mapping):
        return None
    by_choice: dict[str, float] = {}
    for choice, logprob in value.items():
        number = log_probability(logprob)
        if not isinstance(choice, str) or number is None or not math.isfinite(number):
            return None
        by_choice[choice] = number
    return by_choice


def stored_scores(text: Any) -> dict[str, float] | None:
    """Return choice -> log-probability from a store's JSON; None if they are missing or damaged."""
    if not isinstance(text, str):
        return None
    try:
        return scores(json.loads(text))
    except (ValueError, RecursionError):
        return None


def is_damaged(text: Any, logprobs: Any) -> bool:
    """Whether a stored answer is unusable: no text, and no valid log-probabilities."""
    return logprobs is not None and not str(text or "").strip() and stored_scores(logprobs) is None


def finish_reason(value: Any) -> str:
    """Return the server's finish reason, "stop" if there is none.

    >>> finish_reason("length"), finish_reason(None), finish_reason({"a": 1})
    ('length', 'stop', 'unknown')
    """
    if value is None or value == "":
        return "stop"
    return value if isinstance(value, str) and _WORD.fullmatch(value) else "unknown"


def seconds(value: Any) -> float:
    """Return seconds, of an answer or since 1970; 0 if unknown.

    >>> seconds(1.5), seconds(-1.5), seconds(float("nan")), seconds("1.5")
    (1.5, 0.0, 0.0, 0.0)
    """
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11
    return float(value) if valid else 0.0


def answer_of(message: Mapping[str, Any], ended: str) -> tuple[str, str] | None:
    """Return a message's text, without its reasoning, and its finish reason; None if it is not a message.

    The content may be text, null or a list of parts. A refusal replaces missing content.

    Args:
        message: as `choices[0].message` of a chat completion.
    """
    content = message.get("content")
    thoughts = any(message.get(field) for field in ("reasoning_content", "reasoning", "thinking"))
    if content is None or content == []:
        text = ""
    elif isinstance(content, str):
        text = content
    elif isinstance(content, list):
        parts = [_part(part) for part in content]
        if None in parts:
            return None
        text = "".join(part for part in parts if part)
        thoughts |= any(isinstance(part, Mapping) and part.get("type") in _THOUGHTS for part in content)
    else:
        return None
    if not text and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    final = final_channel(text)
    thoughts |= final != text
    if not final.strip() and thoughts:
        return "", REASONING_CUT if ended == "length" else REASONING
    return final[:LONGEST_TEXT], ended


def _part(part: Any) -> str | None:
    """Return the text of a content part, empty for reasoning; None if it is not one."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    if part.get("type") in _THOUGHTS:
        return ""
    text = part.get("text", part.get("refusal", ""))
    return text if isinstance(text, str) else None


def final_channel(text: str) -> str:
    """Return the final channel of a text in the harmony format; other texts are returned unchanged.

    gpt-oss models write their reasoning into the channel `analysis` and the answer into `final`; servers without a
    parser for this format return the whole text, some without the marks. A text with only other channels has no answer.
    Source: https://github.com/openai/harmony, docs/format.md.

    >>> final_channel("<|channel|>analysis<|message|>2 or 1?<|end|><|start|>assistant<|channel|>final<|message|>1")
    '1'
    >>> final_channel("<|channel|>analysis<|message|>It may be 2")
    ''
    """
    marks = list(_CHANNEL.finditer(text))
    if not marks:
        if text.lstrip().startswith(CHANNEL):
            return ""  # cut off within its first mark
        bare = _BARE.match(text)
        return bare["final"] if bare else text
    finals = [mark for mark in marks if mark["header"].split()[:1] == ["final"]]
    if not finals:
        return ""
    final = text[finals[-1].end() :]
    end = _END.search(final)
    return final[: end.start()] if end else final
