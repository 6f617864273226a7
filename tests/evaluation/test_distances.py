"""EPIC is 0 for rewards that differ by shaping, and has known values otherwise; rankings are compared by episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from laurel.arrays import FloatArray
from laurel.data.trajectories import finished, read_episodes
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.errors import LaurelError, TrainingError
from laurel.evaluation.distances import (
    RankPairs,
    canonical,
    distances,
    matrix,
    pearson_distance,
    rank_distance,
    table,
    tied_pairs,
    without_rounding,
)
from laurel.llm.budget import BudgetError
from laurel.llm.chat import RefusedError
from laurel.params import EnvParams
from laurel.rewards.base import UNPAID, Reward, Steps
from tiny_project import UNTRACKED, Project

GAMMA = 0.9
Pays = Callable[[Transitions], np.ndarray]
POTENTIAL = np.array([3.0, -1.0, 0.5, 2.0])
TABLE = np.random.default_rng(1).normal(size=(4, 2, 4))


def sampled(n: int, seed: int) -> Transitions:
    rng = np.random.default_rng(seed)
    nothing = np.zeros(n, dtype=np.bool_)
    before, after = rng.integers(4, size=(2, n, 1))
    return Transitions(before, rng.integers(2, size=n), np.zeros(n, np.float32), after, nothing, nothing)


def base(steps: Transitions) -> np.ndarray:
    return TABLE[steps.observation[:, 0], steps.action, steps.next_observation[:, 0]]


def shaping(steps: Transitions) -> np.ndarray:
    return GAMMA * POTENTIAL[steps.next_observation[:, 0]] - POTENTIAL[steps.observation[:, 0]]


def other(steps: Transitions) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(4, 2, 4))[
        steps.observation[:, 0], steps.action, steps.next_observation[:, 0]
    ]


def epic(first: Pays, second: Pays) -> float | None:
    steps, drawn = sampled(300, 3), sampled(40, 4)
    return pearson_distance(canonical(first, steps, drawn, GAMMA), canonical(second, steps, drawn, GAMMA))


@pytest.mark.parametrize(
    ("changed", "distance"),
    [
        (lambda steps: base(steps), 0.0),
        (lambda steps: 3 * base(steps) + 7, 0.0),
        (lambda steps: base(steps) + shaping(steps), 0.0),
        (lambda steps: 0.5 * base(steps) - 4 * shaping(steps) + 1, 0.0),
        (lambda steps: -base(steps), 1.0),
        (lambda steps: shaping(steps), None),
        (lambda steps: np.ones(len(steps)), None),
    ],
)
def test_potential_shaping_scale_and_a_constant_make_no_difference(changed: Pays, distance: float | None) -> None:
    found = epic(base, changed)
    if distance is None:
        assert found is None
    else:
        assert found == pytest.approx(distance, abs=1e-6)


def test_the_canonical_reward_is_the_formula_written_out() -> None:
    steps, drawn = sampled(20, 5), sampled(7, 6)

    def written_out(reward: np.ndarray) -> list[float]:
        values = []
        for s, a, x in zip(steps.observation[:, 0], steps.action, steps.next_observation[:, 0], strict=True):
            value = reward[s, a, x]
            for action, state in zip(drawn.action, drawn.next_observation[:, 0], strict=True):
                value += (GAMMA * reward[x, action, state] - reward[s, action, state]) / len(drawn)
            values.append(value)
        return values

    np.testing.assert_allclose(canonical(base, steps, drawn, GAMMA), written_out(TABLE))
    assert 0.4 < (epic(base, other) or 0) < 0.95
    assert epic(base, other) == epic(other, base)


def test_a_transition_that_is_made_up_has_neither_reward_nor_end() -> None:
    """Captions may depend on both, but the drawn transition's reward and end belong to another state."""
    steps, drawn = sampled(20, 5), sampled(7, 6)
    ends = np.ones(7, dtype=np.bool_)
    rewarded = replace(drawn, reward=np.ones(7, np.float32), terminated=ends, truncated=ends)

    def of_the_end(steps: Transitions) -> np.ndarray:
        return base(steps) + steps.observation[:, 0] * (steps.reward + 10 * steps.terminated + 100 * steps.truncated)

    found = canonical(of_the_end, steps, rewarded, GAMMA)
    np.testing.assert_allclose(found, canonical(base, steps, drawn, GAMMA))


