"""A shard of a round on disk: the prompts, answers and actions of some of the environments, sampled apart from the
others.

The environments themselves are not kept: they are deterministic, and take the actions again where the round is learned
from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from laurel.agents.language_model.chain import Proposal, Turn
from laurel.arrays import Array
from laurel.data.json_file import read_json, write_json
from laurel.errors import DataError, first_line

ARRAYS, WRITTEN = "arrays.safetensors", "proposals.json"


@dataclass(frozen=True)
class SampledShard:
    """Proposals of n environments in T steps."""

    action: Array
    """(T, n)."""
    written: list[list[Proposal | None]]
    """T lists of n; None where an environment was reset."""
    backend: str
    """Of the environments."""

    def write(self, folder: Path) -> None:
        """Write it into a directory; each prompt once."""
        prompts: dict[str, int] = {}
        rows = [
            None
            if proposal is None
            else {
                "turns": [[prompts.setdefault(turn.prompt, len(prompts)), turn.answer] for turn in proposal.turns],
                "moves": proposal.moves,
                "tokens": proposal.tokens,
            }
            for of_step in self.written
            for proposal in of_step
        ]
        flat = [proposal for of_step in self.written for proposal in of_step]
        logs = np.array([np.nan if proposal is None else proposal.log_prob for proposal in flat], dtype=np.float64)
        arrays = {"action": np.ascontiguousarray(self.action), "log_prob": logs.reshape(self.action.shape)}
        (folder / ARRAYS).write_bytes(save(arrays))
        write_json(folder / WRITTEN, {"backend": self.backend, "prompts": list(prompts), "proposals": rows})

    @staticmethod
    def read(folder: Path) -> SampledShard:
        """Read what `write` wrote.

        Raises:
            DataError: it is missing or damaged.
        """
        content = read_json(folder / WRITTEN)
        try:
            arrays = load((folder / ARRAYS).read_bytes())
            action, prompts = arrays["action"], content["prompts"]
            flat = [
                None
                if row is None
                else Proposal(
                    tuple(Turn(prompts[number], answer) for number, answer in row["turns"]),
                    None if row["moves"] is None else tuple(row["moves"]),
                    log_prob,
                    row["tokens"],
                )
                for row, log_prob in zip(content["proposals"], arrays["log_prob"].reshape(-1).tolist(), strict=True)
            ]
            width = action.shape[1]
            rows = [flat[start : start + width] for start in range(0, len(flat), width)]
            return SampledShard(action, rows, content["backend"])
        except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"{folder}: not a shard of proposals ({first_line(error)}). Sample it again.") from None
