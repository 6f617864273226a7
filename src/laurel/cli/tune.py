"""`laurel tune`: search the parameters of the agents' training."""

from __future__ import annotations

import argparse
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_input, add_output, add_params, log_warnings, whole
from laurel.cli.search import STORAGE, add_search, search_of
from laurel.console import say
from laurel.extras import need

OUTPUT = Path("data/tune")
INPUTS = ("captions", "preferences", "reward")


def add(commands: Commands) -> None:
    """Add the command."""
    tune = add_command(
        commands,
        "tune",
        "Search the parameters of the agents' training: shaping, learning rate and others.",
        "laurel tune --trials 30 --search shaping.intrinsic=log:0.01:1 --search agent.ppo.learning_rate=log:3e-4:1e-2",
    )
    add_params(tune)
    for name in INPUTS:
        add_input(tune, name)
    tune.add_argument("--trials", type=whole(), default=30, metavar="N", help="total trials of the study; default: 30")
    add_search(tune)
    tune.add_argument("--no-prune", action="store_true", help="train every candidate to the end")
    tune.add_argument(
        "--workers", type=whole(), metavar="N", help="candidates trained at a time; default: agent.workers"
    )
    tune.add_argument(
        "--study", metavar="NAME", help="name of the study; an existing one is resumed; default: the arm's name"
    )
    tune.add_argument("--storage", type=Path, default=STORAGE, metavar="FILE", help=f"SQLite; default: {STORAGE}")
    add_output(tune, OUTPUT)
    tune.set_defaults(run=lambda options: say(_run(options)))


def _run(options: argparse.Namespace) -> str:
    from laurel.params import load_params
    from laurel.stages import tune
    from laurel.stages.preflight import check_search
    from laurel.tracking.server import configure
    from laurel.tuning.plan import sweep_of

    need("optuna")
    log_warnings()
    params = load_params(options.params)
    configure(options.params.parent)
    search = search_of(options)
    check_search(params, sweep_of(params, search))
    summary = tune.run(
        params,
        **{name: getattr(options, name) for name in INPUTS},
        output=options.output,
        search=search,
        text=options.params.read_text(encoding="utf-8"),
        workers=options.workers,
    )
    return f"{summary}\n"