def test_distances_of_known_cases() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert pearson_distance(a, np.array([1.0, -1.0, -1.0, 1.0])) == pytest.approx(sqrt(0.5))
    assert rank_distance(a, a**3) == 0
    assert rank_distance(a, -a) == 1
    assert rank_distance(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(1 / 6), "one pair of six"
    assert rank_distance(a, np.ones(4)) is None
    few = np.array([0.0, 0.0, 0.0, 1.0])
    assert (rank_distance(a, few), rank_distance(a, few, least=1), rank_distance(a, few, least=2)) == (0, 0, None)
    found = matrix({"a": a, "b": -a, "c": np.ones(4)}, rank_distance)
    assert found == {"a": {"b": 1.0, "c": None}, "b": {"c": None}}
    assert table(found) == [("a", []), ("b", [1.0]), ("c", [None, None])]


def test_ties_do_not_count_as_half_an_opposite_order() -> None:
    """A sparse reward gives most episodes the same return; (1 - tau-b) / 2 would be 0.37 instead of an eighth."""
    rng = np.random.default_rng(0)
    for a, b in ((rng.integers(3, size=40), rng.integers(5, size=40)), (rng.normal(size=40), rng.integers(2, size=40))):
        sides = [np.sign(totals[:, None] - totals[None])[np.triu_indices(40, 1)] for totals in (a, b)]
        opposite, alike = int((sides[0] * sides[1] < 0).sum()), int((sides[0] * sides[1] == 0).sum())
        found = RankPairs.of(a.astype(np.float64), b.astype(np.float64))
        assert (found.discordant, found.tied) == (opposite, alike)
        assert found.concordant == 780 - opposite - alike
    sparse, dense = np.array([0.0, 0.0, 0.0, 1.0, 1.0]), np.array([1.0, 2.0, 4.0, 3.0, 5.0])
    assert rank_distance(sparse, dense) == pytest.approx(1 / 6), "of six pairs with a different return"
    assert tied_pairs(sparse, dense) == pytest.approx(0.4)
    assert tied_pairs(np.array([0.1 + 0.2 + 0.3, 1.0]), np.array([0.3 + 0.2 + 0.1, 1.0])) == 0
    assert tied_pairs(np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]), np.arange(2.0)) == 1, "floats added in two orders"
    assert tied_pairs(np.array([2e6, 100, 101, 102]), np.arange(4.0)) == 0


def test_rounding_of_normalised_rewards_makes_no_difference() -> None:
    third, step = np.float64(np.float32(np.rint(2**20 / 3) / 2**20)), 2.0**-20
    sums = np.array([300 * third, 300 * third + 150 * step, 300 * third + 5000 * step])
    found = without_rounding(sums, 300)
    assert found.tolist() == [sums[0], sums[0], sums[2]]


