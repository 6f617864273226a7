"""How far rewards are from each other: EPIC on transitions, and how differently they rank episodes.

EPIC (Gleave et al. 2021, "Quantifying Differences in Reward Functions", arXiv 2006.13900) is 0 where rewards differ by
only potential shaping, scale and a constant, and at most 1:

    D(A, B) = sqrt((1 - corr(C_A, C_B)) / 2)
    C_R(s, a, s') = R(s, a, s') + E[gamma R(s', a~, x~) - R(s, a~, x~) - gamma R(x, a~, x~)]

with (s, a, s') of collected transitions as the coverage distribution, and a~, x, x~ drawn from their actions and
states. The last term is a constant, which does not affect a correlation. The distance of two rankings is (1 - tau) / 2,
with Kendall's tau between what the rewards pay collected episodes in all: the share of pairs that
the two rewards rank in opposite orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.data.trajectories import read_episodes
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import Captioner
from laurel.errors import LaurelError
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.seeding import generator

Pays = Callable[[Transitions], DoubleArray]
"""What a reward pays for each of N transitions by itself (N,)."""
TRANSITIONS, DRAWN = 192, 96
"""Number of collected transitions on which rewards are compared, and of draws for each expectation."""
MOST_STEPS = 20_000
"""Number of collected steps, in whole episodes, on which rankings are compared."""
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
    n, m = len(steps), len(drawn)
    before, other = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    nothing = np.zeros(n * m, dtype=np.bool_)

    def mean_from(states: Array) -> DoubleArray:
        unrewarded = np.zeros(n * m, dtype=np.float32)
        made_up = replace(
            drawn[other], observation=states[before], reward=unrewarded, terminated=nothing, truncated=nothing
        )
        return pays(made_up).reshape(n, m).mean(axis=1)

    return pays(steps) + gamma * mean_from(steps.next_observation) - mean_from(steps.observation)


def pearson_distance(a: DoubleArray, b: DoubleArray) -> float | None:
    """Return sqrt((1 - correlation) / 2); None where one of the two is constant."""
    if min(np.std(a), np.std(b)) < 1e-9:
        return None
    return math.sqrt(max(0.0, 1 - float(np.corrcoef(a, b)[0, 1])) / 2)


def rank_distance(a: DoubleArray, b: DoubleArray) -> float | None:
    """Return (1 - Kendall's tau) / 2; None where one of the two is constant."""
    from scipy.stats import kendalltau

    if min(np.ptp(a), np.ptp(b)) < 1e-9:
        return None
    return (1 - float(kendalltau(a, b).statistic)) / 2


def matrix(values: Mapping[str, DoubleArray], distance: Callable[[DoubleArray, DoubleArray], float | None]) -> Matrix:
    """Return the distance of each value to those after it."""
    names = list(values)
    found: Matrix = {}
    for place, name in enumerate(names[:-1]):
        row = {other: distance(values[name], values[other]) for other in names[place + 1 :]}
        found[name] = {other: None if one is None else round(one, DIGITS) + 0.0 for other, one in row.items()}
    return found


def distances(
    rewards: Mapping[str, Reward], trajectories: Path, adapter: EnvAdapter, gamma: float, seed: int
) -> tuple[dict[str, Matrix], list[str]]:
    """Return both matrices, and a sentence on each reward that could not be paid and was left out.

    The matrix of rankings includes the environment's own reward. For EPIC, each transition is paid as if it began an
    episode, also by rewards that depend on earlier steps. Where an episode is a single text, no potential can be added
    and rewards are compared without canonicalisation: encoding other texts for each prompt would take minutes.

    Raises:
        DataError: trajectories are missing or damaged.
    """
    steps, episode = read_episodes(trajectories, MOST_STEPS)
    rng = generator(seed, "distances")
    places = np.sort(rng.choice(len(steps), min(TRANSITIONS, len(steps)), replace=False))
    drawn = np.sort(rng.choice(len(steps), min(DRAWN, len(steps)), replace=False))
    captioner = Captioner(adapter)  # one for both: rewards remember captions by their ids
    shaped, totals = {}, {ENVIRONMENT: _totals(steps.reward.astype(np.float64), episode)}
    left_out = []
    for name, reward in rewards.items():
        try:
            pays = _each_alone(reward, captioner)
            found = pays(steps[places]) if adapter.texts else canonical(pays, steps[places], steps[drawn], gamma)
            totals[name] = _totals(_in_a_row(reward, captioner, steps, episode), episode)
            shaped[name] = found
        except LaurelError as error:
            left_out.append(f"The reward {name} has no distance from others: {error}")
    return {"epic": matrix(shaped, pearson_distance), "rank": matrix(totals, rank_distance)}, left_out


def _totals(pay: DoubleArray, episode: IntArray) -> DoubleArray:
    return np.bincount(episode, pay).astype(np.float64)


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
    """Return the reward of each transition; where it has nothing to say, the threshold of shaping."""
    captions, valid = captioner.ids(transitions).reshape(shape), np.ones(shape, dtype=np.bool_)
    ends = transitions.terminated.reshape(shape), truncated.reshape(shape)
    raw = reward.pay(Steps(transitions, captions, captioner.texts, valid, *ends)).reshape(-1)
    return np.where(raw > UNPAID, raw, reward.threshold).astype(np.float64)


def table(found: Matrix) -> list[tuple[str, list[float | None]]]:
    """Return a row for each reward, with its distances from those before it."""
    names = list(dict.fromkeys([*found, *(other for row in found.values() for other in row)]))
    return [(name, [found[before][name] for before in names[:place]]) for place, name in enumerate(names)]
