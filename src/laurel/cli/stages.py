"""The stages' commands, which `dvc repro` calls."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from laurel.cli import annotate
from laurel.cli.command import Commands, add_command, add_input, add_output, add_params, log_warnings
from laurel.console import tell
from laurel.stages.pipeline import STAGES, Stage


def add(commands: Commands) -> None:
    """Add a command for each stage."""
    for stage in STAGES:
        command = add_command(commands, stage.name, stage.summary, stage.example)
        add_params(command)
        for name in stage.inputs:
            add_input(command, name)
        add_output(command, stage.output)
        if stage.name == "train-agents":
            command.add_argument(
                "--live",
                type=Path,
                default=Path("reports/live.html"),
                metavar="FILE",
                help="page with live learning curves; default: reports/live.html",
            )
        command.set_defaults(run=_run, stage=stage)
        if stage.name == "annotate":
            annotate.add_actions(command)


def _run(options: argparse.Namespace) -> int:
    from laurel.params import load_params
    from laurel.stages.description import missing_keys
    from laurel.stages.own_files import unknown_to_dvc
    from laurel.stages.preflight import check_endings, check_run
    from laurel.stages.project import note
    from laurel.tracking.server import configure

    log_warnings()
    stage: Stage = options.stage
    params = load_params(options.params)
    configure(options.params.parent)
    check_run(params, stage.name, gold=stage.name == "annotate")  # gold labels refer to captions, which exist by then
    if stage is STAGES[0]:  # before anything is done
        for sentence in missing_keys(params):
            tell(f"{stage.name}: {sentence}")
    for sentence in unknown_to_dvc(params, [stage], Path()) if "DVC_STAGE" in os.environ else ():
        tell(f"{stage.name}: {sentence}")
    extra = {}
    if stage.name == "train-agents":
        from functools import partial

        from laurel.stages.live import LivePage

        extra["live"] = partial(LivePage, options.live)
    inputs = {name: getattr(options, name) for name in stage.inputs}
    stage.run(params, **inputs, **extra, output=options.output)
    if stage is STAGES[0]:
        check_endings(params, options.output)
    note(stage, params, inputs, options.output)
    return 0