def test_rankings_are_of_episodes_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cut episode, what it was paid says how much of it was collected."""
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": 400})
    project.run("collect")
    adapter = adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    steps, episode = read_episodes(project.output("collect"), 10_000)
    last = np.flatnonzero(np.diff(episode, append=-1))
    ended = np.zeros(len(steps), np.bool_)
    ended[last[:-1]] = True  # all but the last one
    reward = np.zeros(len(steps), np.float32)
    reward[last] = np.arange(len(last))
    planted = replace(steps, truncated=ended, reward=reward)
    assert finished(planted, episode).tolist() == [True] * (len(last) - 1) + [False]
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: (planted, episode))
    pay = np.bincount(episode, _paid_alone(planted, adapter)).astype(np.float64)
    totals = np.arange(len(last), dtype=np.float64)
    found, _ = distances({"long": ByCaption(1.0)}, project.output("collect"), adapter, 0.99, 0)
    assert found["rank"]["environment"]["long"] == pytest.approx(rank_distance(totals[:-1], pay[:-1]), abs=1e-6)
    assert rank_distance(totals[:-1], pay[:-1]) != pytest.approx(rank_distance(totals, pay), abs=1e-3)


def _paid_alone(steps: Transitions, adapter: EnvAdapter) -> np.ndarray:
    captioner = Captioner(adapter)
    ids = captioner.ids(steps)
    lengths = np.array([len(text) for text in captioner.texts], dtype=np.float64)
    return np.where(lengths > lengths.min(), lengths, 0.0)[ids]


class OnceAnEpisode:
    """Pays what it never paid before in the episode."""

    threshold, unseen = 0.0, 0

    def begin(self, n_envs: int) -> None:
        self.paid: list[set[int]] = [set() for _ in range(n_envs)]

    def pay(self, steps: Steps) -> FloatArray:
        found = np.full(steps.captions.shape, UNPAID)
        for t, ids in enumerate(steps.captions.tolist()):
            for n, caption in enumerate(ids):
                found[t, n] = UNPAID if caption in self.paid[n] else 1.0
                self.paid[n].add(caption)
                if steps.terminated[t, n] or steps.truncated[t, n]:
                    self.paid[n].clear()
        return found


class ByCaption:
    """Rewards each caption by its length times a factor; 0 for the shortest."""

    threshold, unseen = 0.0, 0

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def begin(self, n_envs: int) -> None:
        """Do nothing."""

    def pay(self, steps: Steps) -> FloatArray:
        if self._factor == 0:
            raise TrainingError("It cannot be paid.")
        lengths = np.array([len(text) for text in steps.texts], dtype=np.float32)
        return np.where(lengths > lengths.min(), lengths * np.float32(self._factor), UNPAID)[steps.captions]


@pytest.mark.parametrize(("steps", "ended"), [(400, False), (4000, True)])
def test_rewards_of_a_run_are_compared_on_what_was_collected(tmp_path: Path, steps: int, ended: bool) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": steps})
    project.run("collect")
    rewards = {"long": ByCaption(1.0), "twice": ByCaption(2.0), "short": ByCaption(-1.0), "none": ByCaption(0.0)}
    adapter = adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    found, notes = distances(rewards, project.output("collect"), adapter, 0.99, 0)
    cut = (
        []
        if ended
        else ["Collection ended before any of the compared episodes did, so rankings are compared on cut-off episodes."]
    )
    assert notes == ["The reward none has no distance from others: It cannot be paid.", *cut]
    assert found["epic"]["long"] == {"twice": 0.0, "short": 1.0}
    assert found["rank"]["long"] == {"twice": 0.0, "short": 1.0}
    assert set(found["rank"]["environment"]) == {"long", "twice", "short"}


@pytest.mark.parametrize("error", [BudgetError("It is spent."), RefusedError("It is away.")])
def test_a_model_that_cannot_be_asked_now_is_not_left_out(monkeypatch: pytest.MonkeyPatch, error: LaurelError) -> None:
    """The comparison would be done without the reward, and no later run would complete it."""

    def pay(*_: Steps) -> FloatArray:
        raise error

    reward = ByCaption(1.0)
    monkeypatch.setattr(reward, "pay", pay)
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: two_walks())
    with pytest.raises(type(error)):
        distances({"asking": reward}, Path(), adapter_for(EnvParams(id=FROZEN_LAKE)), GAMMA, 0)


@pytest.mark.parametrize("first_fails", [False, True])
def test_transitions_are_captioned_once_for_all_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_fails: bool
) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": 400})
    project.run("collect")
    adapter, captioned = adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0")), 0
    encode = adapter.encode

    def counted(transitions: Transitions) -> np.ndarray:
        nonlocal captioned
        captioned += len(transitions)
        return encode(transitions)

    monkeypatch.setattr(adapter, "encode", counted)
    rewards: dict[str, Reward] = {
        "first": ByCaption(0.0 if first_fails else 1.0),
        "once": OnceAnEpisode(),
        "short": ByCaption(-1.0),
    }
    distances(rewards, project.output("collect"), adapter, 0.99, 0)
    assert captioned == 400 + 2 * 400 * 96 + 400, "each step alone, from both of its states with all draws, in a row"


def test_truncated_collected_episodes_are_left_out(tmp_path: Path) -> None:
    """Each of eight environments takes 50 steps of a hundred, so that none of the episodes ends by itself."""
    project = Project.create(tmp_path / "p", {**UNTRACKED, "collect.steps": 400})
    project.run("collect")
    adapter = adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0"))
    steps, episode = read_episodes(project.output("collect"), 10_000)
    assert not steps.truncated.any(), "nothing says that they were cut"
    met = {*zip(episode.tolist(), Captioner(adapter).ids(steps).tolist(), strict=True)}
    distinct = np.bincount([episode_id for episode_id, _ in met]).astype(np.float64)
    known = np.bincount(episode, steps.reward).astype(np.float64)
    found, _ = distances({"once": OnceAnEpisode()}, project.output("collect"), adapter, 0.99, 0)
    assert found["rank"]["environment"]["once"] == pytest.approx(rank_distance(known, distinct), abs=1e-6)


FROZEN_LAKE = "FrozenLake-v1"


def two_walks(second: tuple[int, ...] = (0, 1, 2, 3)) -> tuple[Transitions, np.ndarray]:
    """Two episodes of three steps that collection cut; the environment paid the second one more."""
    walks = np.array([(0, 1, 2, 3), second])
    before, after = walks[:, :-1].reshape(-1, 1), walks[:, 1:].reshape(-1, 1)
    nothing, paid = np.zeros(6, dtype=np.bool_), np.array([0, 0, 1, 0, 0, 2], dtype=np.float32)
    return Transitions(before, np.zeros(6, dtype=np.int64), paid, after, nothing, nothing), np.arange(2).repeat(3)


class Table:
    """Pays captions by their numbers; what is not in the table is not scored."""

    unseen = 0

    def __init__(self, *values: float, threshold: float = 0.0) -> None:
        self._values, self.threshold = np.float32([*values, UNPAID]), threshold

    def begin(self, n_envs: int) -> None:
        """Do nothing."""

    def pay(self, steps: Steps) -> FloatArray:
        return self._values[np.minimum(steps.captions, len(self._values) - 1)]


def test_an_episode_that_collection_cut_ends_for_a_reward_with_a_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last step has no flag; the next episode begins anew nevertheless."""
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: two_walks())
    found, _ = distances({"once": OnceAnEpisode()}, Path(), adapter_for(EnvParams(id=FROZEN_LAKE)), GAMMA, 0)
    assert found["tied"] == {"environment": {"once": 1.0}}, "both episodes are paid for three captions"


