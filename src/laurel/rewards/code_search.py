"""The search for a reward function in code: functions are written in rounds, tried, scored and reflected on.

See `laurel.rewards.methods.code`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.agents.episodes import WINDOW
from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.console import tell
from laurel.data.json_file import write_json
from laurel.data.trajectories import finished, read_episodes
from laurel.envs.numbers import Numbers
from laurel.errors import AnnotationError, LaurelError
from laurel.feedback.annotator import Account
from laurel.feedback.asker import AGAIN, FAILED, UNASKED
from laurel.feedback.question import Reading
from laurel.feedback.questions.code import CODE, Assignment, CodeQuestion, Writer, Written
from laurel.rewards.code import CONFIG, MOST_FAILED, SOURCE, CodeReward, Rows, rows_of, table_of
from laurel.rewards.method import Tried
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.sandbox import Evaluated, Sandbox, SandboxError

if TYPE_CHECKING:
    from laurel.feedback.chat_annotator import ChatAnnotator

MOST_STEPS = 20_000
"""Collected steps, in whole episodes, that functions are tried on."""
FIRST, TWICE = 20, 200
"""Number of transitions of the first test of a function, and of the test whether it is deterministic."""
UNTRIED, FAILED_TRIAL, MISSING = "refused", "failed in training", "no answer"


@dataclass(frozen=True)
class Sample:
    """Collected steps, of which D are distinct to a function, and the E episodes that ended, or all if none did."""

    rows: Rows
    """The distinct ones."""
    place: IntArray
    """(S,) number of each step of these episodes among the distinct ones."""
    episode: IntArray
    """(S,) number of its episode, from 0."""
    returns: DoubleArray
    """(E,) the environment's own."""
    success: BoolArray | None
    """(E,) None where success has no meaning."""

    @classmethod
    def read(cls, trajectories: Path, numbers: Numbers) -> Sample:
        """Read the first collected episodes; errors as in `read_episodes`.

        The return of an episode that collection cut off says when that was: with a cost per step it looks best.
        """
        steps, episode = read_episodes(trajectories, MOST_STEPS)
        _, first, place = np.unique(table_of(steps, numbers), axis=0, return_index=True, return_inverse=True)
        completed = finished(steps, episode)
        completed = completed if completed.any() else np.ones_like(completed)
        mask, number = completed[episode], np.cumsum(completed) - 1
        returns = np.bincount(episode, steps.reward).astype(np.float64)[completed]
        last = np.flatnonzero(np.diff(episode, append=-1))[completed]
        success = numbers.adapter.succeeded(returns.astype(np.float32), steps[last])
        return cls(rows_of(steps[first], numbers), place.reshape(-1)[mask], number[episode[mask]], returns, success)

    def totals(self, values: DoubleArray) -> DoubleArray:
        """Sum the rewards of the distinct transitions (D,) over each episode (E,)."""
        return np.bincount(self.episode, np.nan_to_num(values)[self.place]).astype(np.float64)

    def agreement(self, values: DoubleArray) -> float:
        """Return Spearman's rank correlation of episodes' sums with their returns; NaN where either is constant."""
        return _rank_correlation(self.totals(values), self.returns)


def _rank_correlation(a: DoubleArray, b: DoubleArray) -> float:
    from scipy.stats import rankdata

    first, second = rankdata(a), rankdata(b)
    if len(a) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


# -- who writes -----------------------------------------------------------------------------------
class ChatWriter:
    """A chat model, asked with one prompt in the first round and with another one, about the results, later."""

    simulated, remark = False, ""

    def __init__(self, chat: ChatAnnotator, first: CodeQuestion, later: CodeQuestion, account: Account) -> None:
        self._chat, self._first, self._later, self._account = chat, first, later, account
        self._answered: list[Assignment] = []
        self.name = chat.model_name

    def write(self, number: int, assignment: Assignment) -> Sequence[Reading[Written] | None]:
        if number and assignment in self._answered:
            return []  # its stored answers would come again
        asker = self._chat.asker(self._later if number else self._first, self._account.budget)
        with self._account.counting(asker):
            answers = [answer for group in asker.ask([assignment]) for answer in group]
        if answers and all(answer.verdict == UNASKED for answer in answers):
            raise AnnotationError(
                f"rewards of kind code: annotate.budget is spent after {number} rounds. The answers are kept: "
                "raise the budget, or lower rounds or samples, and run again."
            )
        missing = sum(answer.verdict == FAILED for answer in answers)
        if 2 * missing > len(answers):
            raise AnnotationError(
                f"rewards of kind code: {missing} of the {len(answers)} answers of round {number + 1} are missing. "
                f"The others are kept. {AGAIN}"
            )
        if number and not missing:
            self._answered.append(assignment)
        return [None if answer.verdict == FAILED else Reading(answer.verdict, answer.value) for answer in answers]


