from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binomtest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import collapse
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotators.scripted import TEACHERS, Faults, OracleUtility, ScriptedAnnotator
from laurel.params import EnvParams
from laurel.params.judges import ScriptedParams
from laurel.seeding import generator

GOOD, BAD = "You reach the goal.", "You turn."
MANY = 4000
STEPS = [f"step {value}" for value in (-1, 0, 1, 2, 0.1, 0.2, 0.3)]


def make(adapter: EnvAdapter, seed: int = 0, **params: object) -> ScriptedAnnotator:
    return ScriptedAnnotator(ScriptedParams.model_validate(params), adapter, seed, STEPS)


class Ladder(EnvAdapter):
    """Progress is the number that a caption ends with."""

    env_id = "Ladder-v0"

    def __init__(self) -> None:
        pass

    def oracle(self, caption: str) -> float:
        return float(caption.rpartition(" ")[2] or 0)


def questions(n: int = MANY) -> list[Pair]:
    """Different questions, the better text first in half of them."""
    rng = np.random.default_rng(0)
    better_first = rng.random(n) < 0.5
    return [Pair(f"{i} good 1", f"{i} bad 0") if b else Pair(f"{i} bad 0", f"{i} good 1")
            for i, b in enumerate(better_first)]  # fmt: skip


def right(question: Pair) -> float:
    return float(question.first.endswith("1"))


def check_rate(hits: int, trials: int, rate: float) -> None:
    assert binomtest(hits, trials, rate).pvalue > 1e-4, (hits, trials, rate)


def test_without_faults_it_is_the_oracle(door_key: EnvAdapter) -> None:
    forth, back, tie = make(door_key).annotate([Pair(GOOD, BAD), Pair(BAD, GOOD), Pair(BAD, BAD)])
    assert (forth, back) == (Judgement("ok", 1.0), Judgement("ok", 0.0))
    assert tie == Judgement("tie", 0.5)
    asked = questions(200)
    assert [j.p_first for j in make(Ladder()).annotate(asked)] == [right(q) for q in asked]


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_it_errs_at_the_chosen_rate(rate: float) -> None:
    asked = questions()
    judged = list(make(Ladder(), error_rate=rate).annotate(asked))
    assert {j.status for j in judged} == {"ok"}
    check_rate(sum(j.p_first != right(q) for j, q in zip(judged, asked, strict=True)), MANY, rate)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_it_abstains_at_the_chosen_rate(rate: float) -> None:
    asked = questions()
    judged = list(make(Ladder(), abstain_rate=rate).annotate(asked))
    silent = [j for j in judged if j.status == "abstain"]
    assert {j.p_first for j in silent} == {None}
    assert all(j.p_first == right(q) for j, q in zip(judged, asked, strict=True) if j.status != "abstain")
    check_rate(len(silent), MANY, rate)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_the_text_shown_first_is_named_at_the_chosen_rate(rate: float) -> None:
    asked = [q for q in questions(2 * MANY) if right(q) == 0]
    judged = list(make(Ladder(), first_bias=rate).annotate(asked))
    check_rate(sum(j.p_first == 1.0 for j in judged), len(asked), rate)
    rightly_first = [q for q in questions(500) if right(q) == 1]
    assert all(j.p_first == 1.0 for j in make(Ladder(), first_bias=rate).annotate(rightly_first))


def test_faults_are_independent_of_each_other() -> None:
    """Of those that it answers, errors are as frequent as ever; and an error is not a habit of a side."""
    asked = questions(2 * MANY)
    judged = list(make(Ladder(), error_rate=0.2, abstain_rate=0.4).annotate(asked))
    answered = [(j, q) for j, q in zip(judged, asked, strict=True) if j.status == "ok"]
    check_rate(len(answered), len(asked), 0.6)
    for side in (0.0, 1.0):
        of_side = [j.p_first != right(q) for j, q in answered if right(q) == side]
        check_rate(sum(of_side), len(of_side), 0.2)


def test_errors_apply_to_answers_without_position_bias() -> None:
    asked = [q for q in questions(2 * MANY) if right(q) == 1]
    judged = list(make(Ladder(), error_rate=0.3, first_bias=0.3).annotate(asked))
    check_rate(sum(j.p_first == 0.0 for j in judged), len(asked), 0.7 * 0.3)


