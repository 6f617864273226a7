"""Distances between rewards: EPIC on transitions, and disagreement in ranking episodes.

EPIC (Gleave et al. 2021, "Quantifying Differences in Reward Functions", arXiv 2006.13900) is 0 where rewards differ by
only potential shaping, scale and a constant, and at most 1:

    D(A, B) = sqrt((1 - corr(C_A, C_B)) / 2)
    C_R(s, a, s') = R(s, a, s') + E[gamma R(s', a~, x~) - R(s, a~, x~) - gamma R(x, a~, x~)]

with (s, a, s') of collected transitions as the coverage distribution. a~ and x~ are the action and the next state of
one collected transition; the paper draws them independently, which gives somewhat different distances if the action
determines the next state, and the same invariances. The last term is a constant, which does not affect a correlation.

The distance of two rankings is the share of pairs of collected episodes that the two rewards rank in opposite orders by
their sums, among pairs that neither of them ties: D / (C + D) with C concordant and D discordant pairs. The number of
tied pairs is reported, too. The distance is left out if, under one of the rewards, fewer than LEAST_DIFFERENT episodes
differ from the most common sum, e.g. if two of 32 have a return: it would only reflect the rank of these few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.data.trajectories import finished, read_episodes
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.errors import LaurelError
from laurel.llm.budget import BudgetError
from laurel.llm.chat import RefusedError
from laurel.rewards.base import UNPAID, Reward, Steps, paid
from laurel.rewards.normalizer import GRID
from laurel.seeding import generator

Pays = Callable[[Transitions], DoubleArray]
"""Maps N transitions, each on its own, to rewards (N,)."""
TRANSITIONS, DRAWN = 2000, 96
"""Number of collected transitions on which rewards are compared, and of draws for each expectation. Rare captions
decide a correlation: in DoorKey-8x8 eight samples of 192 transitions gave 0.20 to 0.78 for two rewards, and of 2,000
0.21 to 0.27."""
BLOCK = 128
"""Number of states that are paired with all draws at a time: observations may be images."""
MOST_STEPS = 20_000
"""Number of collected steps, in whole episodes, on which rankings are compared."""
LEAST_DIFFERENT = 5
"""Minimum number of episodes that differ from the most common total, for a distance of rankings."""
DIGITS = 6
ENVIRONMENT = "environment"
Matrix = dict[str, dict[str, float | None]]
"""Reward -> those after it -> distance; None where one of the two is constant."""


def canonical(pays: Pays, steps: Transitions, drawn: Transitions, gamma: float) -> DoubleArray:
    """Return the canonically shaped reward of transitions (N,), up to a constant.

    Args:
        steps: N transitions.
        drawn: M transitions, of which the actions and the next states are taken.
    """
    m = len(drawn)

    def mean_from(states: Array) -> DoubleArray:
        return np.concatenate([mean_of_block(states[i : i + BLOCK]) for i in range(0, len(states), BLOCK)])

    def mean_of_block(states: Array) -> DoubleArray:
        n = len(states)
        start, sample, no_end = np.repeat(np.arange(n), m), np.tile(np.arange(m), n), np.zeros(n * m, dtype=np.bool_)
        unrewarded = np.zeros(n * m, dtype=np.float32)
        made_up = replace(
            drawn[sample], observation=states[start], reward=unrewarded, terminated=no_end, truncated=no_end
        )
        return pays(made_up).reshape(n, m).mean(axis=1)

    return pays(steps) + gamma * mean_from(steps.next_observation) - mean_from(steps.observation)


def pearson_distance(a: DoubleArray, b: DoubleArray) -> float | None:
    """Return sqrt((1 - correlation) / 2); None where one of the two is constant."""
    if min(np.std(a), np.std(b)) < 1e-9:
        return None
    return math.sqrt(max(0.0, 1 - float(np.corrcoef(a, b)[0, 1])) / 2)


@dataclass(frozen=True)
class RankPairs:
    """How two rewards rank the pairs of episodes."""

    concordant: int
    discordant: int
    tied: int
    """Pairs to which at least one of the two gives equal totals."""

    @classmethod
    def of(cls, a: DoubleArray, b: DoubleArray) -> RankPairs:
        """Count the pairs of episodes, whose totals are given (E,).

        By Kendall's tau-b, which takes E log E steps: C - D = tau sqrt((P - ties of a) (P - ties of b)), and
        C + D = P - ties of a - ties of b + ties of both, with P pairs.
        """
        from scipy.stats import kendalltau

        ranks = [np.unique(_tolerant(totals), return_inverse=True)[1] for totals in (a, b)]
        pairs = len(a) * (len(a) - 1) // 2
        ties = [_pairs_within(rank) for rank in ranks]
        sided = pairs - sum(ties) + _pairs_within(ranks[0] * len(a) + ranks[1])
        untied = (pairs - ties[0]) * (pairs - ties[1])
        margin = round(float(kendalltau(*ranks).statistic) * math.sqrt(untied)) if untied else 0
        return cls((sided + margin) // 2, (sided - margin) // 2, pairs - sided)


def _tolerant(totals: DoubleArray) -> DoubleArray:
    """Round totals that differ only by the order in which floats were added."""
    return np.round(totals / max(float(np.abs(totals).max(initial=0)), 1e-300), 9)


def _pairs_within(values: IntArray) -> int:
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def rank_distance(a: DoubleArray, b: DoubleArray, least: int = 0) -> float | None:
    """Return the share of pairs of episodes ranked in opposite orders, of those without a tie; None without any.

    Args:
        least: also None if fewer episodes than this differ from the most common total under a or b.
    """
    if min(_different(a), _different(b)) < least:
        return None
    pairs = RankPairs.of(a, b)
    sided = pairs.concordant + pairs.discordant
    return pairs.discordant / sided if sided else None


def _different(totals: DoubleArray) -> int:
    """Count the episodes that are not paid the most common total."""
    return len(totals) - int(np.unique(_tolerant(totals), return_counts=True)[1].max(initial=0))


def tied_pairs(a: DoubleArray, b: DoubleArray) -> float | None:
    """Return the share of pairs of episodes with equal totals under one of the two rewards; None without any pair."""
    pairs = RankPairs.of(a, b)
    n_pairs = pairs.concordant + pairs.discordant + pairs.tied
    return pairs.tied / n_pairs if n_pairs else None


def matrix(values: Mapping[str, DoubleArray], distance: Callable[[DoubleArray, DoubleArray], float | None]) -> Matrix:
    """Return the distance of each value to those after it."""
    names = list(values)
    distance_to: Matrix = {}
    for place, name in enumerate(names[:-1]):
        row = {later: distance(values[name], values[later]) for later in names[place + 1 :]}
        distance_to[name] = {
            later: None if value is None else round(value, DIGITS) + 0.0 for later, value in row.items()
        }
    return distance_to


def distances(
    rewards: Mapping[str, Reward], trajectories: Path, adapter: EnvAdapter, gamma: float, seed: int
) -> tuple[dict[str, Matrix], list[str]]:
    """Return the matrices, and notes on rewards that failed and were left out, and on episodes that were cut off.

    These are `epic`, `rank`, and `tied`, the share of pairs that `rank` leaves out. The last two include the
    environment's own reward, and leave out episodes that collection cut, unless all are. For EPIC, each transition
    is paid as if it began an episode, also by rewards that depend on earlier steps. Where an episode is a single text,
    no potential can be added and rewards are compared without canonicalisation: encoding other texts for each prompt
    would take minutes.

    Raises:
        DataError: trajectories are missing or damaged.
        BudgetError: the budget of a language model that a reward asks is spent.
        RefusedError: it cannot be asked.
    """
    steps, episode = read_episodes(trajectories, MOST_STEPS)
    rng = generator(seed, "distances")
    places = np.sort(rng.choice(len(steps), min(TRANSITIONS, len(steps)), replace=False))
    drawn = np.sort(rng.choice(len(steps), min(DRAWN, len(steps)), replace=False))
    captioner = _CaptionedOnce(adapter)  # one for all: rewards remember captions by their ids
    shaped, totals = {}, {ENVIRONMENT: _totals(steps.reward.astype(np.float64), episode)}
    notes, longest = [], int(np.bincount(episode).max())
    for name, reward in rewards.items():
        captioner.again()
        try:
            pays = _each_alone(reward, captioner)
            per_step = pays(steps[places]) if adapter.texts else canonical(pays, steps[places], steps[drawn], gamma)
            totals[name] = without_rounding(_totals(_in_a_row(reward, captioner, steps, episode), episode), longest)
            shaped[name] = per_step
        except (BudgetError, RefusedError):  # no fault of the reward: the next run asks for the rest
            raise
        except LaurelError as error:
            notes.append(f"The reward {name} has no distance from others: {error}")
    completed = finished(steps, episode)
    if completed.any():
        totals = {name: paid[completed] for name, paid in totals.items()}
    else:
        notes.append(
            "Collection ended before any of the compared episodes did, so rankings are compared on cut-off episodes."
        )
    matrices = {
        "epic": matrix(shaped, pearson_distance),
        "rank": matrix(totals, partial(rank_distance, least=LEAST_DIFFERENT)),
    }
    return {**matrices, "tied": matrix(totals, tied_pairs)}, notes


class _CaptionedOnce(Captioner):
    """Captions the batches of the first reward, and remembers them for the others, which get the same batches.

    These are hundreds of thousands of made-up transitions, and an adapter that defines only `caption` takes minutes
    for them.
    """

    def __init__(self, adapter: EnvAdapter) -> None:
        super().__init__(adapter)
        self._batches: list[IntArray] = []
        self._next = 0

    def again(self) -> None:
        """Begin with the first batch again."""
        self._next = 0

    def ids(self, transitions: Transitions) -> IntArray:
        if self._next == len(self._batches):
            self._batches.append(super().ids(transitions))
        self._next += 1
        return self._batches[self._next - 1]


def _totals(pay: DoubleArray, episode: IntArray) -> DoubleArray:
    return np.bincount(episode, pay).astype(np.float64)


def without_rounding(totals: DoubleArray, steps: int) -> DoubleArray:
    """Make sums equal if rounding explains the difference: each of up to `steps` rewards is rounded to 1 / GRID."""
    order = np.argsort(totals)
    begins = np.diff(totals[order], prepend=-np.inf) > steps / GRID
    rounded = np.empty_like(totals)
    rounded[order] = totals[order][begins][np.cumsum(begins) - 1]
    return rounded


def _each_alone(reward: Reward, captioner: Captioner) -> Pays:
    def pays(transitions: Transitions) -> DoubleArray:
        reward.begin(len(transitions))
        shape = 1, len(transitions)
        return _paid(reward, captioner, transitions, shape, transitions.truncated)

    return pays


def _in_a_row(reward: Reward, captioner: Captioner, steps: Transitions, episode: IntArray) -> DoubleArray:
    reward.begin(1)
    last = np.append(np.diff(episode) > 0, True)  # collection may end within an episode, and sets no flag then
    return _paid(reward, captioner, steps, (len(steps), 1), last & ~steps.terminated)


def _paid(
    reward: Reward, captioner: Captioner, transitions: Transitions, shape: tuple[int, int], truncated: BoolArray
) -> DoubleArray:
    """Return the reward of each transition; the threshold of shaping if it has none."""
    captions, valid = captioner.ids(transitions).reshape(shape), np.ones(shape, dtype=np.bool_)
    ends = transitions.terminated.reshape(shape), truncated.reshape(shape)
    raw = paid(reward, Steps(transitions, captions, captioner.texts, valid, *ends)).reshape(-1)
    return np.where(raw > UNPAID, raw, reward.threshold).astype(np.float64)


def table(matrix: Matrix) -> list[tuple[str, list[float | None]]]:
    """Return a row for each reward, with its distances from those before it."""
    names = list(dict.fromkeys([*matrix, *(column for row in matrix.values() for column in row)]))
    return [(name, [matrix[earlier][name] for earlier in names[:place]]) for place, name in enumerate(names)]
