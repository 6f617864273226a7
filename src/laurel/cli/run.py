"""`laurel run` and `laurel benchmark`: all stages of a project, and of many."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from laurel.cli.command import Commands, add_command, add_params, log_warnings
from laurel.console import USAGE_ERROR, say, tell


def add(commands: Commands) -> None:
    """Add the commands."""
    run = add_command(commands, "run", "Run all stages that are not up to date, and print the table.", "laurel run")
    add_params(run)
    run.add_argument("--force", action="store_true", help="also run stages that are up to date")
    run.set_defaults(run=_run)
    suite = add_command(
        commands,
        "benchmark",
        "Run a suite: many environments, judges or methods, with one page of results.",
        "laurel benchmark benchmarks/suites/reward_free.yaml --list",
    )
    suite.add_argument("suite", type=Path, metavar="FILE", help="the suite")
    suite.add_argument("--list", action="store_true", help="list the runs and their agents, and run nothing")
    suite.add_argument("--only", nargs="+", default=(), metavar="RUN", help="run only these")
    suite.add_argument("--page", action="store_true", help="write the page from finished runs, and run nothing")
    suite.add_argument("--work", type=Path, metavar="DIR", help="folders of the runs; default: data/suites/NAME")
    suite.add_argument("--output", type=Path, metavar="DIR", help="folder for the page; default: beside FILE")
    suite.set_defaults(run=_benchmark)
    trying = add_command(
        commands,
        "transfer",
        "Try the rewards and agents of finished runs in each other's environments: two matrices on one page.",
        "laurel transfer data/suites/transfer/* -o transfer.md",
    )
    trying.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="a finished run, with its params.yaml")
    trying.add_argument("--arm", metavar="ARM", help="the arm to transfer; default: the first method of each run")
    trying.add_argument(
        "--work",
        type=Path,
        default=Path("data/transfer"),
        metavar="DIR",
        help="folder of the trained agents; default: data/transfer",
    )
    trying.add_argument(
        "-o", "--output", type=Path, default=Path("transfer.md"), metavar="FILE", help="default: transfer.md"
    )
    exclusive = trying.add_mutually_exclusive_group()
    exclusive.add_argument(
        "--agents-only", action="store_true", help="only evaluate agents elsewhere; train none on another run's reward"
    )
    exclusive.add_argument(
        "--rewards-only",
        action="store_true",
        help="only train agents on other runs' rewards, also where the runs' own agents do not fit",
    )
    trying.set_defaults(run=_transfer)


def _run(options: argparse.Namespace) -> int:
    from laurel.data.manifest import read_manifest
    from laurel.evaluation.summary import METRICS, REPORT, read_metrics, table
    from laurel.params import load_params
    from laurel.stages.description import described
    from laurel.stages.preflight import check_run
    from laurel.stages.project import REPORTS, places, run_project

    log_warnings()
    folder = Path()
    outputs = places(folder)
    params = load_params(options.params)
    tell(described(params, check_run(params, gold=False), outputs))
    run_project(options.params, folder, force=options.force)
    metrics = read_metrics(outputs[REPORTS] / METRICS)
    shown = table(metrics, read_manifest(outputs[REPORTS])["notes"])
    report = (outputs[REPORTS] / REPORT).resolve()
    return say(f"{shown}\n\nreport:  {report.as_uri()}\ncompare: {ui_of(options.params)}\n")


def ui_of(params: Path) -> str:
    """Return the command that opens MLflow on a project's runs, which are beside its params."""
    return "laurel ui" if params == Path("params.yaml") else shlex.join(["laurel", "ui", "--params", str(params)])


def _benchmark(options: argparse.Namespace) -> int:
    from laurel.data.written import prepare
    from laurel.params.suite import load_suite
    from laurel.stages.suite import run_suite, write_page

    suite = load_suite(options.suite)
    if options.list:
        lines = [f"{run.name}: {run.params.env.id}, {', '.join(run.params.arm_names)}" for run in suite.runs]
        return say("".join(f"{line}\n" for line in lines))
    work = options.work or Path("data/suites") / suite.name
    output = options.output or options.suite.parent
    command = f"laurel benchmark {shlex.quote(str(options.suite))}"
    if options.page:
        prepare(output, output)
        write_page(suite, work, output, command, may_drop=False)
        failed: list[str] = []
    else:
        failed = run_suite(suite, work, output, command, only=options.only, report=tell)
    say(f"page: {output / suite.name}.md\n")
    if failed:
        chosen = len(set(options.only) or suite.runs)
        tell(f"laurel: {len(failed)} of {chosen} runs failed or were left out: {', '.join(failed)}.")
    return USAGE_ERROR if failed else 0


def _transfer(options: argparse.Namespace) -> int:
    from laurel.stages.transfer import read_sources, transfer

    sources = read_sources(options.runs, options.arm)
    named = " ".join(shlex.quote(str(run)) for run in options.runs)
    chosen = f" --arm {shlex.quote(options.arm)}" if options.arm else ""
    flag = " --agents-only" if options.agents_only else " --rewards-only" if options.rewards_only else ""
    command = f"laurel transfer {named}{chosen}{flag}"
    train, play = not options.agents_only, not options.rewards_only
    transfer(sources, options.work, options.output, command, tell, train=train, play_agents=play)
    return say(f"page: {options.output}\n")
