"""What `laurel annotate` can do besides running the stage. Imports nothing heavy before an action is to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from laurel.cli.annotate_forget import add_forget
from laurel.cli.annotate_review import add_review
from laurel.permissions import add_permissions

Actions = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command = Callable[..., argparse.ArgumentParser]
Say = Callable[[str], int]

LEADERBOARD = Path("data/leaderboard")


def add_actions(annotate: argparse.ArgumentParser, command: Command, say: Say) -> None:
    """Add the actions.

    Args:
        annotate: the parser of the stage.
        command: makes a command of parent, name, summary and example.
        say: writes a result and returns the exit code.
    """
    annotate.add_argument(
        "--dry-run", action="store_true", help="say what would be asked and what that would cost, and ask nothing"
    )
    add_permissions(annotate)
    stage = annotate.get_default("run")
    annotate.set_defaults(run=lambda options: say(_estimate(options)) if options.dry_run else stage(options))
    actions = annotate.add_subparsers(dest="action", metavar="[ACTION]", required=False)
    add_review(actions, command, say)
    add_forget(actions, command, say)
    probing = command(
        actions,
        "probe",
        "Ask the annotator questions with known answers about the environment.",
        "laurel annotate probe --params params.yaml",
    )
    probing.add_argument("--params", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="the parameters")
    _add_dry_run(probing)
    probing.set_defaults(run=lambda options: say(_probe(options)))

    comparing = command(
        actions,
        "compare",
        "Have a grid of models, prompts and temperatures judge the same pairs, and see who is right.",
        "laurel annotate compare --grid grid.yaml",
    )
    comparing.add_argument(
        "--grid", type=Path, required=True, metavar="FILE", help="YAML: pairs, models, prompts, temperatures"
    )
    comparing.add_argument(
        "--gold", type=Path, metavar="FILE", help="labels of a person; default: the environment's hand-written progress"
    )
    comparing.add_argument("--params", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="the parameters")
    comparing.add_argument(
        "--captions", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="default: data/captions"
    )
    _add_dry_run(comparing)
    comparing.add_argument("--output", type=Path, default=LEADERBOARD, metavar="DIR", help=f"default: {LEADERBOARD}")
    comparing.set_defaults(run=lambda options: say(_compare(options)))


def _add_dry_run(action: argparse.ArgumentParser) -> None:
    """Let an action be tried, whether the stage's parser or its own was told so."""
    add_permissions(action)
    action.add_argument(
        "--dry-run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="say what would be asked and what that would cost, and ask nothing",
    )


def _compare(options: argparse.Namespace) -> str:
    import logging
    import sys

    from laurel.params import load_params
    from laurel.stages import compare, estimate_compare
    from laurel.tracking.runs import configure

    if options.dry_run:
        return estimate_compare.run(load_params(options.params), options.captions, options.grid, gold=options.gold)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    params = load_params(options.params)
    configure(options.params.parent)
    told = compare.run(params, options.captions, options.grid, options.output, gold=options.gold)
    return f"{told}\nleaderboard: {options.output / 'leaderboard.md'}\n"


def _probe(options: argparse.Namespace) -> str:
    from laurel.envs import adapter_for
    from laurel.feedback.annotators import make_annotator
    from laurel.feedback.probe import ask, load_probe
    from laurel.params import load_params
    from laurel.seeding import derive_seed
    from laurel.stages import estimate_annotate

    params = load_params(options.params)
    if options.dry_run:
        return estimate_annotate.of_probe(params)
    probe = load_probe(params.env.id)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    annotator = make_annotator(params.annotate, adapter, derive_seed(params.seed, "annotate"))
    findings = ask(annotator, probe)
    amounts = {what: "unknown" if amount is None else f"{amount:,}" for what, amount in annotator.usage.items()}
    used = ", ".join(f"{amount} {what.replace('_', ' ')}" for what, amount in amounts.items())
    action = ", whose captions name the action, which the questions do not" if adapter.with_action else ""
    lines = [f"asked  {annotator.name}", f"about  {adapter.env_id}{action}", "", findings.table()]
    return "\n".join([*lines, *([f"used   {used}"] if used else [])]) + "\n"


def _estimate(options: argparse.Namespace) -> str:
    from laurel.params import load_params
    from laurel.stages import estimate_annotate

    return estimate_annotate.run(load_params(options.params), options.captions)
