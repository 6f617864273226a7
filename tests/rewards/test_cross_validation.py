"""Cross-validation of the Bradley-Terry ensemble: what a fold must not know, and when to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from planted_pairs import params, planted

from laurel.data.captions import Segments
from laurel.rewards import bradley_terry
from laurel.rewards.bradley_terry import Comparisons, cross_validate
from laurel.rewards.quality import quality

torch.set_num_threads(1)


def grouped(seed: int = 0) -> tuple[np.ndarray, Comparisons]:
    """Segments in groups of two, and random comparisons."""
    features, _, comparisons = planted(n_items=40, n_pairs=300, seed=seed)
    return features, Comparisons(
        comparisons.members, np.arange(40) // 2, comparisons.first, comparisons.second, comparisons.p_first
    )


def member_predictions(held_out: Any, member: int) -> dict[int, float]:
    of_member = held_out.member == member
    return dict(zip(held_out.pair[of_member].tolist(), held_out.predicted[of_member].tolist(), strict=True))


@pytest.mark.parametrize("member", [0, 1, 2])
def test_no_member_is_trained_on_labels_of_its_fold(member: int) -> None:
    """Poison: turn around every label of a pair with a segment of fold k. Member k must not notice.

    One epoch, since the number of epochs is chosen by all members' held-out loss together.
    """
    features, comparisons = grouped()
    p = params(max_epochs=1)
    clean = cross_validate(features, comparisons, p, seed=0)
    of_fold = (clean.fold[comparisons.first] == member) | (clean.fold[comparisons.second] == member)
    assert 0 < of_fold.sum() < len(comparisons)
    label = np.where(of_fold, 1 - comparisons.p_first, comparisons.p_first)
    poisoned = cross_validate(
        features,
        Comparisons(comparisons.members, comparisons.group, comparisons.first, comparisons.second, label),
        p,
        seed=0,
    )
    assert np.array_equal(poisoned.fold, clean.fold)
    assert member_predictions(poisoned, member) == member_predictions(clean, member)
    others = [k for k in range(3) if k != member]
    assert all(member_predictions(poisoned, k) != member_predictions(clean, k) for k in others), "the poison works"


def test_every_pair_is_judged_by_those_members_that_do_not_know_it() -> None:
    features, comparisons = grouped()
    held_out = cross_validate(features, comparisons, params(max_epochs=2), seed=0)
    judged = set(zip(held_out.member.tolist(), held_out.pair.tolist(), strict=True))
    first_fold, second_fold = held_out.fold[comparisons.first], held_out.fold[comparisons.second]
    expected = {(int(fold), pair) for folds in (first_fold, second_fold) for pair, fold in enumerate(folds)}
    assert judged == expected
    assert len(judged) == len(held_out.pair), "once each"
    both = first_fold[held_out.pair] == second_fold[held_out.pair]
    assert np.array_equal(held_out.both_new, both)


@pytest.mark.parametrize("more", [0, 1])
def test_a_member_without_a_label_to_learn_from_does_not_count(more: int) -> None:
    """Of a single pair, both predictions are of initial weights: an agreement of 1.00 would look like a result."""
    tied = [(2, 3, 0.5)] * more
    first, second, p_first = (np.array(column) for column in zip((0, 1, 1.0), *tied, strict=True))
    pairs = Comparisons(np.arange(4)[:, None], np.arange(4), first, second, p_first)
    held_out = cross_validate(np.eye(4), pairs, params(max_epochs=1), seed=0)
    assert not held_out.taught[held_out.pair == 0].any()
    segments = Segments(["a", "b", "c", "d"], np.ones(4, np.int64), np.arange(4)[:, None])
    found = quality(held_out, pairs, segments, np.full(4, np.nan))
    assert (found["heldout_pairs"], found["heldout_agreement"]) == (0, None)
    assert set(found["baselines"].values()) == {0.5, None}
    features, comparisons = grouped()
    assert cross_validate(features, comparisons, params(max_epochs=1), seed=0).taught.all()


def test_folds_hold_whole_groups_and_have_similar_sizes() -> None:
    features, comparisons = grouped()
    fold = cross_validate(features, comparisons, params(max_epochs=1), seed=0).fold
    assert all(len(set(fold[comparisons.group == group].tolist())) == 1 for group in range(20))
    sizes = np.bincount(fold)
    assert len(sizes) == 3
    assert sizes.max() - sizes.min() <= 2
    assert not np.array_equal(fold, cross_validate(features, comparisons, params(max_epochs=1), seed=1).fold)


def test_the_best_epoch_is_kept_not_the_last() -> None:
    """The predictions that are returned have the loss that is reported, and it is the lowest on the way."""
    features, _, comparisons = planted(n_items=30, n_pairs=100, noise=0.3)
    losses = [
        cross_validate(features, comparisons, params(max_epochs=epochs, patience=100), seed=0).loss
        for epochs in range(1, 31)
    ]
    held_out = cross_validate(features, comparisons, params(max_epochs=30, patience=100), seed=0)
    assert held_out.loss == min(losses)
    assert held_out.epochs == 1 + int(np.argmin(losses))
    p = held_out.predicted.clip(1e-6, 1 - 1e-6)
    target = comparisons.p_first[held_out.pair]
    assert held_out.loss == pytest.approx(float(-(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()))
    assert np.diff(losses).max() <= 0, "a longer search never reports a higher loss"


def test_patience_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = 0
    original = bradley_terry.Trainer.epoch

    def counted(self: Any, rng: np.random.Generator) -> None:
        nonlocal epochs
        epochs += 1
        original(self, rng)

    monkeypatch.setattr(bradley_terry.Trainer, "epoch", counted)
    features, _, comparisons = planted(n_items=20, n_pairs=60, noise=0.5)
    held_out = cross_validate(features, comparisons, params(max_epochs=200, patience=7), seed=0)
    assert epochs == held_out.epochs + 7 < 200
