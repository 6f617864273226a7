r"""Parse a verdict from a model's answer. An unreadable answer is None: never guessed, never a tie.

A verdict counts only at the end of an answer, in one of three forms, shown here for pairs:

    {"analysis": "…", "best_description": 2}   the object that was asked for, with the verdict as its last key
    2                                          an option and nothing else; "Text 2" and "**2**" alike
    Answer: 2                                  a labelled option in the last line, also \boxed{2} and <answer>2</answer>

Text after a verdict may retract it, and two different verdicts are contradictory, so such answers are unreadable, as
are answers that were cut off or whose marked reasoning never ends. The asker then asks once more. Prose such as
"Caption 2 is better" is not searched for verdicts: it may be negated, hypothetical or quoted.

Parsing takes time linear in the length of the text. Each kind of question defines its verdicts and their wordings.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

ABSTAIN = "abstain"
"""The verdict for an answer that declines to answer; every kind of question has it."""

_THOUGHT = re.compile(
    r"[<\[◁](/?)(think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad)[>\]▷]", re.IGNORECASE
)
_FINAL_CHANNEL = re.compile(r"\s*final\s*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>")
_END_TOKENS = (
    *(f"<|{name}|>" for name in ("im_end", "eot_id", "return", "end", "endoftext", "end_of_text")),
    *("</s>", "<end_of_turn>", "<eos>"),
)
_MOST_END_TOKENS = 9
_WRAPPED = re.compile(r"<(answer|output|verdict|choice|final_answer|final|response|result)>([^<>]*)</\1>\Z", re.I)

_LONGEST_OPTION = 100
_UNMARKED = str.maketrans(dict.fromkeys("\"'*`$\\“”‘’"))
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}{1,2}")
_REFUSAL = re.compile(
    r"(?:(?:i.?m |i am )?sorry[,.]? |i apologi[sz]e[,.]? )?(?:but )?"
    r"(?:i.?(?: a)?m )?(?:unfortunately,? )?(?:as an? (?:ai|artificial|(?:large )?language model)\b"
    r"|(?:i )?(?:cannot|can not|can.?t|won.?t|will not|unable to|not able to|refuse to|decline to|must decline)"
    r"(?: to)?(?: \w+ly)? (?:help|assist|answer|decide|determine|judge|choose|pick|compare|evaluate|rate|provide|comply"
    r"|engage|continue|respond|say|tell|give|make|do)\b"
    r"|(?:there is |there.?s )?(?:not enough|insufficient) (?:information|context)\b|i abstain\b)"
)
_LONGEST_REFUSAL = 1000
"""Maximum number of characters of a refusal."""


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object in order, including duplicate keys."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, strict=False)


class VerdictReader:
    r"""Reads the verdicts of a kind of question.

    Args:
        key: of the JSON object, whose value is the verdict.
        words: value of the key as in JSON (1, true, null), or as models write it otherwise -> verdict.
        options: verdict -> pattern of its wordings outside of JSON, in lower case.
        named: pattern of words that a refusal must not contain, since they would be an answer.
        nouns: pattern of what a label may name, as in "Best caption: 2".

    >>> reader = VerdictReader("won", {"true": "yes", "false": "no"}, {"yes": "yes", "no": "no"}, named="yes|no")
    >>> reader.read('Well played.\n{"won": true}'), reader.read("**No.**")
    ('yes', 'no')
    >>> reader.read('{"won": true} Sorry, it did not.') is None
    True
    """

    def __init__(
        self, key: str, words: Mapping[str, str], options: Mapping[str, str], *, named: str, nouns: str = "answer"
    ) -> None:
        self._key = key
        self._words = words
        written = "|".join(map(re.escape, words))
        self._malformed = re.compile(rf"{key}[\"'”]? ?[:=] ?[\"'“]?({written})[\"'”]?,? ?\}}")
        """The end of an object that is not quite JSON: Python's quotes, a comma too many, quotation marks in a text."""
        alternatives = "|".join(f"(?P<{verdict}>{pattern})" for verdict, pattern in options.items())
        self._option = re.compile(
            rf"(?P<label>(?:(?:so|thus|therefore|hence|in conclusion),? )?(?:(?:the|my|your) )?"
            rf"(?:(?:(?:final|best|better|correct) )?(?:answer|verdict|choice|decision)|(?:best|better)[ _]{nouns})"
            rf" ?(?:is\b|[:=])[:= ]*)?[(\[]{{0,2}}(?:{alternatives}|(?P<{ABSTAIN}>abstain))[)\]]{{0,2}}"
        )
        self._named = re.compile(rf"\b(?:{named}|{key})\b")

    def read(self, text: str, *, cut: bool = False) -> str | None:
        """Return the verdict of an answer; None where it cannot be read.

        Args:
            cut: whether it was cut off at its token limit.
        """
        text = text.strip()
        pairs = _json_object(text)  # within its quotes nothing is a mark; its last brace shows that it is whole
        if pairs is not None:
            return self._verdict_of(pairs)
        return None if cut else self._read(text)

    def _read(self, text: str) -> str | None:
        """Read an answer that is not just the JSON object that was asked for."""
        answer = _without_thoughts(text)
        if not answer or "<|" in answer:  # tokens of another conversation, or of a channel that is not known
            return None
        before, last, marked = _last_part(answer)
        if last.startswith("{"):
            pairs = _json_object(last)
            verdict = self._of_malformed(last) if pairs is None else self._verdict_of(pairs)
        else:
            verdict = self._option_in(last, labelled=bool(before) and not marked)
        if verdict is None:
            return ABSTAIN if self._refuses(answer) else None
        if self._key in before.casefold():
            return None
        named = {option for line in before.splitlines() if (option := self._option_in(line)) is not None}
        return verdict if named <= {verdict} else None

    def _of_malformed(self, text: str) -> str | None:
        """Read an almost valid JSON object by its end."""
        plain = text.casefold()
        if plain.count(self._key) != 1:
            return None
        match = self._malformed.fullmatch(" ".join(plain[plain.index(self._key) :].split()))
        return self._words[match[1]] if match else None

    def _verdict_of(self, pairs: _Pairs) -> str | None:
        """Return the verdict of an object; it must be the last key, since later keys could retract it."""
        keys = [key for key, _ in pairs]
        if not keys or keys[-1] != self._key or keys.count(self._key) > 1:
            return None
        match pairs[-1][1]:
            case None | bool() | int() as value:
                return self._words.get(json.dumps(value))
            case float(value) if value.is_integer():
                return self._words.get(f"{value:.0f}")
            case str(words):
                return self._option_in(words)
        return None

    def _option_in(self, text: str, *, labelled: bool = False) -> str | None:
        """Read a text that consists only of an option, after a label or, unless `labelled`, without."""
        text = text.strip()
        if len(text) > _LONGEST_OPTION:
            return None
        unboxed, boxes = _BOXED.subn(r"\1", text)
        plain = " ".join(unicodedata.normalize("NFKC", unboxed.translate(_UNMARKED)).casefold().split())
        match = self._option.fullmatch(plain.lstrip("#([ ").rstrip(".,;!)] "))
        if match is None or (labelled and not match["label"] and not boxes):
            return None
        return next(name for name, words in match.groupdict().items() if name != "label" and words is not None)

    def _refuses(self, text: str) -> bool:
        """Whether a text declines to answer and names no option."""
        plain = text.casefold()
        return len(text) <= _LONGEST_REFUSAL and bool(_REFUSAL.match(plain)) and not self._named.search(plain)


