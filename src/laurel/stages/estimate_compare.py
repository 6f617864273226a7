"""What comparing a grid of judges would ask and what that would cost: asks and writes nothing."""

from __future__ import annotations

from pathlib import Path

from laurel.data.lineage import read_inputs
from laurel.envs import adapter_for
from laurel.feedback.estimate_grid import forecast, in_table
from laurel.params import Params
from laurel.params.grid import load_grid
from laurel.stages.compare import about, known_pairs
from laurel.stages.estimate_annotate import NOTHING


def run(params: Params, captions: Path, grid: Path, gold: Path | None = None) -> str:
    """Say in lines of text what `compare.run` would take, which has the same arguments.

    Raises:
        ParamsError: the grid is missing or not allowed.
        AnnotationError: it is not known of any pair which is the better.
        DataError: the captions, the gold labels or a store of answers cannot be read.
    """
    wanted, cells = load_grid(grid, params.annotate)
    read_inputs(params.dump("env", "caption"), {"captions": captions})
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    known = known_pairs(params, captions, adapter, wanted.pairs, gold)
    found = forecast(cells, adapter, known.questions, params.annotate.budget)
    return "\n".join([f"{about(adapter, known)}\n", in_table(found), NOTHING]) + "\n"
