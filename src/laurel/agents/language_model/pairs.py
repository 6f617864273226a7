"""Pairs of better and worse answers: proposals for one state, compared by their scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from laurel.agents.language_model.chain import Turn
from laurel.llm.trl_tuning import Group, Pair

UNREAD = -math.inf
"""Score of an answer that cannot be read, until it is compared."""


class Scored(NamedTuple):
    """A proposal with its score."""

    turns: tuple[Turn, ...]
    score: float


def below_all(proposals: Sequence[Scored], lowest: float, margin: float) -> list[Scored]:
    """Return proposals to compare, of any rounds; answers that cannot be read get a score below all others.

    Args:
        lowest: an upper bound of that score.
        margin: by more than which it is below.
    """
    lowest_score = min(
        [np.float32(lowest), *(np.float32(proposal.score) for proposal in proposals if proposal.score > UNREAD)]
    )
    worst = float(lowest_score - 2 * margin - 1)
    return [proposal if proposal.score > UNREAD else proposal._replace(score=worst) for proposal in proposals]


class Memory(Protocol):
    """A memory of proposals to compare with each other."""

    def add(self, proposals: Sequence[Scored]) -> list[Scored]:
        """Add a round's proposals; return all to compare now."""
        ...

    def state(self) -> list[list[Scored]]:
        """Return the proposals that are kept for later rounds."""
        ...

    def restore(self, state: Sequence[Sequence[Scored]]) -> None:
        """Restore a `state`."""
        ...


class RoundMemory:
    """Compares only proposals of the same round."""

    def add(self, proposals: Sequence[Scored]) -> list[Scored]:
        return list(proposals)

    def state(self) -> list[list[Scored]]:
        return []

    def restore(self, state: Sequence[Sequence[Scored]]) -> None:
        pass


class RecentMemory:
    """Compares the proposals of the last rounds: remembered ones with new ones for the same prompt.

    Args:
        rounds: how many, the current one included.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._kept: list[list[Scored]] = []

    def add(self, proposals: Sequence[Scored]) -> list[Scored]:
        self._kept = [*self._kept, list(proposals)][-self._rounds :]
        recent = [proposal for batch in self._kept for proposal in batch]
        self._kept = self._kept[-(self._rounds - 1) :]
        return recent

    def state(self) -> list[list[Scored]]:
        return self._kept

    def restore(self, state: Sequence[Sequence[Scored]]) -> None:
        self._kept = [list(batch) for batch in state]


class BestAnswers:
    """The best answer to each prompt so far that can be read; of equal ones the shorter."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, float]] = {}
        """Prompt -> answer and score."""

    def add(self, proposals: Iterable[Scored]) -> None:
        for proposal in proposals:
            for prompt, answer in proposal.turns if proposal.score > UNREAD else ():
                best, score = self.known.get(prompt, (answer, -np.inf))
                if (proposal.score, -len(answer)) > (score, -len(best)):
                    self.known[prompt] = answer, proposal.score

    def join(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups, each with the best answer to its prompt added if it lacks it."""
        joined = []
        for prompt, answers, scores in groups:
            best, score = self.known.get(prompt, (answers[0], UNREAD))
            missing = best not in answers
            joined.append(Group(prompt, (*answers, *[best] * missing), (*scores, *[score] * missing)))
        return joined


@dataclass
class Skipped:
    """Counts of proposals without a training pair, by reason."""

    alone: int = 0
    """Answers whose prompt occurred once, so they cannot be compared."""
    alike: int = 0
    """Groups whose scores differ by no more than the margin, whose answers are the same, or which are too small."""
    of: int = field(default=0, kw_only=True)
    """Answers in all; a proposal has one for each call of the model."""


def grouped(proposals: Iterable[Scored], size: int, rng: np.random.Generator) -> tuple[list[Group], Skipped]:
    """Put answers to the same prompt into groups of `size` at random, the rest into smaller ones."""
    by_prompt: dict[str, list[tuple[str, float]]] = {}
    for proposal in proposals:
        for turn in proposal.turns:
            by_prompt.setdefault(turn.prompt, []).append((turn.answer, proposal.score))
    groups, skipped = [], Skipped(of=sum(map(len, by_prompt.values())))
    for prompt, answers in by_prompt.items():
        order = rng.permutation(len(answers)).tolist()
        for start in range(0, len(order), size):
            group = [answers[i] for i in order[start : start + size]]
            if len(group) < 2:
                skipped.alone += len(answers) == 1  # the last of several groups may be one answer, too
            else:
                groups.append(Group(prompt, tuple(answer for answer, _ in group), tuple(score for _, score in group)))
    return groups, skipped


def pairs_of(
    groups: Iterable[Group], margin: float, pairing: Literal["best_worst", "all"], skipped: Skipped
) -> list[Pair]:
    """Return pairs of each group whose scores differ by more than the margin; groups without a pair are counted."""
    pairs = []
    for group in groups:
        order = sorted(range(len(group.answers)), key=lambda i: (-group.scores[i], len(group.answers[i])))
        # any of the worst, in the group's random order: if it were always the longest, the model would learn brevity
        worst = min(range(len(group.answers)), key=group.scores.__getitem__)
        places = [(order[0], worst)]
        if pairing == "all":
            places = [(better, worse) for place, better in enumerate(order) for worse in order[place + 1 :]]
        group_pairs = [
            Pair(group.prompt, str(group.answers[better]), str(group.answers[worse]))
            for better, worse in places
            if group.scores[better] - group.scores[worse] > margin and group.answers[better] != group.answers[worse]
        ]
        skipped.alike += not group_pairs
        pairs += group_pairs
    return pairs


def unequal(groups: Iterable[Group], size: int, margin: float, skipped: Skipped) -> list[Group]:
    """Return the groups of full size whose scores differ by more than the margin; others are counted.

    Where the best earlier answer has joined a group, another one is dropped from it.
    """
    unequal_groups = []
    for prompt, answers, scores in groups:
        group = Group(prompt, answers[-size:], scores[-size:])
        if len(group.answers) == size and max(group.scores) - min(group.scores) > margin:
            unequal_groups.append(group)
        else:
            skipped.alike += 1
    return unequal_groups
