"""`laurel export`: data in other libraries' formats. Imports nothing heavy before it is to run."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_group, add_input
from laurel.console import say

RESPONSES = "responses/responses.db"
"""Where language models' answers are kept unless params.yaml says otherwise."""


def add(commands: Commands) -> None:
    """Add the commands."""
    example = "laurel export minari doorkey/random-v0 --output minari"
    formats = add_group(commands, "export", "Write data in other libraries' formats.", "format", example)
    minari = add_command(formats, "minari", "Write trajectories as a Minari data set.", example)
    minari.add_argument("dataset", metavar="NAME", help="name of the data set, e.g. doorkey/random-v0")
    add_input(minari, "trajectories")
    minari.add_argument("--output", type=Path, default=Path("minari"), metavar="DIR", help="folder of Minari data sets")
    minari.set_defaults(run=_export_minari)
    responses = add_command(
        formats,
        "responses",
        "Write every answer of a language model as one Parquet file.",
        "laurel export responses --output responses.parquet",
    )
    responses.add_argument(
        "--responses", type=Path, default=Path(RESPONSES), metavar="FILE", help=f"the store; default: {RESPONSES}"
    )
    responses.add_argument(
        "--output", type=Path, default=Path("responses.parquet"), metavar="FILE", help="default: responses.parquet"
    )
    responses.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="prices of your own, as annotate.budget.prices; default: the packaged",
    )
    responses.set_defaults(run=_export_responses)


def _export_minari(options: argparse.Namespace) -> int:
    import warnings

    from laurel.data.minari import export

    warnings.filterwarnings("ignore", module="minari")  # that a data set names no author, and the like
    counts = export(options.trajectories, options.dataset, options.output.resolve())
    written = ", ".join(f"{value} {key}" for key, value in counts.items())
    return say(f"{written} in {options.output / options.dataset}\n")


def _export_responses(options: argparse.Namespace) -> int:
    from laurel.llm.responses_export import export_responses

    return say(f"{export_responses(options.responses, options.output, options.prices)} answers in {options.output}\n")
