"""Several annotators that vote: the label is the weighted mean of the members' labels.

Each block of pairs is judged by one member after the other. If several members are models in this process, they are
loaded one after another, each for all pairs; their judgements are stored in a file until the last one has judged.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from tempfile import TemporaryFile
from typing import IO

from laurel.console import tell
from laurel.data.asked import Asked, joined
from laurel.data.missing import Reasons
from laurel.data.usage import Usage, added
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import (
    Annotator,
    Answer,
    Judgement,
    OnJudged,
    Pair,
    annotated,
    failures_of,
    ignore,
    questions_asked,
    usage_of,
)
from laurel.feedback.annotator_kind import Advice, AnnotatorKind, kind_of, remedy_of_ties
from laurel.feedback.goals import goal_in_words
from laurel.feedback.unreadable import UnreadableError
from laurel.feedback.voting import voted
from laurel.llm.budget import Budget
from laurel.params.annotation import EnsembleParams
from laurel.seeding import derive_seed

BLOCK = 4096
"""Pairs per block; memory does not grow with the number of pairs."""


@dataclass(frozen=True, slots=True)
class Member:
    """An annotator that votes."""

    make: Callable[[], Annotator]
    weight: float = 1.0
    """Relative weight of its vote."""
    local: bool = False
    """Whether it is a language model in this process; two of them may not fit into memory."""


class EnsembleAnnotator:
    """Labels pairs by a vote of all members.

    Args:
        members: two or more.
        tie_band: mean probabilities within this of 1/2 are ties.
    """

    def __init__(self, members: Sequence[Member], tie_band: float = 0.0) -> None:
        self._members = members
        self._tie_band = tie_band
        self._in_turn = sum(member.local for member in members) > 1
        self._held: dict[int, Annotator] = {}
        self._asked: list[Asked] = []
        self._used: dict[int, Usage] = {}
        self._failed: dict[int, Reasons] = {}
        """Reasons for missing answers of members that are loaded in turn."""
        names, simulated = [], False
        for number, member in enumerate(members):
            # also members that are loaded in turn, so that errors appear at the start
            annotator = member.make()
            names.append(f"members[{number}]: {annotator.name}")
            simulated = simulated or annotator.simulated
            if not (self._in_turn and member.local):
                self._held[number] = annotator
            del annotator
            if number not in self._held:
                _free_memory()
        self.on_judged: OnJudged = ignore
        self._votes = 0
        self._unreadable: set[int] = set()
        self.names = tuple(names)
        """Names of the members, each with its position."""
        self.simulated = simulated
        weights = "" if len({m.weight for m in members}) == 1 else f"weights {[m.weight for m in members]}; "
        self.name = f"ensemble of {len(members)} ({weights}{'; '.join(names)})"

    @property
    def usage(self) -> Usage:
        """Return the usage of all members together, and of each."""
        used = self._used | {number: usage_of(annotator) for number, annotator in self._held.items()}
        total: Usage = {}
        for number in sorted(used):
            total = added(total, used[number])
        single = {f"members.{n}.{key}": amount for n in sorted(used) for key, amount in used[n].items()}
        return total | single

    @property
    def asked_sample(self) -> list[Asked]:
        """Return samples of what members were asked."""
        return [*self._asked, *(sample for annotator in self._held.values() for sample in questions_asked(annotator))]

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        """Return member -> reason for missing answers -> count."""
        failed = {number: reasons.counts() for number, reasons in self._failed.items()}
        for number, annotator in self._held.items():
            for reasons in failures_of(annotator).values():
                failed[number] = reasons
        return {self.names[number]: failed[number] for number in sorted(failed)}

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Prepare the members in memory; those that are loaded in turn are prepared after loading."""
        for block in _blocks(pairs):
            for annotator in self._held.values():
                annotator.prepare(block)

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        """Yield a judgement for each pair, in order.

        Raises:
            RefusedError: a member cannot be asked; all answers that came are kept.
        """
        if self._in_turn:
            yield from self._one_after_another(pairs)
            return
        size = max(BLOCK, *(getattr(annotator, "at_once", 0) for annotator in self._held.values()))
        for block in _blocks(pairs, size):
            votes = [
                list(self._votes_of(number, self._held[number], block, len(block)))
                for number in range(len(self._members))
            ]
            for cast in zip(*votes, strict=True):
                yield self._together(cast)

    def _one_after_another(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        with TemporaryFile("w+", encoding="utf-8") as asked, ExitStack() as opened:
            total = 0
            for total, pair in enumerate(pairs, 1):  # noqa: B007 - how many there are
                asked.write(json.dumps([pair.first, pair.second]) + "\n")
            files = [opened.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in self._members]
            for number, file in enumerate(files):
                self._vote(number, asked, total, file)
            for lines in zip(*files, strict=True):
                yield self._together([_judgement(line) for line in lines])

    def _vote(self, number: int, asked: IO[str], total: int, file: IO[str]) -> None:
        """Write a member's judgements of all these pairs to a file, and go to its beginning."""
        annotator = self._held.get(number) or self._members[number].make()
        asked.seek(0)
        pairs = (Pair(*json.loads(line)) for line in asked)
        for judgement in self._votes_of(number, annotator, pairs, total):
            file.write(json.dumps(judgement) + "\n")
        if number not in self._held:
            self._asked = joined([*self._asked, *questions_asked(annotator)])
            self._used[number] = added(self._used.get(number, {}), usage_of(annotator))
            for reasons in failures_of(annotator).values():
                for reason, count in reasons.items():
                    self._failed.setdefault(number, Reasons()).add(reason, count)
            del annotator
            _free_memory()
        file.seek(0)

    def _votes_of(self, number: int, annotator: Annotator, pairs: Iterable[Pair], total: int) -> Iterator[Judgement]:
        """Yield a member's judgements; a member without any readable answer is dropped from the vote."""
        done = 0
        if number not in self._unreadable:
            try:
                for judgement in annotated(annotator, pairs, self._voted):
                    done += 1
                    yield judgement
            except UnreadableError as error:
                self._unreadable.add(number)
                tell(f"{self.names[number]} is no longer asked. {error}")
        for _ in range(done, total):
            yield Judgement("parse_failed", None, 0)

    def _voted(self, number: int, *, stored: bool) -> None:
        """Count votes, and report progress: as many votes as there are members count as one judged pair."""
        self._votes += number
        judged, self._votes = divmod(self._votes, len(self._members))
        if judged:
            self.on_judged(judged, stored=stored)

    def _together(self, votes: Sequence[Judgement]) -> Judgement:
        """Combine the votes (`laurel.feedback.voting.voted`)."""
        answers = tuple(
            answer._replace(annotator=name)
            for name, vote in zip(self.names, votes, strict=True)
            for answer in vote.answers
        )
        members = tuple(zip(self.names, votes, strict=True))
        weights = [member.weight for member in self._members]
        status, p = voted(weights, [(vote.status, vote.p_first) for vote in votes], self._tie_band)
        if p is None:
            return Judgement(status, None, 0, None, answers, members)
        orders = [vote.swap_consistent for vote in votes if vote.swap_consistent is not None]
        return Judgement(
            status,
            p,
            sum(vote.votes for vote in votes if vote.p_first is not None),
            all(orders) if orders else None,
            answers,
            members,
        )


def _blocks(pairs: Iterable[Pair], size: int = BLOCK) -> Iterator[list[Pair]]:
    stream = iter(pairs)
    while block := list(islice(stream, size)):
        yield block


def _judgement(line: str) -> Judgement:
    status, p_first, votes, swap_consistent, answers, _ = json.loads(line)
    return Judgement(status, p_first, votes, swap_consistent, tuple(Answer(*answer) for answer in answers))


def _free_memory() -> None:
    """Free the memory of a model that is no longer used."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class EnsembleKind(AnnotatorKind):
    """The annotator `ensemble`; checks and estimates are its members', as `AnnotateParams.voters` lists them."""

    Params = EnsembleParams

    def make(
        self, adapter: EnvAdapter, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
    ) -> EnsembleAnnotator:
        """Make all members, which share the budget; errors as for each of them."""
        shared = budget or Budget(self.params.budget)

        def member(number: int) -> Member:
            kind = kind_of(self.params.of_member(number))
            own_seed = derive_seed(seed, "member", number)
            return Member(
                make=lambda: kind.make(adapter, own_seed, captions, budget=shared),
                weight=self.section.members[number].weight,
                local=kind.local,
            )

        members = [member(number) for number in range(len(self.section.members))]
        return EnsembleAnnotator(members, self.section.tie_band)

    @property
    def simulated(self) -> bool:
        """Whether any member is simulated."""
        return any(kind_of(voter).simulated for voter in self.params.voters)

    def goal(self, adapter: EnvAdapter) -> str:
        """Return the goal of members that ask a chat model and have no goal of their own."""
        return goal_in_words(adapter, self.params.language_model.goal)

    @property
    def advice(self) -> Advice:
        members = "other members (annotate.ensemble.members)"
        ties = remedy_of_ties(self.section.tie_band, "annotate.ensemble.tie_band", members)
        return Advice(asking=members, aim=members, ties=ties)


ANNOTATOR = EnsembleKind