# -- the loop -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Candidate:
    """A function, and the result of its trial."""

    round: int
    source: str
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    kind: str = CODE
    """Kind of the problem."""
    score: float | None = None
    tried: Tried | None = None
    agreement: float = float("nan")
    values: DoubleArray = field(default_factory=lambda: np.empty(0))
    """(D,) its rewards of the distinct collected transitions."""
    traces: Sequence[str] = ()
    """Descriptions of its components, a line each."""

    @property
    def what(self) -> str:
        """Its result as text."""
        return self.problem or "usable"


@dataclass(frozen=True)
class Search:
    """Functions are written in rounds, tried, and the best is shown to the next round."""

    numbers: Numbers
    sample: Sample
    writer: Writer
    try_out: Callable[[CodeReward], Tried] | None
    """A short training run; None: functions are compared by their agreement with the collected returns."""
    quantile: float
    """Quantile of the trial's shaping."""

    @property
    def chosen_by(self) -> str:
        """The kind of score as text."""
        return "mean return of a short training" if self.try_out else "rank correlation with collected returns"

    def run(self, rounds: int) -> tuple[Candidate, list[Candidate]]:
        """Return the best function, and all functions.

        Raises:
            AnnotationError: none could be used.
        """
        candidates: list[Candidate] = []
        best: Candidate | None = None
        feedback, settings = "", "rounds or samples"
        for number in range(rounds):
            source = best.source if best else ""
            task = Assignment(self.numbers.observation, self.numbers.action, source, feedback)
            if not (written := self.writer.write(number, task)):
                settings = "samples"
                tell(
                    f"rewards of kind code: the search ends after {number} of {rounds} rounds, since the next one "
                    f"would show {self.writer.name} the same as an earlier one, and so bring the same answers."
                )
                break
            known = {candidate.source: candidate for candidate in candidates if candidate.source}
            new = []
            for reading in written:
                judged = self._judged(number + 1, reading, known)
                known[judged.source] = judged
                new.append(judged)
            candidates += new
            usable = [candidate for candidate in candidates if candidate.score is not None]
            best = max(usable, key=_finite_score, default=None)
            answers = [candidate for candidate in new if candidate.kind != MISSING]
            feedback = reflection(answers, best, self.chosen_by)
            of_use = sum(answer.score is not None for answer in answers)
            functions = f"{len(answers)} function{'s' * (len(answers) != 1)}"
            wrote = f"{self.writer.name} wrote {functions}, of which {of_use} can be used"
            progress = f"rewards of kind code, round {number + 1} of {rounds}: {wrote}"
            tell(f"{progress}; none has a score yet" if best and is_unknown(best.score) else progress)
        if best is None:
            raise AnnotationError(
                f"rewards of kind code: none of the {len(candidates)} functions that {self.writer.name} wrote could be "
                f"used. {_counted(candidates)} Use another model (annotate) or prompt, or raise {settings}."
            )
        return best, candidates

    def _judged(self, number: int, reading: Reading[Written] | None, known: Mapping[str, Candidate]) -> Candidate:
        if reading is None:
            return Candidate(number, "", "there was no answer", MISSING)
        if reading.value is None:
            return Candidate(number, "", "the answer has no block of code", "no code")
        written = reading.value
        if written.problem:
            return Candidate(number, written.source, written.problem, reading.verdict)
        if written.source in known:
            return replace(known[written.source], round=number)
        examination = examined(Candidate(number, written.source), self.sample, self.numbers)
        if examination.problem:
            return examination
        if self.try_out is None:
            return replace(examination, score=examination.agreement)
        reward = CodeReward(examination.source, self.numbers, Normalizer.of(examination.values), self.quantile)
        try:
            tried = self.try_out(reward)
        except LaurelError as error:
            return replace(examination, problem=str(error), kind=FAILED_TRIAL)
        finally:
            reward.close()
        return replace(examination, score=tried.score, tried=tried)


def is_unknown(score: float | None) -> bool:
    """Whether a usable function has no score: too few episodes ended, or it pays all of them the same."""
    return score is not None and math.isnan(score)


def _finite_score(candidate: Candidate) -> float:
    return -math.inf if candidate.score is None or math.isnan(candidate.score) else candidate.score


