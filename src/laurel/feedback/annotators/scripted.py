"""A simulated teacher with known faults, for tests and controls; always marked as simulated.

Its utility is the environment's hand-written progress r, summed over a segment's steps t = 1 … H. Faults are those of
B-Pref's teachers (Lee et al. 2021, arXiv 2111.03026, section 3), and two that language models have; each is drawn with
a seed from the pair's texts, so that a pair always gets the same answer.

    skip         no answer where max(Σ r¹, Σ r⁰) < threshold
    equal        a tie where |Σ r¹ - Σ r⁰| <= threshold
    myopic       r_t counts γ^(H - t)
    stochastic   P[first] = 1 / (1 + exp(-β (Σ r¹ - Σ r⁰)))
    mistake      the preference is flipped with probability ε

B-Pref's thresholds are a fraction of the policy's average return; here they are in units of r, so that an answer does
not depend on the other pairs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np

from laurel.arrays import BoolArray, DoubleArray, IntArray
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotator_kind import Advice, Alike, AnnotatorKind
from laurel.feedback.questions.score import HIGHEST
from laurel.feedback.simulated_writer import SimulatedWriter
from laurel.feedback.text_judge import TextJudge
from laurel.llm.budget import Budget
from laurel.params.judges import ScriptedParams
from laurel.seeding import derive_seed, generator

_REPEATED = re.compile(r"(.*) \(x([1-9]\d{0,8})\)\Z", re.DOTALL)
REMEMBERED = 100_000
"""Number of texts whose steps are cached."""


@dataclass(frozen=True, slots=True)
class Faults:
    """A teacher's deviations from the oracle; fields as in `ScriptedParams`."""

    error_rate: float = 0.0
    skip_below: float = -math.inf
    tie_band: float = 0.0
    gamma: float = 1.0
    beta: float = math.inf
    """Infinite: the better one is always preferred."""

    @classmethod
    def of(cls, params: ScriptedParams) -> Faults:
        """Return the named teacher's faults, except where the params set them."""
        named = TEACHERS[params.teacher]
        chosen = {name: getattr(params, name) for name in cls.__slots__}
        return cls(**{name: getattr(named, name) if value is None else value for name, value in chosen.items()})


TEACHERS: Mapping[str, Faults] = MappingProxyType(
    {
        "oracle": Faults(),
        "mistake": Faults(error_rate=0.1),
        "skip": Faults(skip_below=0.1),
        "equal": Faults(tie_band=0.1),
        "myopic": Faults(gamma=0.9),
        "stochastic": Faults(beta=1.0),
    }
)
"""The teachers of B-Pref, with the rates of its experiments."""


def _deviations(faults: Faults, params: ScriptedParams) -> Iterator[str]:
    """Describe how a teacher differs from one that never errs and always answers."""
    if faults.error_rate:
        yield f"{faults.error_rate:.4g} of preferences flipped"
    if faults.skip_below > -math.inf:
        yield f"no answer below {faults.skip_below:g}"
    if faults.tie_band:
        yield f"ties up to {faults.tie_band:g}"
    if faults.gamma != 1:
        yield f"gamma {faults.gamma:g}"
    if math.isfinite(faults.beta):
        yield f"beta {faults.beta:g}"
    if params.abstain_rate:
        yield f"no answer to {params.abstain_rate:.4g} of pairs"
    if params.first_bias:
        yield f"the first named in {params.first_bias:.4g} of pairs"


