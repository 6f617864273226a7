"""The Bradley-Terry ensemble: planted truths, a slow reference, and what a fold must not know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import spearmanr

from laurel.params.training import RewardParams
from laurel.rewards import bradley_terry
from laurel.rewards.bradley_terry import Comparisons, Ensemble, cross_validate, fit
from laurel.rewards.model import raw_rewards

torch.set_num_threads(1)


def params(**changes: Any) -> RewardParams:
    return RewardParams.model_validate({"ensemble": 3, "hidden": [16], "max_epochs": 60, "patience": 10, **changes})


def units(features: np.ndarray, first: Any, second: Any, p_first: Any) -> Comparisons:
    """Comparisons of items, each a segment and a group of its own."""
    n = np.arange(len(features), dtype=np.int64)
    return Comparisons(n[:, None], n, np.asarray(first), np.asarray(second), np.asarray(p_first, dtype=np.float64))


def planted(
    n_items: int = 60, n_pairs: int = 600, *, noise: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, Comparisons]:
    """Features, a linear utility of them, and which of a pair has the higher one; `noise` of the answers are lies."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_items, 8)).astype(np.float32)
    utility = features @ rng.standard_normal(8)
    first, second = rng.integers(0, n_items, (2, n_pairs))
    second = np.where(first == second, (second + 1) % n_items, second)
    truth = utility[first] > utility[second]
    lies = rng.random(n_pairs) < noise
    return features, utility, units(features, first, second, (truth != lies).astype(float))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(spearmanr(a, b).statistic)


def accuracy(held_out: Any, target: np.ndarray) -> float:
    return float(((held_out.predicted > 0.5) == (target[held_out.pair] > 0.5)).mean())


# -- planted truth ----------------------------------------------------------------------------------------------
def test_a_planted_utility_is_recovered() -> None:
    features, utility, comparisons = planted()
    held_out = cross_validate(features, comparisons, params(), seed=0)
    assert accuracy(held_out, comparisons.p_first) > 0.85
    assert held_out.loss < 0.45 < math.log(2)
    assert held_out.epochs > 1
    ensemble = fit(features, comparisons, params(), held_out.epochs, seed=0)
    rewards = raw_rewards(ensemble, features)
    assert rewards.shape == (3, 60)
    for member in rewards:
        assert rank_correlation(member, utility) > 0.95
    unseen = np.random.default_rng(1).standard_normal((200, 8)).astype(np.float32)
    rng = np.random.default_rng(0)
    rng.standard_normal((60, 8))  # as `planted` draws
    expected = unseen @ rng.standard_normal(8)
    assert rank_correlation(raw_rewards(ensemble, unseen).mean(axis=0), expected) > 0.9


def test_noise_lowers_the_accuracy_but_does_not_break_it() -> None:
    clean, noisy = (planted(noise=noise) for noise in (0.0, 0.25))
    of_clean, of_noisy = (cross_validate(f, c, params(), seed=0) for f, _, c in (clean, noisy))
    truth = clean[2].p_first
    assert np.array_equal(clean[2].first, noisy[2].first)
    assert accuracy(of_noisy, noisy[2].p_first) < accuracy(of_clean, truth) - 0.1
    assert accuracy(of_noisy, truth) > 0.75, "of what is so, not of what was said"
    ensemble = fit(noisy[0], noisy[2], params(), of_noisy.epochs, seed=0)
    assert rank_correlation(raw_rewards(ensemble, noisy[0]).mean(axis=0), noisy[1]) > 0.9


def test_labels_without_meaning_are_not_learned() -> None:
    features, _, comparisons = planted(noise=0.5)
    held_out = cross_validate(features, comparisons, params(), seed=0)
    assert 0.38 < accuracy(held_out, comparisons.p_first) < 0.62
    assert held_out.loss == pytest.approx(math.log(2), abs=0.03)
    assert held_out.epochs < 20, "it stops before it learns them by heart"


def test_soft_labels_become_differences_of_reward() -> None:
    """Two items and p(first) = 0.8: the maximum of the likelihood is at a difference of log(0.8 / 0.2)."""
    features = np.eye(2, dtype=np.float32)
    comparisons = units(features, [0, 1], [1, 0], [0.8, 0.2])
    ensemble = fit(features, comparisons, params(weight_decay=0.0, learning_rate=0.03), 400, seed=0)
    rewards = raw_rewards(ensemble, features)
    np.testing.assert_allclose(rewards[:, 0] - rewards[:, 1], math.log(4), atol=0.02)


