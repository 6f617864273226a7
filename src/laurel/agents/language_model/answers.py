"""The form of an answer that names moves: how it is written, read, and constrained token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from laurel.errors import AnnotationError
from laurel.feedback.parsing import object_in
from laurel.llm.causal import tokens_of
from laurel.llm.local_model import LocalModel
from laurel.llm.sampling import Grammar

Moves = tuple[int, ...]
SPECIAL = re.compile(r"([.^$*+?{}\[\]()|\\])")
"""Special characters of regular expressions; `re.escape` escapes more than other engines support."""


class Pattern(NamedTuple):
    """A regular expression that answers match as a whole."""

    regex: str
    longest: int
    """Bytes of the longest answer: as many tokens are enough for it, however it is split."""


def literal(text: str) -> str:
    """Return the regular expression of a text."""
    return SPECIAL.sub(r"\\\1", text)


@dataclass(frozen=True)
class Form:
    """Text around moves and between them."""

    begin: str
    between: str
    end: str
    what: str
    """The form in words, for a prompt."""


FORMS = {
    "moves": Form("", ", ", "", "moves with commas between them"),
    "action": Form("", ", ", "", "the name of one move"),
    "code": Form("```\n", "\n", "\n```", "a block of code between lines of ```, a move a line"),
    "json": Form('{"moves": ["', '", "', '"]}', 'a JSON object such as {"moves": ["…", "…"]}'),
}


class Converter:
    """Turns lists of moves into answers and back.

    >>> json_field = Converter("json", ("forward", "left"), longest=2)
    >>> json_field.write((0, 1))
    '{"moves": ["forward", "left"]}'
    >>> json_field.read('{"explain": "It is ahead.", "moves": ["Forward"]}'), json_field.read("up")
    ((0,), None)

    Args:
        longest: most moves in a list; the form `action` always has one.
    """

    def __init__(self, form: str, names: Sequence[str], longest: int) -> None:
        self.form = FORMS[form]
        self.names = tuple(names)
        self.longest = 1 if form == "action" else longest
        self._kind = form
        self._numbers = {_plain(name): number for number, name in enumerate(names)}

    def write(self, moves: Moves) -> str:
        """Return the answer that names these moves."""
        form = self.form
        return form.begin + form.between.join(self.names[move] for move in moves) + form.end

    def read(self, answer: str) -> Moves | None:
        """Return the moves that an answer names; None if it cannot be parsed or names too many: no guessing."""
        named = object_in(answer).get("moves") if self._kind == "json" else self._listed(answer)
        if not isinstance(named, list) or not 1 <= len(named) <= self.longest:
            return None
        if not all(isinstance(name, str) for name in named):
            return None
        moves = [self._numbers.get(_plain(name)) for name in named]
        return None if None in moves else tuple(move for move in moves if move is not None)

    def _listed(self, answer: str) -> list[str] | None:
        if self._kind == "code":
            blocks = re.findall(r"```[a-z]*\n(.*?)```", answer, flags=re.DOTALL)
            return [line for line in blocks[-1].splitlines() if line.strip()] if blocks else None
        return answer.strip().rstrip(".").split(",")

    def grammar(self, local: LocalModel) -> tuple[Grammar, int]:
        """Return the grammar of answers that can be read, and how many tokens the longest one has.

        Raises:
            AnnotationError: the model's tokenizer merges moves with the text between them.
        """
        form, grammar = self.form, Grammar()
        order = sorted(range(len(self.names)), key=lambda move: len(self.names[move]))  # a prefix before the whole name
        first = [tokens_of(local, form.begin + name) for name in self.names]
        later = [tokens_of(local, form.between + name) for name in self.names]
        self._check(local, first, later)
        end = tokens_of(local, form.end) if form.end else []
        after = {move: grammar.add(first[move]) for move in order}
        tail: int | None = None
        for length in range(1, self.longest + 1):
            for move in order:
                if end:
                    tail = grammar.add(end, after[move], tail)
                    grammar.end(tail, local.stops)
                else:
                    grammar.end(after[move], local.stops)
            if length == self.longest:
                break
            targets: dict[int, int | None] = dict.fromkeys(order)
            for move in order:
                for following in order:
                    targets[following] = grammar.add(later[following], after[move], targets[following])
            after = {move: state for move, state in targets.items() if state is not None}
        longest = max(map(len, first)) + (self.longest - 1) * max(map(len, later)) + len(end) + 1
        return grammar, longest

    @property
    def pattern(self) -> Pattern:
        """The valid answers, for a server that supports regular expressions."""
        form = self.form
        names, separator = "|".join(map(literal, self.names)), literal(form.between)
        repeats = f"(?:{separator}(?:{names})){{0,{self.longest - 1}}}" if self.longest > 1 else ""
        longest_name = max(self.names, key=lambda name: len(name.encode()))
        longest = form.begin + form.between.join([longest_name] * self.longest) + form.end
        return Pattern(f"{literal(form.begin)}(?:{names}){repeats}{literal(form.end)}", len(longest.encode()))

    def _check(self, local: LocalModel, first: list[list[int]], later: list[list[int]]) -> None:
        """Refuse a tokenizer that does not split an answer at its moves."""
        end = tokens_of(local, self.form.end) if self.form.end else []
        for move in range(len(self.names)):
            moves = tuple([0, move, 0][: self.longest])
            parts = [*first[moves[0]], *(token for index in moves[1:] for token in later[index]), *end]
            if self.read(local.tokenizer.decode(parts, skip_special_tokens=True)) != moves:
                raise AnnotationError(
                    f"The tokenizer of {local.identity.model} has no tokens for {self.write(moves)!r}: choose another "
                    "model."
                )
            if tokens_of(local, self.write(moves)) != parts:
                raise AnnotationError(
                    f"The tokenizer of {local.identity.model} does not split answers such as {self.write(moves)!r} at "
                    "their moves, so they cannot be constrained: set agent.language_model.constrained to false, or "
                    "choose another form of answer."
                )


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())