class ScriptedAnnotator:
    """Judges by the adapter's oracle, with errors at the given rates.

    Args:
        adapter: the environment's; has the oracle.
        captions: of single steps, which segments consist of, besides those that the adapter lists.
    """

    simulated = True

    def __init__(self, params: ScriptedParams, adapter: EnvAdapter, seed: int, captions: Collection[str] = ()) -> None:
        if adapter.oracle("") is None:
            raise AnnotationError(
                f"annotate.annotator: scripted judges by an environment's hand-written progress, and {adapter.env_id} "
                "has none. Use the embedding annotator, or give its adapter an `oracle`."
            )
        self.params = params
        self.faults = faults = Faults.of(params)
        self.name = f"scripted (simulated: {', '.join([f'{params.teacher} teacher', *_deviations(faults, params)])})"
        self._utility = OracleUtility(adapter, captions)
        self._seed = seed

    @property
    def usage(self) -> dict[str, float | None]:
        return {}

    def prepare(self, pairs: Iterable[Pair]) -> None:
        """Do nothing: each pair is judged by itself."""

    def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
        for pair in pairs:
            yield self._judge(pair)

    def _judge(self, pair: Pair) -> Judgement:
        p, faults, utility = self.params, self.faults, self._utility
        abstains, names_first, errs, draw = generator(self._seed, pair.first, pair.second).random(4)
        if abstains < p.abstain_rate:
            return Judgement("abstain", None)
        if names_first < p.first_bias:
            return Judgement("ok", 1.0)
        first, second = utility(pair.first), utility(pair.second)
        if max(first, second) < faults.skip_below:
            return Judgement("abstain", None)
        difference = utility(pair.first, faults.gamma) - utility(pair.second, faults.gamma)
        if (faults.tie_band and abs(first - second) <= faults.tie_band) or (
            difference == 0 and math.isinf(faults.beta)
        ):
            return Judgement("tie", 0.5)
        prefers_first = difference > 0 if math.isinf(faults.beta) else draw < _sigmoid(faults.beta * difference)
        return Judgement("ok", float(prefers_first != (errs < faults.error_rate)))


class OracleUtility:
    """The value of a segment's text by the adapter's oracle: the sum over its steps.

    Args:
        adapter: must have an oracle.
        captions: of single steps, besides those that the adapter lists.
    """

    def __init__(self, adapter: EnvAdapter, captions: Collection[str] = ()) -> None:
        self._adapter = adapter
        self._reader = StepReader({*captions, *(adapter.describe(event) for event in adapter.events())})

    def __call__(self, text: str, gamma: float = 1.0) -> float:
        """Return Σ γ^(H - t) r_t; with gamma 1 the result is bit-identical for any order of the same steps."""
        weights: dict[str, float] = {}
        exponent = 0
        for caption, times in reversed(self._reader.steps(text)):
            run = times if gamma == 1 else gamma**exponent * (1 - gamma**times) / (1 - gamma)
            weights[caption] = weights.get(caption, 0.0) + run
            exponent += times
        return math.fsum(weight * (self._adapter.oracle(caption) or 0.0) for caption, weight in weights.items())


def _sigmoid(x: float) -> float:
    return (1 + math.tanh(x / 2)) / 2


class StepReader:
    """Inverts `laurel.envs.captioner.collapse`.

    Args:
        captions: of single steps. A text that does not consist of them counts as one step.

    >>> StepReader(["You turn.", "You stop. You wait."]).steps("You turn. (x2) You stop. You wait.")
    (('You turn.', 2), ('You stop. You wait.', 1))
    """

    def __init__(self, captions: Iterable[str]) -> None:
        self._captions = frozenset(captions) - {""}
        self._longest = max((caption.count(" ") for caption in self._captions), default=0) + 2  # of "caption (x2)"
        self.steps = lru_cache(REMEMBERED)(self._steps)

    def _steps(self, text: str) -> tuple[tuple[str, int], ...]:
        """Return (caption, repetitions) in order; if ambiguous, the parse with the fewest parts."""
        if not text:
            return ()
        if text in self._captions:
            return ((text, 1),)
        ends = [i for i, char in enumerate(text) if char == " "] + [len(text)]
        best: dict[int, tuple[tuple[str, int], ...]] = {-1: ()}  # position of the space before -> parts read so far
        for number, end in enumerate(ends):
            starts = [*ends[max(0, number - self._longest) : number]]
            for start in [-1, *starts] if number < self._longest else starts:
                if start not in best:
                    continue
                part = self._part(text[start + 1 : end])
                if part is not None and (end not in best or len(best[start]) + 1 < len(best[end])):
                    best[end] = (*best[start], part)
        return best.get(len(text), ((text, 1),))

    def _part(self, text: str) -> tuple[str, int] | None:
        if text in self._captions:
            return text, 1
        repeated = _REPEATED.match(text)
        return (repeated[1], int(repeated[2])) if repeated and repeated[1] in self._captions else None