@pytest.mark.parametrize("side", ["first", "second"])
def test_faults_are_of_a_question_not_of_a_text(side: str) -> None:
    """One text against a thousand others is misjudged as often as any."""
    others = [f"{i} bad 0" for i in range(1000)]
    asked = [Pair("good 1", other) if side == "first" else Pair(other, "good 1") for other in others]
    judged = list(make(Ladder(), error_rate=0.3).annotate(asked))
    check_rate(sum(j.p_first != right(q) for j, q in zip(judged, asked, strict=True)), 1000, 0.3)


@pytest.mark.parametrize(("band", "status"), [(0.0, "ok"), (0.99, "ok"), (1.0, "tie"), (5.0, "tie")])
def test_tie_band(band: float, status: str) -> None:
    assert {j.status for j in make(Ladder(), tie_band=band).annotate(questions(50))} == {status}


def test_the_same_question_has_the_same_answer_whenever_it_is_asked() -> None:
    asked = questions(300)
    faults = {"error_rate": 0.3, "abstain_rate": 0.2, "first_bias": 0.1}
    annotator = make(Ladder(), **faults)
    answers = dict(zip(asked, annotator.annotate(asked), strict=True))
    assert dict(zip(asked[::-1], make(Ladder(), **faults).annotate(asked[::-1]), strict=True)) == answers
    assert list(annotator.annotate(asked)) == list(answers.values())
    assert list(make(Ladder(), seed=1, **faults).annotate(asked)) != list(answers.values())


def test_the_same_in_another_process() -> None:
    """Python's own hash differs from process to process; faults must not depend on it."""
    code = "from laurel.seeding import generator; print(generator(3, 'a', 'b').random(3).tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(generator(3, "a", "b").random(3).tolist())


def test_the_name_says_that_it_is_simulated_and_its_errors() -> None:
    annotator = make(Ladder(), error_rate=0.25, abstain_rate=0.125, first_bias=0.5, tie_band=2.0)
    assert annotator.simulated
    assert "simulated" in annotator.name
    assert all(rate in annotator.name for rate in ("0.25", "0.125", "0.5", "2"))
    assert make(Ladder()).name == "scripted (simulated: oracle teacher)"


def test_without_an_oracle_it_is_refused() -> None:
    adapter = adapter_for(EnvParams(id="Pendulum-v1"))
    with pytest.raises(AnnotationError, match=r"annotate\.annotator: scripted .* Pendulum-v1 has none\. Use the embed"):
        make(adapter)


# -- B-Pref's teachers (arXiv 2111.03026) --------------------------------------------------------------------------
def segment(*values: float) -> str:
    return collapse([f"step {value:g}" for value in values])


def test_each_teacher_has_only_its_published_fault() -> None:
    assert set(TEACHERS) == {"oracle", "mistake", "skip", "equal", "myopic", "stochastic"}
    for name, faults in TEACHERS.items():
        assert Faults.of(ScriptedParams(teacher=name)) == faults  # type: ignore[arg-type]
        others = [field for field in Faults.__slots__ if getattr(faults, field) != getattr(Faults(), field)]
        assert len(others) == (name != "oracle")
        assert f"{name} teacher" in make(Ladder(), teacher=name).name


def test_a_rate_that_is_given_counts_for_any_teacher() -> None:
    assert Faults.of(ScriptedParams(teacher="mistake", error_rate=0.0)) == Faults()
    assert Faults.of(ScriptedParams(teacher="myopic", gamma=0.5, beta=2.0)) == Faults(gamma=0.5, beta=2.0)
    assert Faults.of(ScriptedParams(error_rate=0.3, tie_band=1.0)) == Faults(error_rate=0.3, tie_band=1.0)


def test_the_mistake_teacher_flips_a_tenth_of_labels() -> None:
    asked = questions()
    judged = make(Ladder(), teacher="mistake").annotate(asked)
    check_rate(sum(j.p_first != right(q) for j, q in zip(judged, asked, strict=True)), MANY, 0.1)


@pytest.mark.parametrize(
    ("first", "second", "skipped"),
    [((0, 0), (0,), True), ((0, 0.1), (0,), False), ((-1, 0), (2,), False), ((0,), (-1,), True), ((1, -1), (0,), True)],
)
def test_the_skip_teacher_skips_pairs_without_progress(
    first: tuple[float, ...], second: tuple[float, ...], skipped: bool
) -> None:
    for texts in ((first, second), (second, first)):
        (judged,) = make(Ladder(), teacher="skip").annotate([Pair(segment(*texts[0]), segment(*texts[1]))])
        assert (judged.status == "abstain") == skipped