def examined(candidate: Candidate, sample: Sample, numbers: Numbers) -> Candidate:
    """Try a function on collected steps; return its rewards and components, or why it cannot be used."""
    before, actions, after = sample.rows
    with Sandbox(candidate.source, numbers.names) as sandbox:
        try:
            evaluated = sandbox.evaluate(before[:FIRST], actions[:FIRST], after[:FIRST])
            if evaluated.failed < len(before[:FIRST]):
                evaluated = sandbox.evaluate(before, actions, after)
                repeated = sandbox.evaluate(before[TWICE::-1], actions[TWICE::-1], after[TWICE::-1])
        except SandboxError as error:
            return replace(candidate, problem=f"it was stopped: {error}", kind=UNTRIED)
    if evaluated.failed > MOST_FAILED * len(evaluated.rewards):
        return replace(candidate, problem=f"it fails: {_commonest_failure(evaluated)}", kind=UNTRIED)
    if not np.array_equal(repeated.rewards[::-1], evaluated.rewards[: len(repeated.rewards)], equal_nan=True):
        return replace(
            candidate, problem="it returns different numbers for the same transition: it keeps a state", kind=UNTRIED
        )
    if np.nanstd(evaluated.rewards) <= 1e-8:
        return replace(candidate, problem="it returns the same number for every transition", kind=UNTRIED)
    filled = np.where(np.isnan(evaluated.rewards), np.nanmin(evaluated.rewards), evaluated.rewards)
    components = {"reward": evaluated.rewards, **evaluated.components}
    traces = [_trace(name, values, sample) for name, values in components.items()]
    return replace(candidate, agreement=sample.agreement(filled), values=filled, traces=traces)


def _commonest_failure(evaluated: Evaluated) -> str:
    reason, times = next(iter(evaluated.failures.items()))
    return f"{reason} (for {times:,} of {len(evaluated.rewards):,} transitions)"


def _trace(name: str, values: DoubleArray, sample: Sample) -> str:
    """Describe a component: mean a step of the episodes, range, and rank correlation with returns and success."""
    totals = sample.totals(values)
    steps = values[sample.place]  # NaN where the function fails or does not name the component
    mean = np.nanmean(steps if np.isfinite(steps).any() else values)
    facts = [f"mean {mean:.3g} a step, from {np.nanmin(values):.3g} to {np.nanmax(values):.3g}"]
    correlation = _rank_correlation(totals, sample.returns)
    facts.append(
        "all collected episodes have the same return, or the same sum of it"
        if math.isnan(correlation)
        else f"rank correlation with an episode's return {correlation:z.2f}"
    )
    if sample.success is not None and not math.isnan(
        solved := _rank_correlation(totals, sample.success.astype(np.float64))
    ):
        facts.append(f"with its success {solved:z.2f}")
    return f"{name}: {', '.join(facts)}"


def reflection(candidates: Sequence[Candidate], best: Candidate | None, chosen_by: str) -> str:
    """Return the feedback for the next round: on the functions of the last one, and on the best so far."""

    def scored(candidate: Candidate) -> str:
        return f"{chosen_by}: {'unknown' if is_unknown(candidate.score) else f'{candidate.score:.3g}'}"

    lines = []
    if best is not None:
        title = (
            "A usable function, since none has a score yet" if is_unknown(best.score) else "The best function so far"
        )
        lines = [f"{title} ({scored(best)}):", *best.traces]
        if best.tried:
            returns = ", ".join("too few" if math.isnan(mean) else f"{mean:.3g}" for mean in best.tried.returns)
            lines.append(f"Mean return of the last {WINDOW} episodes, in each fifth of its training: {returns}.")
    rest = [candidate for candidate in candidates if best is None or candidate.source != best.source]
    if rest:
        lines.append("Others of the last round:")
        lines += [
            f"- {candidate.problem}"
            if candidate.problem
            else f"- usable, {scored(candidate)}; {'; '.join(candidate.traces)}"
            for candidate in rest
        ]
    return "\n".join(lines)


def _counted(candidates: Sequence[Candidate]) -> str:
    reasons = Counter(candidate.problem for candidate in candidates)
    return " ".join(f"{times} of them: {reason}." for reason, times in reasons.most_common(3))


def save(place: Path, search: Search, best: Candidate, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Write the artefact; return its figures for the report."""
    (place / SOURCE).write_text(best.source, encoding="utf-8")
    content = {
        "names": list(search.numbers.names),
        "normalizer": asdict(Normalizer.of(best.values)),
        "writer": search.writer.name,
        "simulated": search.writer.simulated,
        "chosen_by": search.chosen_by,
        "candidates": [
            [candidate.round, candidate.what, _finite(candidate.score), candidate.source == best.source]
            for candidate in candidates
        ],
    }
    write_json(place / CONFIG, content)
    refused = Counter(candidate.kind for candidate in candidates if candidate.score is None)
    return {
        "judge": search.writer.name,
        "simulated": search.writer.simulated,
        "chosen_by": search.chosen_by,
        "score": _finite(best.score),
        "rank_correlation_with_returns": _finite(best.agreement),
        "functions": len(candidates),
        "usable": sum(candidate.score is not None for candidate in candidates),
        "not_usable": dict(refused),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
