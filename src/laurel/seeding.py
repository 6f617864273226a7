"""Seeds: every random stream of a run derives from one number and a name, never from another stream."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 31-bit seed that depends on `seed` and on every name, alike on all machines.

    >>> derive_seed(0, "collect") != derive_seed(0, "agents", 1)
    True
    """
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return NumPy's default generator, seeded with `derive_seed`."""
    return np.random.default_rng(derive_seed(seed, *names))


def seed_folder(seed: int) -> str:
    """Return the name of the folder with the files of a seed, such as its agent or its own reward."""
    return f"seed-{seed}"
