"""Minibatches of many agents: each agent's are those that NumPy divides its rows into."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laurel.agents.stacked_update import epoch


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 9), st.integers(0, 2**31 - 1))
def test_an_epoch_divides_rows_as_array_split_does(lengths: list[int], n_batches: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(length) + 100 * s for s, length in enumerate(lengths)]
    size = -(-max(*lengths, 1) // n_batches)
    index, counts = epoch(rows, n_batches, size)
    assert index.shape == (n_batches, len(rows), size)
    for s, some in enumerate(rows):
        parts = np.array_split(some, min(n_batches, len(some))) if len(some) else []
        parts += [np.zeros(0, dtype=np.int64)] * (n_batches - len(parts))
        for batch, part in enumerate(parts):
            assert counts[batch, s] == len(part)
            assert index[batch, s, : len(part)].tolist() == part.tolist()
            if len(some):
                assert np.isin(index[batch, s], some).all(), "padded by rows of its own"
