"""`laurel annotate compare`: which model, prompt and temperature judges best."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_dry_run, add_input, add_output, add_params, log_warnings
from laurel.console import say


def add(actions: Commands) -> None:
    """Add the action to `laurel annotate`."""
    comparing = add_command(
        actions,
        "compare",
        "Compare a grid of models, prompts and temperatures on the same pairs, ranked by accuracy.",
        "laurel annotate compare --grid grid.yaml",
    )
    comparing.add_argument(
        "--grid", type=Path, required=True, metavar="FILE", help="YAML: pairs, models, prompts, temperatures"
    )
    comparing.add_argument(
        "--gold", type=Path, metavar="FILE", help="gold labels; default: the environment's hand-written progress"
    )
    add_params(comparing, of_parent=True)
    add_input(comparing, "captions", of_parent=True)
    add_dry_run(comparing)
    add_output(comparing, "data/leaderboard")
    comparing.set_defaults(run=lambda options: say(_compare(options)))


def _compare(options: argparse.Namespace) -> str:
    from laurel.params import load_params
    from laurel.stages import compare
    from laurel.tracking.server import configure

    if options.dry_run:
        return compare.estimated(load_params(options.params), options.captions, options.grid, gold=options.gold)
    log_warnings()
    params = load_params(options.params)
    configure(options.params.parent)
    leaderboard = compare.run(params, options.captions, options.grid, options.output, gold=options.gold)
    return f"{leaderboard}\nleaderboard: {options.output / 'leaderboard.md'}\n"
