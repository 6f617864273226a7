"""Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, doi 10.1145/2063384.2063405), in tensor operations.

The numbers are a function of key and counter, so an agent's numbers do not depend on other agents, the order of draws
or the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> Tensor:
    """Return four random words of 32 bits, (..., 4) as int64.

    Args:
        counter: four tensors of int64 below 2^32.
        key: two such tensors. All six are broadcast.
    """
    a, b, c, d = counter
    left, right = key
    for _ in range(ROUNDS):
        # int64 wraps around, which leaves the lower 64 bits of the product as they are
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (second >> 32 & WORD) ^ b ^ left, second & WORD, (first >> 32 & WORD) ^ d ^ right, first & WORD
        left, right = left + WEYL[0] & WORD, right + WEYL[1] & WORD
    return torch.stack([a, b, c, d], dim=-1)  # all have the same shape from here on


def words(keys: Tensor, stream: int, start: int, shape: tuple[int, int, int]) -> Tensor:
    """Return random words (T, S, N, K) as int64.

    Args:
        keys: (S, 2) one for each agent, whose words depend on its own key alone.
        stream: index of the agent's stream.
        start: the time of the first of T rows.
        shape: T, N and K. The word at an index depends on neither T nor N.
    """
    n_times, n_places, n_words = shape
    device, blocks = keys.device, -(-n_words // 4)
    time = torch.arange(start, start + n_times, device=device)[:, None, None, None]
    place = torch.arange(n_places, device=device)[:, None]
    block = torch.arange(blocks, device=device)
    stream_word = torch.full((), stream, dtype=torch.int64, device=device)
    left, right = keys[:, 0, None, None], keys[:, 1, None, None]
    drawn = philox((time, place, block, stream_word), (left, right))
    return drawn.flatten(-2)[..., :n_words]


def uniform(drawn: Tensor) -> Tensor:
    """Turn words into float32 in [0, 1), with 24 random bits."""
    return (drawn >> 8).to(torch.float32) * 2.0**-24


def below(drawn: Tensor, n: Tensor | int) -> Tensor:
    """Turn words into integers from 0 to n - 1, uniform up to n / 2^32."""
    return drawn * n >> 32