class AtTheEnd:
    """Pays for the end of an episode alone."""

    threshold, unseen = 0.0, 0

    def begin(self, n_envs: int) -> None:
        """Do nothing."""

    def pay(self, steps: Steps) -> FloatArray:
        return np.where(steps.terminated | steps.truncated, np.float32(1), UNPAID)


def test_the_last_episode_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: two_walks())
    found, _ = distances({"end": AtTheEnd()}, Path(), adapter_for(EnvParams(id=FROZEN_LAKE)), GAMMA, 0)
    assert found["tied"] == {"environment": {"end": 1.0}}, "both are paid once"


def test_a_step_that_is_not_scored_counts_with_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: two_walks())
    rewards = {"silent": Table(1.0, 3.0, threshold=2.0), "says so": Table(1.0, 3.0, *[2.0] * 40)}
    found, _ = distances(rewards, Path(), adapter_for(EnvParams(id=FROZEN_LAKE)), GAMMA, 0)
    assert found["epic"] == {"silent": {"says so": 0.0}}


def test_totals_that_differ_by_rounded_rewards_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.evaluation.distances.read_episodes", lambda *_: two_walks((0, 4, 8, 9)))
    rewards = {"rounded": Table(*[1.0] * 3, *[1 + 2.0**-20] * 3), "more": Table(*[1.0] * 3, *[1 + 2.0**-18] * 3)}
    found, _ = distances(rewards, Path(), adapter_for(EnvParams(id=FROZEN_LAKE)), GAMMA, 0)
    assert found["tied"]["environment"] == {"rounded": 1.0, "more": 0.0}
    assert found["rank"]["environment"] == {"rounded": None, "more": None}, "two episodes are too few"
