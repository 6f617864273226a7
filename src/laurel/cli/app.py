"""The `laurel` command: arguments in, a stage out. Imports nothing heavy before a stage is to run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laurel import __version__
from laurel.cli.annotate import add_actions
from laurel.cli.check import add_check
from laurel.cli.classics import add_classics
from laurel.cli.export import add_export
from laurel.cli.pipeline import add_pipeline
from laurel.cli.play import add_play
from laurel.cli.prompt import add_prompt
from laurel.cli.tune import add_tune
from laurel.cli.ui import add_ui
from laurel.console import USAGE_ERROR, say
from laurel.errors import LaurelError
from laurel.interrupt import terminated_like_ctrl_c
from laurel.permissions import take_permissions
from laurel.stages.pipeline import PLACES, STAGES, Stage

INTERRUPTED = 130
AGAIN = "Run the same command again to go on."
"""What to do after Ctrl-C, unless a command says otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, 2 for what the user can mend, 130 for Ctrl-C."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:
        raise SystemExit(say("") or end.code) from None  # argparse has printed, but not yet written
    take_permissions(options)
    try:
        with terminated_like_ctrl_c():
            return int(options.run(options))
    except LaurelError as error:
        if options.debug:
            raise
        print(f"laurel: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print(f"laurel: stopped. {getattr(options, 'again', AGAIN)}", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="laurel",
        description="Language-model feedback as reward for reinforcement learning, one stage a command.",
        epilog="The whole pipeline: `dvc repro` (or `make run`). A stage by itself: laurel collect --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"laurel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for stage in STAGES:
        command = _command(commands, stage.name, stage.summary, stage.example)
        command.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="the parameters")
        for name in stage.inputs:
            command.add_argument(
                f"--{name}", type=Path, default=Path(PLACES[name]), metavar="DIR", help=f"default: {PLACES[name]}"
            )
        command.add_argument(
            "--output", type=Path, default=Path(stage.output), metavar="DIR", help=f"default: {stage.output}"
        )
        command.set_defaults(run=_run_stage, stage=stage)
        if stage.name == "annotate":
            add_actions(command, _command, say)

    show = _command(commands, "show", "Print what a stage's output holds.", "laurel show data/captions")
    show.add_argument("directory", type=Path, metavar="DIR", help="a stage's output")
    show.set_defaults(run=_show)

    table = _command(commands, "table", "Print the table of arms of a report.", "laurel table reports --markdown")
    table.add_argument(
        "directory", type=Path, nargs="?", default=Path("reports"), metavar="DIR", help="default: reports"
    )
    table.add_argument("--markdown", action="store_true", help="as Markdown, for a README")
    table.set_defaults(run=_table)

    add_check(commands, _command)
    add_pipeline(commands, _command)
    add_prompt(commands, _command, say)
    add_classics(commands, _command, say)
    add_play(commands, _command, say)
    add_tune(commands, _command, say, PLACES)
    add_ui(commands, _command)

    add_export(commands, _command, PLACES)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, **_explained(summary, example))
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def _explained(summary: str, example: str) -> dict[str, Any]:
    return {
        "description": summary,
        "epilog": f"example:\n  {example}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _run_stage(options: argparse.Namespace) -> int:
    import logging

    from laurel.params import load_params
    from laurel.stages.preflight import check_run
    from laurel.tracking.runs import configure

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    stage: Stage = options.stage
    params = load_params(options.params)
    configure(options.params.parent)
    check_run(params, stage.name, gold=stage.name == "annotate")  # they are given to captions that are made before it
    inputs = {name: getattr(options, name) for name in stage.inputs}
    stage.run(params, **inputs, output=options.output)
    return 0


def _show(options: argparse.Namespace) -> int:
    from laurel.data.show import describe_directory

    return say(f"{describe_directory(options.directory)}\n")


def _table(options: argparse.Namespace) -> int:
    from laurel.data.directory import read_json
    from laurel.evaluation.summary import checked, markdown_table, table

    file = options.directory / "metrics.json"
    metrics = checked(read_json(file), file)
    return say(f"{markdown_table(metrics) if options.markdown else table(metrics)}\n")