@pytest.mark.parametrize(
    ("second", "band", "tie"),
    [((0.3,), None, True), ((0.2,), None, True), ((0.1,), None, False), ((0.1,), 0.3, True), ((0.3, 0.1), 0.05, False)],
)
def test_the_equal_teacher_calls_small_differences_ties(
    second: tuple[float, ...], band: float | None, tie: bool
) -> None:
    (judged,) = make(Ladder(), teacher="equal", tie_band=band).annotate([Pair(segment(0.3), segment(*second))])
    assert (judged == Judgement("tie", 0.5)) == tie


def test_the_equal_teacher_looks_at_the_sum_and_not_at_the_last_steps() -> None:
    question = Pair(segment(1, 0, 0, 0), segment(0, 0, 0, 1))
    assert next(make(Ladder(), teacher="equal", gamma=0.5).annotate([question])).status == "tie"
    assert next(make(Ladder(), teacher="myopic", gamma=0.5).annotate([question])) == Judgement("ok", 0.0)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("values", [(1,), (1, 1, 1), (1, 0, 0, 2), (0.1, 0.1, 0.3, -1, -1, 0.1), ()])
def test_the_myopic_utility_is_the_discounted_sum_over_the_steps(values: tuple[float, ...], gamma: float) -> None:
    steps = len(values)
    slow = sum(gamma ** (steps - t) * value for t, value in enumerate(values, start=1))
    assert OracleUtility(Ladder(), STEPS)(segment(*values), gamma) == pytest.approx(slow, abs=1e-12)


def test_the_myopic_teacher_weights_the_last_steps() -> None:
    early, late = segment(2, *[0] * 9), segment(*[0] * 9, 1)
    assert next(make(Ladder()).annotate([Pair(early, late)])).p_first == 1.0
    assert next(make(Ladder(), teacher="myopic").annotate([Pair(early, late)])).p_first == 0.0  # 2 * .9^9 = .77
    assert next(make(Ladder(), teacher="myopic", gamma=0.95).annotate([Pair(early, late)])).p_first == 1.0


def test_the_same_steps_in_another_order_are_worth_the_same() -> None:
    """To the last bit: 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1, but neither is better."""
    for gamma in (None, 1.0):
        question = Pair(segment(0.1, 0.2, 0.3, 0.1), segment(0.3, 0.1, 0.1, 0.2))
        assert next(make(Ladder(), gamma=gamma).annotate([question])).status == "tie"


@pytest.mark.parametrize(("beta", "better", "worse"), [(1.0, (1,), (0,)), (1.0, (1, 1), (0,)), (0.5, (2, 1), (0, 1))])
def test_the_stochastic_teacher_draws_by_bradley_and_terry(
    beta: float, better: tuple[float, ...], worse: tuple[float, ...]
) -> None:
    expected = 1 / (1 + math.exp(-beta * (sum(better) - sum(worse))))
    for turned in (False, True):
        texts = [segment(*worse), segment(*better)] if turned else [segment(*better), segment(*worse)]
        asked = Pair(*texts)
        judged = [next(make(Ladder(), seed=s, teacher="stochastic", beta=beta).annotate([asked])) for s in range(1500)]
        assert {j.status for j in judged} == {"ok"}
        check_rate(sum(j.p_first == float(not turned) for j in judged), len(judged), expected)


def test_the_stochastic_teacher_is_undecided_between_equals() -> None:
    asked = [Pair(f"{i} a 1", f"{i} b 1") for i in range(MANY)]
    judged = list(make(Ladder(), teacher="stochastic").annotate(asked))
    check_rate(sum(j.p_first == 1.0 for j in judged), MANY, 0.5)


def test_draws_mistakes_and_sides_are_independent() -> None:
    p = 1 / (1 + math.exp(-1))
    asked = questions()
    judged = make(Ladder(), teacher="stochastic", error_rate=0.2).annotate(asked)
    rights = [j.p_first == right(q) for j, q in zip(judged, asked, strict=True)]
    check_rate(sum(rights), MANY, 0.8 * p + 0.2 * (1 - p))


def test_a_huge_difference_does_not_overflow() -> None:
    asked = Pair("good 1e308", "bad -1e308")
    assert next(make(Ladder(), teacher="stochastic", beta=1e300).annotate([asked])) == Judgement("ok", 1.0)


def test_captions_within_a_segment_are_distinguished(door_key: EnvAdapter) -> None:
    utility = OracleUtility(door_key)
    assert utility(collapse([GOOD, BAD, BAD, GOOD])) == 2.0
    assert utility(collapse([GOOD, GOOD, BAD, BAD]), 0.5) == pytest.approx(0.5**2 + 0.5**3)
