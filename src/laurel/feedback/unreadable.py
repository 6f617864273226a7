"""Reasons why answers are unreadable, and when to stop asking a model without readable answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from laurel.data.missing import UNREAD, Missing, gather, times
from laurel.errors import AnnotationError
from laurel.llm import replies
from laurel.llm.chat import Reply
from laurel.llm.responses import ResponseStore

AT_ONCE = 4096
"""Answers that are looked up together."""


def why_unreadable(text: str, finish_reason: str) -> str:
    """Return why an answer is unreadable.

    >>> why_unreadable('{"analysis": "I', "length")
    'it was cut off at its token limit (max_tokens)'
    """
    if len(text) >= replies.LONGEST_TEXT:
        return f"it is longer than {replies.LONGEST_TEXT:,} characters"
    match finish_reason:
        case replies.REASONING_CUT:
            return "it was cut off while the model was still reasoning (max_tokens, or a lower reasoning_effort)"
        case replies.REASONING:
            return "it holds reasoning but no answer"
        case "length":
            return "it was cut off at its token limit (max_tokens)"
        case "content_filter":
            return "the server's content filter withheld it (content_filter)"
    return "it has no answer in the requested form" if text.strip() else "it is empty"


class UnreadableError(AnnotationError):
    """All of a model's first answers are unreadable."""


class Readable:
    """Tracks whether any answer of a model can be read; if every answer is cut off, more calls waste money.

    Args:
        max_tokens: maximum number of tokens per answer.
        fixed: whether that is the length of a choice, which the user's max_tokens does not change.
        gives_up: whether to raise.
    """

    FIRST = 24
    """Number of questions without a readable answer, including follow-ups, after which asking stops."""

    def __init__(self, name: str, max_tokens: int, *, fixed: bool = False, gives_up: bool = True) -> None:
        self._who = name
        self._max_tokens = max_tokens
        self._fixed = fixed
        self._gives_up = gives_up
        self._read = {True: False, False: False}
        self._unread: dict[bool, dict[str, str]] = {True: {}, False: {}}
        self._example = ""
        self._stop = False

    @property
    def known(self) -> bool:
        """Whether any answer could be read, now or before."""
        return any(self._read.values())

    def should_stop(self) -> bool:
        """Whether to stop asking: none of the first questions, or of as many in this run, got a readable answer."""
        return self._stop

    def succeeded(self, *, fresh: bool) -> None:
        """Record a readable answer; `fresh`: from this run."""
        self._read[fresh] = True
        self._stop = self._stop and not fresh

    def failed(self, key: str, answer: Reply, *, fresh: bool) -> None:
        """Record an unreadable answer to a follow-up."""
        if self._read[True] or not self._gives_up or self._stop:
            return
        self._unread[fresh][key] = why_unreadable(answer.text, answer.finish_reason)
        self._example = self._example or " ".join(answer.text.split())[:200]
        self._stop = len(self._first()) >= self.FIRST

    def check(self) -> None:
        """Raise the reason for stopping; called once all pending answers have arrived.

        Raises:
            UnreadableError: no answer can be read.
        """
        if self._stop:
            raise UnreadableError(self._sentence(list(self._first().values())))

    def _first(self) -> dict[str, str]:
        """Return the reason for each question without a readable answer: of this run alone if earlier ones had any."""
        return {**({} if self._read[False] else self._unread[False]), **self._unread[True]}

    def _sentence(self, reasons: list[str]) -> str:
        summary = "; ".join(f"{reason}, {times(number)}" for reason, number in Counter(reasons).most_common(3))
        example = f" The first begins with {self._example!a}." if self._example else ""
        if self._fixed and any("cut off" in reason for reason in reasons):
            fix = (
                "set annotate.openai.reasoning_effort if the model reasons first (without it a choice has at most "
                f"{self._max_tokens} tokens), or try another model or a prompt that asks for an analysis"
            )
        elif any("reasoning_effort" in reason for reason in reasons):
            fix = f"raise max_tokens ({self._max_tokens:,} now), or set a lower annotate.openai.reasoning_effort"
        else:
            cut = any("cut off" in reason for reason in reasons)
            fix = f"raise max_tokens ({self._max_tokens:,} now), or " if cut else ""
            fix += "try another model or prompt, and look at the answers with `laurel export responses`"
        return (
            f"{self._who}: none of the first {len(reasons)} questions got an answer that can be read, follow-up "
            f"included, so no more are asked. Reasons: {summary}.{example} To fix it, {fix}. "
            "The answers are kept; with annotate.max_failure_rate: 1 the run continues nevertheless."
        )


def unreadable(keys: Iterable[tuple[str, str]], store: ResponseStore) -> list[Missing]:
    """Count why answers could not be read.

    Args:
        keys: annotator and key of each.
    """
    return gather(_reasons(keys, store))


def _reasons(keys: Iterable[tuple[str, str]], store: ResponseStore) -> Iterator[Missing]:
    stream = iter(keys)
    while batch := list(islice(stream, AT_ONCE)):
        ended = {
            key: why_unreadable(text, ended_by) for key, text, ended_by in store.ended(list({key for _, key in batch}))
        }
        counts = Counter((annotator, ended[key]) for annotator, key in batch if key in ended)
        yield from (Missing(annotator, UNREAD, reason, count) for (annotator, reason), count in counts.items())
