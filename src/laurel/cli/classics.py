"""`laurel classics`: draw how agents learn well-known tasks. Imports nothing heavy before it is to run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from laurel.cli.arguments import whole

Command = Callable[..., argparse.ArgumentParser]
Say = Callable[[str], int]

KINDS = {
    "bandits": ("Run the bandit agents on ten arms, Gaussian, Bernoulli and drifting.", 2000),
    "tabular": ("Run the agents with a table where the best policy is known.", 100),
    "deep": ("Train the deep agents on CartPole, Pendulum and Catch; a few minutes.", 5),
}
"""What can be drawn -> how it is explained, and in how many runs."""


def add_classics(commands: argparse._SubParsersAction[argparse.ArgumentParser], command: Command, say: Say) -> None:
    """Add the command.

    Args:
        commands: of the program.
        command: makes a command of parent, name, summary and example.
        say: writes a result and returns the exit code.
    """
    summary = "Draw how agents learn: bandits, agents with a table, and deep ones."
    classics = commands.add_parser("classics", help=summary, description=summary)
    kinds = classics.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, (what, runs) in KINDS.items():
        one = command(kinds, kind, what, f"laurel classics {kind} --output docs")
        one.add_argument("--runs", type=whole(2), default=runs, metavar="N", help=f"of each agent; default: {runs}")
        one.add_argument("--seed", type=whole(0), default=0, metavar="N", help="default: 0")
        one.add_argument("--output", type=Path, default=Path(), metavar="DIR", help=f"where {kind}.png goes")
        one.set_defaults(run=lambda options: _run(options, say))


def _run(options: argparse.Namespace, say: Say) -> int:
    from laurel.classics.deep import show_deep
    from laurel.classics.lessons import show_bandits, show_tabular

    show = {"bandits": show_bandits, "tabular": show_tabular, "deep": show_deep}[options.kind]
    table = show(options.output, n_runs=options.runs, seed=options.seed)
    return say(f"{table}\n\nfigure: {options.output / f'{options.kind}.png'}\n")
