"""`laurel table`: the arms of a report as a table."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    table = add_command(commands, "table", "Print the table of arms of a report.", "laurel table reports --markdown")
    table.add_argument(
        "directory", type=Path, nargs="?", default=Path("reports"), metavar="DIR", help="default: reports"
    )
    table.add_argument("--markdown", action="store_true", help="as Markdown, for a README")
    table.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.data.manifest import MANIFEST, read_manifest
    from laurel.errors import DataError
    from laurel.evaluation.summary import METRICS, markdown_table, read_metrics, table

    file = options.directory / METRICS
    metrics = read_metrics(file)
    notes = read_manifest(options.directory)["notes"] if (options.directory / MANIFEST).exists() else []
    try:
        shown = markdown_table(metrics) if options.markdown else table(metrics, notes)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: does not hold the metrics of a report ({error!r}). Run laurel evaluate again."
        ) from None
    return say(f"{shown}\n")
