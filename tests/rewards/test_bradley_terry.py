"""The Bradley-Terry ensemble: planted truths, a slow reference, and what a fold must not know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_pairs import params, planted, units
from scipy.special import expit
from scipy.stats import spearmanr

from laurel.rewards import bradley_terry
from laurel.rewards.bradley_terry import Comparisons, Ensemble, cross_validate, fit
from laurel.rewards.model import raw_rewards

torch.set_num_threads(1)


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
def test_a_segment_is_scored_by_its_items_alone(data: Any, length: int, n_segments: int, n_pairs: int) -> None:
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
                length * np.mean([rewards[member, item] for item in members[segment] if item >= 0])
                for segment in (first[pair], second[pair])
            ]
            assert trainer.predict()[member, pair] == pytest.approx(expit(worth[0] - worth[1]), abs=1e-5)


def test_relu_units_bend_at_different_places() -> None:
    """One number a member, zero: without drawn biases every reward of it would be zero."""
    nothing = np.zeros((1, 3), dtype=np.float32)
    relu, tanh = (raw_rewards(Ensemble(3, (8,), 4, activation=name), nothing) for name in ("relu", "tanh"))
    assert len(np.unique(relu)) == 4
    assert not tanh.any()


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
    p = params(activation=activation, batch_size=16, max_epochs=5)  # what differs in rounding grows with time
    assert not bradley_terry._items_repeat(comparisons)
    in_place = fit(features, comparisons, p, 4, seed=0)
    held_out = cross_validate(features, comparisons, p, seed=0)
    monkeypatch.setattr(bradley_terry, "_items_repeat", lambda _: True)
    looked_up = fit(features, comparisons, p, 4, seed=0)
    first, second = (raw_rewards(ensemble, features) for ensemble in (in_place, looked_up))
    gaps = [rewards - rewards[:, :1] for rewards in (first, second)]  # what they have in common is not learned
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
# -- training ---------------------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_weights() -> None:
    features, _, comparisons = planted(n_items=20, n_pairs=100)
    first, again, other = (fit(features, comparisons, params(), 5, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
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
    first, again, other = (Ensemble(16, (64,), 3, seed=seed) for seed in (0, 0, 1))
    for mine, same, different in zip(first.weights, again.weights, other.weights, strict=True):
        assert torch.equal(mine, same)
        assert not torch.equal(mine, different)
        assert not torch.equal(mine[0], mine[1]), "members differ"
        bound = 1 / math.sqrt(mine.shape[1])
        assert 0.9 * bound < float(mine.detach().abs().max()) <= bound
    assert all(not bias.any() for bias in first.biases)


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
