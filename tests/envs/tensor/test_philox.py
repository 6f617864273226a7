"""Counter-based random numbers: published test vectors, and independence between agents."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laurel.envs.tensor.philox import below, philox, uniform, words

KNOWN = [  # philox 4x32 10 of kat_vectors, https://github.com/DEShawResearch/random123
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_the_published_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    drawn = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert drawn.tolist() == expected


def test_a_number_depends_only_on_key_time_and_position() -> None:
    keys = torch.tensor([[3, 1], [4, 1], [5, 9]])
    drawn = words(keys, 2, 10, (4, 6, 5))
    assert drawn.shape == (4, 3, 6, 5)
    assert torch.equal(words(keys[1:2], 2, 12, (1, 3, 5)), drawn[2:3, 1:2, :3])
    assert drawn.unique().numel() == drawn.numel()
    assert not torch.isin(words(keys, 3, 10, (4, 6, 5)), drawn).any()


def test_numbers_are_spread_evenly() -> None:
    drawn = words(torch.tensor([[7, 0]]), 0, 0, (100, 100, 4)).flatten()
    figures = uniform(drawn)
    assert figures.dtype == torch.float32
    assert 0 <= figures.min() < 1e-3 < 1 - 1e-3 < figures.max() < 1
    assert figures.mean().item() == pytest.approx(0.5, abs=0.005)
    counts = np.bincount(below(drawn, 7).numpy(), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 40_000 / 7).max() < 5 * np.sqrt(40_000 / 7)
    assert below(torch.tensor(0xFFFFFFFF), 7) == 6