def _without_thoughts(text: str) -> str | None:
    """Return the text after a model's marked reasoning; None if the marks never end, or do not match."""
    _, channel, last = text.rpartition("<|channel|>")
    if channel:
        head = _FINAL_CHANNEL.match(last)
        if head is None:
            return None
        text = last[head.end() :]
    text = text.strip()
    for _ in range(_MOST_END_TOKENS):
        if not text.endswith(_END_TOKENS):
            break
        text = text[: text.rindex("<")].rstrip()
    opened: list[str] = []
    end = 0
    for mark in _THOUGHT.finditer(text):
        closing, name = mark[1], mark[2].casefold()
        if not closing:
            opened.append(name)
        elif opened and opened.pop() != name:
            return None
        end = mark.end()  # a lone closing mark ends reasoning that the prompt has begun
    return None if opened else text[end:].strip()


def _last_part(answer: str) -> tuple[str, str, bool]:
    """Split off a possible verdict: (text before it, the verdict, whether its form marks it as one)."""
    wrapped = _WRAPPED.search(answer)
    if wrapped:
        before = answer[: wrapped.start()]
        return before, "" if f"<{wrapped[1].casefold()}>" in before.casefold() else wrapped[2].strip(), True
    before, fence, fenced = answer.removesuffix("```").rpartition("```")
    fenced = fenced.removeprefix("json").strip()
    if fence and fenced.startswith("{"):
        return before.strip(), fenced, True
    start = answer.find("{")
    if start >= 0 and answer.endswith("}"):
        before = answer[:start].rstrip(" \t")
        if not before or before.endswith(("\n", ".", ":", "!")):
            return before.strip(), answer[start:], True
    before, _, line = answer.rpartition("\n")
    return before.strip(), line, False


def _json_object(text: str) -> _Pairs | None:
    """Parse a text as a JSON object; None if it is not one."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def last_value(text: str, key: str) -> Any:
    """Return the value of a key that must be the last of the JSON object with which an answer ends, after its thoughts.

    None otherwise: text after a value could retract it.

    >>> last_value('Let me see. {"analysis": "…", "scores": [7]}', "scores")
    [7]
    >>> last_value('{"scores": [7]} Sorry, I meant 3.', "scores")
    """
    answer = _without_thoughts(text)
    pairs = _json_object(_last_part(answer)[1]) if answer else None
    if not pairs or pairs[-1][0] != key or [name for name, _ in pairs].count(key) > 1:
        return None
    return pairs[-1][1]


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object in an answer, from its first brace to its last; empty without one.

    An object with an unpaired surrogate, which is not text, does not count.

    >>> object_in('Sure! {"goals": []} Good luck.')
    {'goals': []}
    """
    begin, end = text.find("{"), text.rfind("}")
    try:
        content = json.loads(text[begin : end + 1]) if 0 <= begin < end else None
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
