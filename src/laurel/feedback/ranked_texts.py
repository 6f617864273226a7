"""Tasks in words whose texts are ranked by hand: they teach a judge to read a goal, without an environment.

Laurel's own, invented for this purpose, are in OWN. A file of the user has the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.known_answers import Subject, across_levels, drawing
from laurel.params.fields import Section, distinct, filled
from laurel.params.file import read_mapping, sentences, shown

OWN = Path(__file__).with_suffix(".yaml")
_CHOICE = re.compile(r"\{([^{}]*)\}")


def _listed(texts: object) -> object:
    if not isinstance(texts, str | list | tuple):
        raise ValueError(f"is {shown(texts)}, but must be a text or a list of texts that are equally good.")
    return (texts,) if isinstance(texts, str) else texts


def _ranked(levels: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    if len(levels) < 2:
        raise ValueError("must have at least two entries, one worse than the other.")
    seen: dict[str, int] = {}
    for number, level in enumerate(levels):
        for text in (text for alternatives in level for text in expanded(alternatives)):
            if seen.setdefault(text, number) != number:
                raise ValueError(f'ranks "{text}" twice; keep one of the two.')
    return levels


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False), AfterValidator(filled)]


class RankedTask(Section):
    """A task in words, and texts that are ranked by how good they are for it."""

    description: str
    """One or two sentences about the task."""
    goal: str
    worst_to_best: Annotated[tuple[Texts, ...], Field(strict=False), AfterValidator(_ranked)]
    """Texts from the worst to the best; those in a list are equally good, and "{a|b}" stands for a and for b."""

    def levels(self) -> dict[float, list[str]]:
        """Return rank -> the texts of this rank; a higher rank is better."""
        return {
            float(rank): [text for alternatives in level for text in expanded(alternatives)]
            for rank, level in enumerate(self.worst_to_best)
        }


def _with_distinct_descriptions(tasks: tuple[RankedTask, ...]) -> tuple[RankedTask, ...]:
    distinct(tuple(task.description for task in tasks))
    return tasks


class RankedTasks(Section):
    """The content of a file."""

    tasks: Annotated[tuple[RankedTask, ...], Field(strict=False), AfterValidator(_with_distinct_descriptions)]


class _TaskInWords(EnvAdapter):
    """The words of a task, for questions; it has no steps."""

    def __init__(self, task: RankedTask) -> None:
        from gymnasium.spaces import Discrete

        super().__init__(task.description, Discrete(1), Discrete(1))
        self.description, self.goal = task.description, task.goal


def load_ranked(path: Path = OWN) -> tuple[RankedTask, ...]:
    """Read ranked tasks from a YAML file with the keys of `RankedTasks`.

    Raises:
        ParamsError: the file is missing, or a key or value is not allowed.
    """
    try:
        return RankedTasks.model_validate(read_mapping(path, "Write one with `tasks`.")).tasks
    except ValidationError as error:
        raise ParamsError(sentences(str(path), RankedTasks, error)) from None


def by_rank(task: RankedTask, n: int, seed: int) -> Subject:
    """Draw pairs of texts of different rank, all pairs of ranks equally often; n pairs, or all if there are fewer."""
    adapter = _TaskInWords(task)
    return Subject(adapter, across_levels(task.levels(), n, drawing(seed, adapter)))


def expanded(text: str) -> Iterator[str]:
    """Yield the texts that a text with alternatives stands for.

    >>> list(expanded("The tank is {half|quite} full{| and leaks}."))[:3]
    ['The tank is half full.', 'The tank is half full and leaks.', 'The tank is quite full.']
    """
    parts = _CHOICE.split(text)  # texts and alternatives in turn
    yield from map("".join, product(*(part.split("|") if i % 2 else [part] for i, part in enumerate(parts))))
