"""Tests of the permutation by which the control of online annotation learns from answers to other questions."""

from collections import Counter

from laurel.rewards.online import growing_permutation


def test_wrong_answers_stay_the_same_while_labels_are_added() -> None:
    before = growing_permutation(0, 7)
    for count in range(1, 60):
        after = growing_permutation(count, 7)
        assert sorted(after) == list(range(count))
        assert sum(before != after[:-1]) <= 1
        before = after
    assert sum(before == range(59)) < 10


def test_all_permutations_are_equally_likely() -> None:
    met = Counter(tuple(growing_permutation(4, seed).tolist()) for seed in range(4800))
    assert len(met) == 24
    assert all(140 <= times <= 260 for times in met.values())
