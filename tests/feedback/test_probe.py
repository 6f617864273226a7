"""Questions with known answers: said by the room, agreed to by its oracle, scored with an honest interval."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest
from scipy.stats import binomtest

from laurel.envs import room_for
from laurel.errors import AnnotationError
from laurel.feedback.probe import load_probe, probed_ids
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
    "FrozenLake-v1",
    "Taxi-v3",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "CartPole-v1",
)


@pytest.mark.parametrize("env_id", IDS)
def test_the_room_says_every_caption_and_its_oracle_agrees(env_id: str) -> None:
    room = room_for(EnvParams(id=env_id))
    texts = {room.describe(event) for event in room.events()}
    probe = load_probe(env_id)
    assert len(probe.questions) >= 8
    assert len({frozenset((q.first, q.second)) for q in probe.questions}) == len(probe.questions)
    for question, answer in zip(probe.questions, probe.expected, strict=True):
        assert {question.first, question.second} <= texts
        first, second = room.oracle(question.first), room.oracle(question.second)
        assert first is not None
        assert second is not None
        assert (first > second) if answer == "first" else (second > first), question


def test_every_pattern_is_tried() -> None:
    assert all(any(fnmatch(env_id, pattern) for env_id in IDS) for pattern in probed_ids())
    assert all(sum(fnmatch(env_id, pattern) for pattern in probed_ids()) == 1 for env_id in IDS)


def test_naming_a_side_earns_a_half() -> None:
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


def test_what_is_no_answer_is_wrong() -> None:
    probe = load_probe("Taxi-v3")
    for answer in ("tie", "abstain", None):
        assert probe.score([answer] * len(probe.expected)).right == 0  # type: ignore[list-item]
    with pytest.raises(ValueError, match="longer"):
        probe.score(["first"])


def test_an_environment_without_questions() -> None:
    with pytest.raises(AnnotationError, match=r"known answers for Pendulum-v1\. There are for Blackjack-v\*,"):
        load_probe("Pendulum-v1")
