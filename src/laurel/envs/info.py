"""The part of an environment's `info` that its adapter names, as arrays.

Gymnasium gives a dict with every step. What an adapter lists in `info_fields` is kept: in batches of transitions, in
trajectories, for captions and rewards. Everything else is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from laurel.arrays import Array, BoolArray
from laurel.envs.base import EnvAdapter
from laurel.errors import EnvError


def named_info(adapter: EnvAdapter, info: Mapping[str, Any], valid: BoolArray) -> dict[str, Array]:
    """Return the fields that an adapter names, (N,) each, 0 in rows that are not `valid` (N,).

    Args:
        adapter: whose `info_fields` are wanted.
        info: of a step of N environments, as Gymnasium's vector environments give it: name -> (N,), and "_name" -> (N,)
            True where an environment gave it.
        valid: where a row is a step; a reset has no info.

    Raises:
        EnvError: a field is missing from a step, or is not one number.
    """
    fields = {}
    for name, dtype in adapter.info_fields.items():
        present = np.asarray(info.get(f"_{name}", np.full(len(valid), name in info)))
        if (valid & ~present).any():
            place = int(np.argmax(valid & ~present))
            names = (key for key in info if key[0] != "_")
            present_keys = [key for key in names if np.broadcast_to(info.get(f"_{key}", True), valid.shape)[place]]
            raise EnvError(
                f'{adapter.env_id}: its adapter {type(adapter).__name__} names "{name}" in info_fields, but the info '
                f"of a step has only: {', '.join(sorted(present_keys)) or 'nothing'}. Add it to every step's "
                "info, or drop it from info_fields."
            )
        column = np.zeros(len(valid), dtype=dtype)
        try:
            column[valid] = np.asarray(info[name])[valid] if valid.any() else 0
        except (TypeError, ValueError) as error:
            raise EnvError(
                f'{adapter.env_id}: "{name}" in the info of a step is not one {np.dtype(dtype).name}: {error}. '
                "Return a number, or drop it from info_fields."
            ) from None
        fields[name] = column
    return fields


def named_info_of_one(adapter: EnvAdapter, info: Mapping[str, Any]) -> dict[str, Array]:
    """Return the fields (1,) of a single environment's step; errors as in `named_info`."""
    if not adapter.info_fields:
        return {}
    return named_info(adapter, {name: [value] for name, value in info.items()}, np.ones(1, dtype=np.bool_))
