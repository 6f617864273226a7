"""Which dtype of weights is fastest on a CPU.

Half the bits do not always take half the time: a CPU with AMX, or with a fast bfloat16 unit, multiplies such matrices
two to three times as fast as in float32; one that merely supports the instructions may be slower.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from laurel.data.json_file import read_json, write_json
from laurel.errors import DataError
from laurel.machine import cpu
from laurel.workspace import cache_directory

if TYPE_CHECKING:
    import torch

MARGIN = 1.25
"""Minimum speed-up for choosing float32, so that noise has no effect: measured were .35 to .6, and 1.6."""
ROWS, WIDTH, TIMES = 256, 1024, 16
"""Shape of the timed products, similar to a small model's layer; the best of TIMES counts."""


@cache
def float32_is_quicker(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies matrices in float32 at least MARGIN times as fast as in a type of 16 bits.

    Takes a tenth of a second, once on this machine: answers of the two types are stored separately, so a busy moment
    must not change which is used.
    """
    import torch

    file, key = cache_directory() / "cpu_types.json", f"{cpu()}, torch {torch.__version__}, {dtype}"
    known: dict[str, bool] = {}
    with suppress(DataError):  # there is none, or it is damaged
        known = dict(read_json(file))
    if key not in known:
        known[key] = seconds(dtype) >= MARGIN * seconds(torch.float32)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, known)
    return known[key]


def seconds(dtype: torch.dtype) -> float:
    """Return the seconds of one product (ROWS, WIDTH) x (WIDTH, WIDTH) on this CPU, the least of TIMES."""
    import torch

    rows, weight = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(WIDTH, WIDTH, dtype=dtype)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(TIMES):
            began = time.perf_counter()
            torch.nn.functional.linear(rows, weight)
            best = min(best, time.perf_counter() - began)
    return best
