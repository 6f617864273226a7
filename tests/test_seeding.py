"""Seeds: the same everywhere, and different for every name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.seeding import derive_seed, generator

SEEDS = st.integers(0, 2**31 - 1)
NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/")), max_size=3)


@pytest.mark.parametrize(
    ("names", "expected"),
    [((0,), 804681139), ((0, "collect"), 2056360449), ((7, "agents", 1), 27414595)],
)
def test_seeds_are_the_same_on_all_machines(names: tuple[int, ...], expected: int) -> None:
    """Changing these changes every result that was ever stored."""
    assert derive_seed(*names) == expected


def test_generators_are_the_same_on_all_machines() -> None:
    assert generator(0, "x").integers(2**31) == 2125669596


@given(SEEDS, NAMES)
def test_seeds_fit_into_31_bits(seed: int, names: list[str]) -> None:
    assert 0 <= derive_seed(seed, *names) < 2**31


@given(SEEDS, NAMES, SEEDS, NAMES)
def test_other_names_give_other_seeds(seed: int, names: list[str], other: int, others: list[str]) -> None:
    if (seed, names) != (other, others):
        assert derive_seed(seed, *names) != derive_seed(other, *others)


def test_streams_do_not_move_each_other() -> None:
    """What one stream has drawn makes no difference to another."""
    alone = generator(0, "b").random(10)
    generator(0, "a").random(1000)
    assert np.array_equal(generator(0, "b").random(10), alone)
    assert not np.array_equal(generator(0, "a").random(10), alone)
    assert not np.array_equal(generator(1, "b").random(10), alone)
