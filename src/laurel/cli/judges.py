"""`laurel judges`: the judges that arms need."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_params
from laurel.stages.pipeline import JUDGES


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "Write the judges that the arms need, so that DVC annotates again only when these change."
    judges = add_command(commands, "judges", summary, f"laurel judges --output {JUDGES}")
    add_params(judges)
    judges.add_argument("--output", type=Path, default=Path(JUDGES), metavar="FILE", help=f"default: {JUDGES}")
    judges.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.data.json_file import write_json
    from laurel.data.written import written_whole
    from laurel.params import load_params

    params = load_params(options.params)
    with written_whole(options.output) as partial:
        write_json(partial, list(params.judges))
    return 0
