"""Reading which of two captions a model's answer prefers. What cannot be read is None: never guessed, never a tie.

An answer as the prompt asked for it (JSON with `best_description`, or 1 or 2) goes first, also where it is wrapped,
malformed or cut behind its value, and the last of several counts. Only an answer without one is searched for words,
and words that contradict each other decide nothing unless the last of them says that it concludes.
Takes any string, in time that grows with its length alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from laurel.feedback.verdicts import Answer, Verdict, alone, refuses, verdicts

if TYPE_CHECKING:
    from laurel.feedback.prompt import AnswerFormat

__all__ = ["Answer", "parse_answer"]

_SOME = r"[^\"\\<\[\x00-\x1f]*+"
_AS_ASKED = re.compile(
    rf'\{{ "analysis" : "{_SOME}(?:\\["n]{_SOME})*+" , "best_description" : (1|2|null) \}}'.replace(" ", r"[ \t\r\n]*+")
)
"""What a server that is held to the answer's schema sends, but for what may need a closer look."""
_JSON_SPACE = " \t\r\n"
_AS_ASKED_SAYS: dict[str, Answer] = {"1": "first", "2": "second", "null": "tie"}
_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_TOKENS = re.compile(r"<\|[^|>\n]{1,40}\|>|</?s>|\[/?INST\]")
_TAGGED = re.compile(
    r"\\boxed\{(?:\\text\{)?([^{}\n]{1,30})\}|<(?:answer|verdict|choice)>\s{0,9}([^<>]{1,40})</", re.IGNORECASE
)
_PLAIN = str.maketrans(
    {
        **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
        **dict(zip("，；：！？（）［］｛｝＃＂", ',;:!?()[]{}#"', strict=True)),
        **dict.fromkeys("“”„«»「」『』", '"'),
        **dict.fromkeys("‘’‚´", "'"),
        **dict.fromkeys("*`~", ""),
    }
)
_SPACE = re.compile(r"[^\S\n]+")
_KEY = re.compile(
    r"best[ _-]?(?:description|message|caption|text|report|option|answer|choice)[\"'\\]{0,3}\s{0,4}[:=]\s{0,4}"
)
_OPENING = re.compile(r"[\\\"'\[(<{ ]{0,4}")
_TOKEN = re.compile(r"[^\"',})\]>\n;\\|/]*")
_REASONED = re.compile(r"[12](?= (?:because|since|as|-|–|\())")
_OFFERED = re.compile(r",? ?[\"']?(?:[012]|null|none|or)\b")
_LONG_QUOTE = re.compile(r'"([^"\n]*)"')
_LIST = re.compile(r"^ ?\d+[.)] ?\S", re.MULTILINE)
_NUMERAL = re.compile(r" ?\d[.)] ?")
_LEAD = re.compile(
    r"\s{0,9}[\"'(\[]?(?:(?:caption|text|description|option|message|answer) ?)?(?P<number>[12])[\"')\]]{0,2}"
    r"(?:[.:)] | ?[-–—] |,? (?=because|since|as\b))(?! ?(?:or\b|and\b|\d|[-/|&]))"
)
_OTHERS = {
    number: re.compile(rf"^\W{{0,3}}{number}\b|\b(?:caption|text|description|option|message) ?{number}\b", re.MULTILINE)
    for number in ("1", "2")
}

_KEYS = ("best_description", "best_message", "best_caption", "best_text", "best_report", "best_option", "best_answer")
_OTHER_KEYS = ("best", "better", "answer", "final_answer", "choice", "preferred", "preference", "winner", "verdict")
_DEEPEST = 30
"""Nested brackets of an object that is read as JSON."""
_SHORT_QUOTE = 16
"""Characters of a quotation that may be the answer; what is longer is a caption's words."""

_NUMBERS: dict[float, Answer] = {0: "tie", 1: "first", 2: "second"}
_ECHO = object()
"""Stands for a value that only repeats what may be answered, such as 1 | 2 | null."""


def parse_answer(text: str, answer_format: AnswerFormat) -> Answer | None:
    """Return what an answer prefers; None where it cannot be read.

    >>> parse_answer('Text 1 opens the door. {"best_description": 2}', "json")
    'second'
    >>> parse_answer("It could be 1 or 2.", "choice") is None
    True
    """
    as_asked = _AS_ASKED.fullmatch(text.strip(_JSON_SPACE))
    return _AS_ASKED_SAYS[as_asked[1]] if as_asked else _search(text, answer_format)


def _search(text: str, answer_format: AnswerFormat) -> Answer | None:
    """Read an answer in whatever form it comes."""
    said = _without_thoughts(text)
    if said is None:
        return None
    flat, cut = _flatten_objects(_TAGGED.sub(_as_line, _TOKENS.sub(" ", said)))
    plain = _SPACE.sub(" ", flat.translate(_PLAIN)).casefold().strip()
    whole = alone(plain)
    if whole is not None:
        return whole
    stated = [(key.end(), value) for key in _KEY.finditer(plain) if (value := _value(plain, key.end())) is not _ECHO]
    if stated:
        end, last = stated[-1]
        later = {verdict.answer for verdict in verdicts(_unquoted(plain[end:]))}
        return last if later <= {last} else None
    if cut:
        return None
    found = [*_lead(plain, answer_format), *verdicts(_unquoted(plain)), *_last_line(plain)]
    if not found:
        return "abstain" if refuses(plain) else None
    return _settle(found)