class ScriptedTexts(TextJudge):
    """Judges texts by the environment's progress and success, with the teacher's error rate.

    Each error is drawn with a seed from the judged text, as for pairs.
    """

    def __init__(self, params: ScriptedParams, adapter: EnvAdapter, seed: int, captions: Collection[str]) -> None:
        self._adapter, self._seed, self._captions = adapter, seed, captions
        self._error_rate = Faults.of(params).error_rate
        self.name = f"scripted (simulated, errors {self._error_rate:g})"

    @cached_property
    def _utility(self) -> OracleUtility:
        return OracleUtility(self._adapter, self._captions)

    def utility(self, texts: Sequence[str]) -> DoubleArray:
        """Return the texts' progress, without errors."""
        return np.array([self._utility(text) for text in texts], dtype=np.float64)

    def helpful(self, texts: Sequence[str]) -> BoolArray:
        seed = derive_seed(self._seed, "helpful")
        right = [(self._adapter.oracle(text) or 0) > 0 for text in texts]
        return np.array(right, dtype=np.bool_) != self._wrong(texts, seed)

    def scores(self, texts: Sequence[str], groups: IntArray) -> DoubleArray:
        """Return the progress, from 0 to HIGHEST; an error gives the score of a random text of the group, or of any
        text for groups of one.
        """
        progress = self.utility(texts)
        span = progress.max() - progress.min()
        truth = (progress - progress.min()) / span * HIGHEST if span else np.zeros(len(texts))
        scores = truth[groups]
        for number, group in enumerate(groups.tolist()):
            rng = generator(self._seed, "score", *(texts[i] for i in group))
            candidates = group if len(group) > 1 else range(len(texts))
            wrong = rng.random(len(group)) < self._error_rate
            scores[number] = np.where(wrong, truth[rng.choice(candidates, len(group))], scores[number])
        return scores

    def without_outcomes(self) -> str | None:
        if self._adapter.success_words or self._adapter.success_captions():
            return None
        return f"{self._adapter.env_id} has no captions of success, so the true answer is unknown."

    def reached(self, texts: Sequence[str]) -> BoolArray:
        right = np.array([self._adapter.says_success(text) for text in texts], dtype=np.bool_)
        return right != self._wrong(texts, self._seed, "outcome")

    def _wrong(self, texts: Sequence[str], seed: int, *purpose: str) -> BoolArray:
        drawn = [generator(seed, *purpose, text).random() for text in texts]
        return np.array(drawn, dtype=np.float64) < self._error_rate


def same(texts: Sequence[str]) -> BoolArray:
    """Return which of K texts are identical (K, K)."""
    return np.array([[text == other_text for other_text in texts] for text in texts], dtype=np.bool_)


class ScriptedKind(AnnotatorKind):
    """The annotator `scripted`."""

    Params = ScriptedParams
    simulated = True

    def make(
        self, adapter: EnvAdapter, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
    ) -> ScriptedAnnotator:
        """Make the teacher; errors as in `ScriptedAnnotator`."""
        return ScriptedAnnotator(self.section, adapter, derive_seed(seed, "scripted"), captions)

    def text_judge(self, adapter: EnvAdapter, seed: int, captions: Collection[str] = ()) -> ScriptedTexts:
        return ScriptedTexts(self.section, adapter, seed, captions)

    def alike(self) -> Alike:
        return same

    def code_writer(self, adapter: EnvAdapter, seed: int, samples: int) -> SimulatedWriter:
        return SimulatedWriter(adapter, seed, samples)

    def check(self, adapter: EnvAdapter) -> None:
        """Refuse an environment without hand-written progress."""
        self.make(adapter, 0)

    @property
    def advice(self) -> Advice:
        faults = "a teacher with fewer faults (annotate.scripted)"
        return Advice(
            asking=faults,
            aim=faults,
            ties=f"{faults}, or collect steps in which captions show progress (collect.steps, collect.policies)",
        )


ANNOTATOR = ScriptedKind