def test_ties_pull_rewards_together() -> None:
    features = np.eye(4, dtype=np.float32)
    p = params(weight_decay=0.0)

    def gap(ties: int) -> float:
        comparisons = units(features, [0, 1] + [0] * ties, [1, 2] + [1] * ties, [1.0, 1.0] + [0.5] * ties)
        rewards = raw_rewards(fit(features, comparisons, p, 300, seed=0), features).mean(axis=0)
        return float(rewards[0] - rewards[1])

    assert gap(40) < 0.5 < 1.5 < gap(0)


def test_label_smoothing_bounds_differences() -> None:
    """With a rate s of random answers a sure label is worth 1 - s/2, not an infinite difference."""
    features = np.eye(2, dtype=np.float32)
    comparisons = units(features, [0, 1], [1, 0], [1.0, 0.0])

    def gap(smoothing: float) -> float:
        p = params(weight_decay=0.0, learning_rate=0.03, label_smoothing=smoothing)
        rewards = raw_rewards(fit(features, comparisons, p, 400, seed=0), features).mean(axis=0)
        return float(rewards[0] - rewards[1])

    assert gap(0.2) == pytest.approx(math.log(0.9 / 0.1), abs=0.02)
    assert gap(0.4) == pytest.approx(math.log(0.8 / 0.2), abs=0.02)
    assert gap(0.0) > 5


# -- segments ---------------------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(2, 6), st.integers(1, 12))
def test_a_segment_is_worth_the_mean_of_its_items(data: Any, length: int, n_segments: int, n_pairs: int) -> None:
    n_items = 5
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    features = rng.standard_normal((n_items, 3)).astype(np.float32)
    sizes = [data.draw(st.integers(1, length)) for _ in range(n_segments)]
    members = np.full((n_segments, length), -1, dtype=np.int64)
    for segment, size in enumerate(sizes):
        members[segment, :size] = rng.integers(0, n_items, size)
    first, second = rng.integers(0, n_segments, (2, n_pairs))
    comparisons = Comparisons(members, np.arange(n_segments), first, second, rng.random(n_pairs))
    trainer = bradley_terry.Trainer(features, comparisons, params(), np.ones((3, n_pairs), np.float32), seed=0)
    rewards = raw_rewards(trainer.ensemble, features)
    for member in range(3):
        for pair in range(n_pairs):
            worth = [
                np.mean([rewards[member, item] for item in members[segment] if item >= 0])
                for segment in (first[pair], second[pair])
            ]
            assert trainer.predict()[member, pair] == pytest.approx(expit(worth[0] - worth[1]), abs=1e-5)


def test_items_are_credited_from_segments() -> None:
    """Items are never judged alone, yet the one that makes segments better is found."""
    rng = np.random.default_rng(0)
    utility = np.arange(6.0)
    members = rng.integers(0, 6, (80, 3))
    members[::4, 2] = -1
    worth = np.array([utility[row[row >= 0]].mean() for row in members])
    first, second = rng.integers(0, 80, (2, 800))
    label = np.where(worth[first] == worth[second], 0.5, worth[first] > worth[second])
    comparisons = Comparisons(members, np.arange(80), first, second, label)
    ensemble = fit(np.eye(6, dtype=np.float32), comparisons, params(), 60, seed=0)
    rewards = raw_rewards(ensemble, np.eye(6, dtype=np.float32)).mean(axis=0)
    assert rank_correlation(rewards, utility) == pytest.approx(1)