def _settle(found: list[Verdict]) -> Answer | None:
    """Return what all say, or what the last says if it concludes and no other conclusion differs."""
    if len({verdict.answer for verdict in found}) == 1 or (
        found[-1].final and len({verdict.answer for verdict in found if verdict.final}) == 1
    ):
        return found[-1].answer
    return None


def _without_thoughts(text: str) -> str | None:
    """Return what follows a model's marked thoughts; None where they never end."""
    marks = list(_THOUGHT.finditer(text))
    if not marks:
        return text
    return text[marks[-1].end() :] if marks[-1][1] else None


def _flatten_objects(text: str) -> tuple[str, bool]:
    """Put `best_description: value` in the place of each JSON object, nothing where it has no verdict.

    Returns:
        the text, and whether there were objects, or the beginning of one, without a verdict.
    """
    parts, end, silent = [], 0, False
    for start, stop, depth in _braces(text):
        if stop is None:
            silent = silent or re.match(r"\{\s{0,9}[\"'“]", text[start : start + 12]) is not None
        elif depth <= _DEEPEST:
            try:
                pairs = json.loads(text[start:stop], object_pairs_hook=_Pairs)
            except ValueError:  # left to be read as words
                continue
            value = pairs.verdict()
            silent = silent or value is _ECHO
            parts += [text[end:start], "\n" if value is _ECHO else f"\nbest_description: {value or 'unreadable'}\n"]
            end = stop
    return "".join([*parts, text[end:]]), silent


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object in order, a key set twice kept twice."""

    def verdict(self) -> Any:
        """Return the answer that it gives, None for one that cannot be read, _ECHO where it gives none."""
        named = [(re.sub(r"[\s-]", "_", key.strip().casefold()), value) for key, value in self]
        for keys in (_KEYS, _OTHER_KEYS):
            answers = [
                value.verdict() if isinstance(value, _Pairs) else _answer_of(value)
                for key, value in named
                if key in keys
            ]
            if answers:
                return answers[0] if len(set(answers)) == 1 else None
        inner = [value.verdict() for _, value in named if isinstance(value, _Pairs)]
        said = [answer for answer in inner if answer is not _ECHO]
        return said[-1] if said else _ECHO


def _answer_of(value: Any) -> Answer | None:
    """Read a JSON value."""
    match value:
        case None:
            return "tie"
        case bool():
            return None
        case int() | float():
            return _NUMBERS.get(value)
        case str():
            return alone(value[:100].translate(_PLAIN).casefold())
        case [single] if not isinstance(value, _Pairs):
            return _answer_of(single)
        case list():
            return "tie" if {1, 2} == {item for item in value if isinstance(item, int)} else None
    return None


def _braces(text: str) -> Iterator[tuple[int, int | None, int]]:
    """Yield start, end and depth of the outermost {…}, blind to braces in their strings; no end where it is cut."""
    depth = squares = deepest = start = 0
    quoted = False
    for mark in re.finditer(r'[{}\[\]"]|\\.', text, re.DOTALL):
        char = mark.group()
        if not depth:
            if char == "{":
                start, depth, squares, deepest = mark.start(), 1, 0, 1
        elif char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char == "{") - (char == "}")
            squares += (char == "[") - (char == "]")
            deepest = max(deepest, depth + squares)
            if not depth:
                yield start, mark.end(), deepest
    if depth:
        yield start, None, deepest


def _as_line(tagged: re.Match[str]) -> str:
    return f"\nbest_description: {(tagged[1] or tagged[2]).strip()}\n"


def _value(text: str, start: int) -> Any:
    """Read what follows a key: an answer, None for what cannot be read, _ECHO for a list of what may be answered."""
    opening = _OPENING.match(text, start)
    begin = opening.end() if opening else start
    window = text[begin : begin + 80]
    found = _TOKEN.match(window)
    token, rest = (found.group(), window[found.end() :]) if found else ("", "")
    if (rest[:1] in ("|", "/") and rest[:2] != "//") or re.search(r"\b(?:or|oder|ou)\b", token) or _OFFERED.match(rest):
        return _ECHO
    answer = alone(token)
    if answer is not None:
        return answer
    reasoned = _REASONED.match(token)
    if reasoned:
        return alone(reasoned.group())
    return _ECHO if token.strip() and "<" in text[start:begin] else None


def _unquoted(text: str) -> str:
    """Take out quotations, which are a caption's words and not the model's; short ones lose their quotes only."""
    return _LONG_QUOTE.sub(lambda quoted: quoted[1] if len(quoted[1]) <= _SHORT_QUOTE else " … ", text)


def _lead(text: str, answer_format: AnswerFormat) -> Iterator[Verdict]:
    """Yield the number that an answer begins with: alone in its line, or where a number was asked for."""
    first, newline, _ = text.partition("\n")
    if newline and not _NUMERAL.fullmatch(first) and (answer := alone(first)) is not None:
        yield Verdict(answer, final=True)
    elif answer_format == "choice" and (lead := _LEAD.match(text)):
        number = lead["number"]
        if not _OTHERS["1" if number == "2" else "2"].search(text):  # else it begins a list of both
            yield Verdict("first" if number == "1" else "second", final=False)


def _last_line(text: str) -> Iterator[Verdict]:
    """Yield the answer that stands alone in the last line, unless it is the begin of a list's next entry."""
    rest, newline, last = text.rpartition("\n")
    if newline and (answer := alone(last)) is not None and not (_NUMERAL.fullmatch(last) and _LIST.search(rest)):
        yield Verdict(answer, final=True)
