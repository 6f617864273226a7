"""Questions with known answers: from the adapter, consistent with its oracle, scored with an interval that covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from importlib import import_module
from pkgutil import iter_modules
from typing import ClassVar

import pytest
from scipy.stats import binomtest

import laurel.envs
from laurel.envs import EnvAdapter, adapter_for
from laurel.envs.minigrid_tasks import _TASKS
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.probe import ask, has_probe, load_probe, probed_ids
from laurel.params import EnvParams

IDS = (
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-UnlockPickup-v0",
    "MiniGrid-BlockedUnlockPickup-v0",
    "MiniGrid-LavaCrossingS9N1-v0",
    "MiniGrid-LavaGapS5-v0",
    "MiniGrid-DistShift1-v0",
    "Blackjack-v1",
    "laurel/BallGame-v0",
    "laurel/Crafting-v0",
    "laurel/GridWorld-v0",
    "FrozenLake-v1",
    "Taxi-v3",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "CartPole-v1",
    "Acrobot-v1",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "FrozenLake8x8-v1",
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-SimpleCrossingS9N1-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",
    "MiniGrid-MultiRoom-N4-S5-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "MiniGrid-Unlock-v0",
    "MiniGrid-RedBlueDoors-6x6-v0",
    "MiniGrid-ObstructedMaze-1Dlhb-v0",
    "MiniGrid-LockedRoom-v0",
    "MiniGrid-Fetch-5x5-N2-v0",
    "MiniGrid-GoToDoor-5x5-v0",
    "MiniGrid-GoToObject-6x6-N2-v0",
    "MiniGrid-PutNear-6x6-N2-v0",
    "MiniGrid-MemoryS7-v0",
)


@pytest.mark.parametrize("env_id", IDS)
def test_probe_captions_are_the_adapters_and_its_oracle_agrees(env_id: str) -> None:
    adapter = adapter_for(EnvParams(id=env_id))
    texts = {adapter.describe(event) for event in adapter.events()}
    probe = load_probe(env_id)
    assert len(probe.questions) >= 7
    assert len({frozenset((q.first, q.second)) for q in probe.questions}) == len(probe.questions)
    for question, answer in zip(probe.questions, probe.expected, strict=True):
        assert {question.first, question.second} <= texts
        first, second = adapter.oracle(question.first), adapter.oracle(question.second)
        assert first is not None
        assert second is not None
        assert (first > second) if answer == "first" else (second > first), question
        told = adapter.example
        assert told is None or {question.first, question.second} != {told.better, told.worse}, "a prompt says it"


def test_every_pattern_is_tried() -> None:
    assert all(any(fnmatch(env_id, pattern) for env_id in IDS) for pattern in probed_ids())
    assert all(sum(fnmatch(env_id, pattern) for pattern in probed_ids()) == 1 for env_id in IDS)


def test_every_task_with_its_own_text_has_questions() -> None:
    env_ids = {pattern.replace("*", "0") for pattern in _TASKS}
    for file in iter_modules(laurel.envs.__path__):
        for member in vars(import_module(f"laurel.envs.{file.name}")).values():
            if isinstance(member, type) and issubclass(member, EnvAdapter):
                env_ids |= {pattern.replace("*", "0") for pattern in member.ids}
    without = {env_id for env_id in env_ids if not has_probe(env_id)}
    games = {
        "laurel/Ultimatum-v0",
        "laurel/MatrixGame-v0",
        "laurel/Negotiation-v0",
    }  # what is right there depends on the objective
    unlisted = {"0", "MiniGrid-0", "BabyAI-0", "laurel/NetHack-v0", "laurel/Completions-v0", "laurel/Tasks-v0"}
    assert without - games == unlisted, "of which nothing is known beforehand"
    assert len(env_ids) > 25


def test_always_naming_one_side_scores_a_half() -> None:
    probe = load_probe("Blackjack-v1")
    assert probe.score(["first"] * len(probe.questions)).fraction == 0.5
    assert probe.score(["second"] * len(probe.questions)).fraction == 0.5


@pytest.mark.parametrize("right", range(11))
def test_the_interval_is_wilsons(right: int) -> None:
    probe = load_probe("Blackjack-v1")
    n = len(probe.expected)
    assert n == 10
    answers = [known if i < right else None for i, known in enumerate(probe.expected)]
    score = probe.score(answers)
    interval = binomtest(right, n).proportion_ci(method="wilson")
    assert (score.right, score.of, score.fraction) == (right, n, right / n)
    assert (score.low, score.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert 0 <= score.low <= score.fraction <= score.high <= 1


def test_a_missing_answer_is_wrong() -> None:
    probe = load_probe("Taxi-v3")
    for answer in ("tie", "abstain", None):
        assert probe.score([answer] * len(probe.expected)).right == 0  # type: ignore[list-item]
    with pytest.raises(ValueError, match="longer"):
        probe.score(["first"])


def test_an_environment_without_questions() -> None:
    with pytest.raises(AnnotationError, match=r"answers for Pendulum-v1; they come with .* laurel annotate review"):
        load_probe("Pendulum-v1")


# -- asking -------------------------------------------------------------------------------------------------------
class Judge:
    """Answers by a rule."""

    name, simulated = "judge", True
    usage: ClassVar[dict[str, int]] = {}

    def __init__(self, rule: Callable[[Pair], Judgement]) -> None:
        self.rule = rule
        self.asked: list[Pair] = []

    def prepare(self, questions: Sequence[Pair]) -> None:
        """Nothing to get ready."""

    def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
        for question in questions:
            self.asked.append(question)
            yield self.rule(question)


ENV = "MiniGrid-DoorKey-5x5-v0"
N = 10


def knowing(question: Pair) -> Judgement:
    probe = load_probe(ENV)
    known = dict(zip(probe.questions, probe.expected, strict=True))
    if question in known:
        return Judgement("ok", float(known[question] == "first"))
    return Judgement("ok", float(known[Pair(question.second, question.first)] == "second"))


def inverse(question: Pair) -> Judgement:
    return Judgement("ok", 1.0 - (knowing(question).p_first or 0.0))


def always(status: str, p_first: float | None) -> Callable[[Pair], Judgement]:
    return lambda _: Judgement(status, p_first)  # type: ignore[arg-type]


def hesitant(question: Pair) -> Judgement:
    """Lean to the right side, but name the first more often than not."""
    p = knowing(question).p_first
    return Judgement("ok", 0.9 if p else 0.4)


@pytest.mark.parametrize(
    ("rule", "right", "given"),
    [
        (knowing, N, None),
        (inverse, 0, None),
        (always("ok", 1.0), 0, ("first", "second")),
        (always("ok", 0.0), 0, ("second", "first")),
        (always("tie", 0.5), 0, ("tie", "tie")),
        (always("abstain", None), 0, ("abstain", "abstain")),
        (always("api_failed", None), 0, ("api_failed", "api_failed")),
        (hesitant, N, None),
    ],
    ids=["knowing", "inverse", "first", "second", "tie", "abstain", "failed", "hesitant"],
)
def test_scores_of_judges_with_known_rules(
    rule: Callable[[Pair], Judgement], right: int, given: tuple[str, str] | None
) -> None:
    judge = Judge(rule)
    findings = ask(judge, load_probe(ENV))
    assert (findings.score.right, findings.score.of) == (right, N)
    assert len(set(judge.asked)) == len(judge.asked) == 2 * N, "each in both orders"
    if given is not None:
        assert {answer.given for answer in findings.answers} == {given}
    assert sum(answer.right for answer in findings.answers) == right


def test_one_order_is_enough_where_the_other_has_no_answer() -> None:
    probe = load_probe(ENV)
    rule = lambda q: knowing(q) if q in probe.questions else Judgement("parse_failed", None)  # noqa: E731
    findings = ask(Judge(rule), probe)
    assert findings.score.right == N
    assert {answer.given[1] for answer in findings.answers} == {"parse_failed"}


def test_the_table_lists_wrong_answers() -> None:
    wrong = load_probe(ENV).questions[2]
    findings = ask(Judge(lambda q: inverse(q) if {q.first, q.second} == {wrong.first, wrong.second} else knowing(q)),
                   load_probe(ENV))  # fmt: skip
    told = findings.table()
    assert told.count("WRONG") == 1
    assert "  3  WRONG  expected first, given second\n" in told
    assert "9 of 10 right: 90% (95% interval 60% to 98%)" in told
    assert all(len(line) <= 100 for line in told.splitlines())
    assert all(question.first in told for question in load_probe(ENV).questions)


def test_which_environments_have_questions() -> None:
    assert has_probe(ENV)
    assert not has_probe("Pendulum-v1")