def steps_and_their_pairs(n_pairs: int = 60, length: int = 4) -> tuple[np.ndarray, Comparisons]:
    """Segments of steps that never occur twice, some shorter than the others, and a linear utility's preferences."""
    rng = np.random.default_rng(0)
    members = np.arange(2 * n_pairs * length).reshape(2 * n_pairs, length)
    features = rng.standard_normal((members.size, 3)).astype(np.float32)
    worth = (features @ np.array([1.0, -1.0, 0.5]))[members]
    members[::5, -1] = -1
    worth = np.where(members >= 0, worth, 0).sum(axis=1) / (members >= 0).sum(axis=1)
    first, second = rng.permutation(2 * n_pairs).reshape(2, -1)
    label = (worth[first] > worth[second]).astype(np.float64)
    return features, Comparisons(members, np.arange(2 * n_pairs), first, second, label)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_items_that_never_repeat_are_learned_from_as_those_that_do(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an item is looked up among those of the batch or evaluated where it stands is a matter of speed."""
    features, comparisons = steps_and_their_pairs()
    p = params(activation=activation, batch_size=16)
    assert not bradley_terry._items_repeat(comparisons)
    in_place = fit(features, comparisons, p, 10, seed=0)
    held_out = cross_validate(features, comparisons, p, seed=0)
    monkeypatch.setattr(bradley_terry, "_items_repeat", lambda _: True)
    looked_up = fit(features, comparisons, p, 10, seed=0)
    one, other = (raw_rewards(ensemble, features) for ensemble in (in_place, looked_up))
    gaps = [rewards - rewards[:, :1] for rewards in (one, other)]  # what they have in common is not learned
    np.testing.assert_allclose(*gaps, atol=1e-3)
    again = cross_validate(features, comparisons, p, seed=0)
    assert held_out.epochs == again.epochs
    np.testing.assert_allclose(held_out.predicted, again.predicted, atol=1e-3)
    assert accuracy(held_out, comparisons.p_first) > 0.75


def test_items_repeat_where_captions_are_compared_and_not_where_steps_are() -> None:
    assert bradley_terry._items_repeat(planted()[2])
    _, steps = steps_and_their_pairs()
    assert not bradley_terry._items_repeat(steps)
    same = Comparisons(np.zeros((2, 3), dtype=np.int64), np.arange(2), np.array([0]), np.array([1]), np.array([0.5]))
    assert bradley_terry._items_repeat(same)


def test_predicting_in_parts_is_predicting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, comparisons in (steps_and_their_pairs(), planted()[::2]):
        weights = np.ones((3, len(comparisons)), np.float32)
        trainer = bradley_terry.Trainer(features, comparisons, params(), weights, seed=0)
        at_once = trainer.predict()
        monkeypatch.setattr(bradley_terry, "PREDICTED_ITEMS", 24)
        np.testing.assert_allclose(trainer.predict(), at_once, atol=1e-6)
        monkeypatch.undo()
        assert at_once.shape == (3, len(comparisons))


# -- what a fold must not know ----------------------------------------------------------------------------------
def grouped(seed: int = 0) -> tuple[np.ndarray, Comparisons]:
    """Segments of which two in a row are one group, and comparisons at random."""
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


def test_folds_hold_whole_groups_and_are_of_like_size() -> None:
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


# -- training ---------------------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_weights() -> None:
    features, _, comparisons = planted(n_items=20, n_pairs=100)
    one, again, other = (fit(features, comparisons, params(), 5, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    held_out, held_out_again = (cross_validate(features, comparisons, params(max_epochs=5), seed=3) for _ in range(2))
    np.testing.assert_array_equal(held_out.predicted, held_out_again.predicted)


def test_members_differ_in_weights_and_in_what_they_are_trained_on() -> None:
    features, _, comparisons = planted(n_items=20, n_pairs=100)
    rewards = raw_rewards(fit(features, comparisons, params(), 20, seed=0), features)
    spread = (rewards - rewards.mean(axis=1, keepdims=True)).std(axis=0)
    assert (spread > 1e-3).all()
    seen = []  # from equal weights on, bootstrap resamples alone make them differ

    class Equal(bradley_terry.Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.ensemble.load_state_dict(
                {k: v[:1].expand_as(v).clone() for k, v in self.ensemble.state_dict().items()}
            )
            seen.append(self._weights.clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bradley_terry, "Trainer", Equal)
        ensemble = fit(features, comparisons, params(), 5, seed=0)
    assert (seen[0].sum(dim=1) == len(comparisons)).all()
    share_left_out = (seen[0] == 0).float().mean(dim=1)
    assert ((share_left_out > 0.25) & (share_left_out < 0.5)).all(), "about 1/e of a bootstrap resample"
    first, second, third = raw_rewards(ensemble, features)
    assert not np.allclose(first, second, atol=1e-4)
    assert not np.allclose(second, third, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 6),
    st.lists(st.integers(1, 5), max_size=3),
    st.integers(1, 7),
    st.sampled_from(["tanh", "relu"]),
)
def test_an_ensemble_is_its_members_one_by_one(
    size: int, n_features: int, hidden: list[int], n_items: int, activation: Any
) -> None:
    ensemble = Ensemble(n_features, tuple(hidden), size, seed=1, activation=activation)
    with torch.no_grad():
        for bias in ensemble.biases:
            bias.normal_(generator=torch.Generator().manual_seed(2))
    features = np.random.default_rng(0).standard_normal((n_items, n_features)).astype(np.float32)
    rewards = raw_rewards(ensemble, features)
    assert rewards.shape == (size, n_items)
    for member in range(size):
        x = features
        layers = list(zip(ensemble.weights, ensemble.biases, strict=True))
        for layer, (weight, bias) in enumerate(layers):
            x = x @ weight[member].detach().numpy() + bias[member].detach().numpy()
            if layer < len(layers) - 1:
                x = np.tanh(x) if activation == "tanh" else np.maximum(x, 0)
        np.testing.assert_allclose(rewards[member], x[:, 0], atol=1e-5)
    again = Ensemble(**ensemble.config())
    again.load_state_dict(ensemble.state_dict())
    np.testing.assert_array_equal(raw_rewards(again, features), rewards)
    assert [p.shape for p in again.parameters()] == [p.shape for p in ensemble.parameters()]


@pytest.mark.parametrize(("batch_size", "batches"), [(1000, 1), (101, 1), (50, 2), (30, 3), (1, 101)])
def test_an_epoch_takes_every_pair_once(batch_size: int, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, _, comparisons = planted(n_items=20, n_pairs=101)
    weights = np.ones((3, 101), np.float32)
    trainer = bradley_terry.Trainer(features, comparisons, params(batch_size=batch_size), weights, seed=0)
    seen: list[list[int]] = []
    original = bradley_terry.Trainer._logits
    monkeypatch.setattr(
        bradley_terry.Trainer, "_logits", lambda self, rows: (seen.append(rows.tolist()), original(self, rows))[1]
    )
    trainer.epoch(np.random.default_rng(0))
    assert len(seen) == batches
    order = [row for batch in seen for row in batch]
    assert sorted(order) == list(range(101))
    assert order != sorted(order)


def test_weight_decay_holds_rewards_back() -> None:
    features, _, comparisons = planted(n_items=20, n_pairs=100)
    spread = [
        raw_rewards(fit(features, comparisons, params(weight_decay=decay), 60, seed=0), features).std()
        for decay in (0.0, 3.0)
    ]
    assert spread[1] < 0.7 * spread[0]


def test_initial_weights_depend_on_the_seed_and_are_uniform_in_their_bound() -> None:
    one, again, other = (Ensemble(16, (64,), 3, seed=seed) for seed in (0, 0, 1))
    for mine, same, different in zip(one.weights, again.weights, other.weights, strict=True):
        assert torch.equal(mine, same)
        assert not torch.equal(mine, different)
        assert not torch.equal(mine[0], mine[1]), "members differ"
        bound = 1 / math.sqrt(mine.shape[1])
        assert 0.9 * bound < float(mine.detach().abs().max()) <= bound
    assert all(not bias.any() for bias in one.biases)


def test_very_few_pairs() -> None:
    features = np.eye(2, dtype=np.float32)
    comparisons = units(features, [0], [1], [1.0])
    held_out = cross_validate(features, comparisons, params(), seed=0)
    assert sorted(held_out.pair.tolist()) == [0, 0], "both of its segments are in a fold"
    assert np.isfinite(held_out.loss)
    rewards = raw_rewards(fit(features, comparisons, params(), max(held_out.epochs, 1), seed=0), features)
    assert np.isfinite(rewards).all()


def test_comparisons_can_be_cut() -> None:
    _, _, comparisons = planted(n_items=10, n_pairs=20)
    cut = comparisons[np.array([3, 5])]
    assert len(cut) == 2
    assert cut.first.tolist() == comparisons.first[[3, 5]].tolist()
    assert cut.p_first.tolist() == comparisons.p_first[[3, 5]].tolist()
    assert cut.members is comparisons.members
