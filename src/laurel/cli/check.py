"""`laurel check`: validate a run, and print what it will do."""

from __future__ import annotations

import argparse

from laurel.cli.command import Commands, add_command, add_input, add_params, log_warnings
from laurel.console import say, tell
from laurel.stages.pipeline import STAGES

USED = ("trajectories", "captions", "reward")
"""Outputs from which, if they exist, the annotator's cost and the possible sum of rewards are estimated."""


def add(commands: Commands) -> None:
    """Add the command."""
    check = add_command(commands, "check", "Validate a run, and print what it will do and cost.", "laurel check")
    add_params(check)
    for name in USED:
        add_input(check, name)
    check.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from laurel.params import load_params
    from laurel.stages.description import described
    from laurel.stages.own_files import unknown_to_dvc
    from laurel.stages.preflight import check_run

    log_warnings()
    params = load_params(options.params)
    gold = params.annotate.gold
    missing = gold is not None and not gold.exists()  # gold labels refer to captions, which may not exist yet
    adapter = check_run(params, gold=not missing)
    if missing and params.judges:
        tell(
            f"{gold}: no such file yet, but annotate.gold names it, and laurel annotate stops without it. After laurel "
            "caption, label some pairs with laurel annotate review."
        )
    for sentence in unknown_to_dvc(params, STAGES, options.params.parent):
        tell(sentence)
    return say(described(params, adapter, {name: getattr(options, name) for name in USED}))
