"""How much each parameter matters for being among the best trials, with intervals.

PED-ANOVA (Watanabe et al. 2023, https://arxiv.org/abs/2304.10255) as in Optuna, over bootstrap resamples of the
trials.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laurel.params.search import Space
from laurel.seeding import generator
from laurel.tuning.study import distribution_of, stored_as
from laurel.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

BEST_TRIALS = 5
"""Minimum number of trials in the top set; PED-ANOVA is unstable with fewer."""
MIN_TRIALS = 3 * BEST_TRIALS
RESAMPLES = 100
"""Each takes some 30 milliseconds."""


@dataclass(frozen=True, slots=True)
class Importance:
    """How much a parameter matters, with its interval."""

    share: float
    """Its share; shares sum to 1 over parameters."""
    low: float
    high: float
    """Ends of the 95% interval."""


def importances(space: Space, trials: Sequence[Trial], *, resamples: int = RESAMPLES) -> dict[str, Importance]:
    """Return how much each parameter matters for being among the best trials, most first.

    Empty if fewer than MIN_TRIALS are complete, as it would be due to chance. The same trials give the same result.
    """
    known = _as_optuna(space, trials)
    if len(known) < MIN_TRIALS:
        return {}
    draws = generator(0, "tune", "importance").integers(len(known), size=(resamples, len(known)))
    drawn = [_shares([known[index] for index in draw]) for draw in draws.tolist()]
    found = {}
    for name, share in _shares(known).items():
        low, high = np.quantile([shares[name] for shares in drawn], [0.025, 0.975])
        found[name] = Importance(share, float(low), float(high))
    return found


def _as_optuna(space: Space, trials: Sequence[Trial]) -> list[optuna.trial.FrozenTrial]:
    """Return the complete trials as trials of Optuna."""
    import optuna

    distributions = {name: distribution_of(name, searched) for name, searched in space.items()}
    return [
        optuna.trial.create_trial(
            params={name: stored_as(value) for name, value in trial.values.items()},
            distributions=distributions,
            value=trial.score,
        )
        for trial in trials
        if trial.score is not None
    ]


def _shares(trials: Sequence[optuna.trial.FrozenTrial]) -> Mapping[str, float]:
    import optuna

    logging.getLogger("optuna").setLevel(logging.ERROR)
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=max(0.1, BEST_TRIALS / len(trials)))
    return optuna.importance.get_param_importances(study, evaluator=evaluator)
