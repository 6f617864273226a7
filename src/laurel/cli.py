"""The `laurel` command: arguments in, a stage out. Imports nothing heavy before a stage is to run."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel import __version__
from laurel.annotate_cli import add_actions
from laurel.arguments import whole
from laurel.classics_cli import add_classics
from laurel.cloud import pipelines_module
from laurel.console import USAGE_ERROR, say
from laurel.errors import DataError, LaurelError
from laurel.pipeline_cli import add_commands
from laurel.play_cli import add_play
from laurel.prompt_cli import add_prompt
from laurel.tune_cli import add_sweep, add_tune, sweep_plan

if TYPE_CHECKING:
    from laurel.pipelines.sweep import SweepPlan

INTERRUPTED = 130
AGAIN = "Run the same command again to go on."
"""What to do after Ctrl-C, unless a command says otherwise."""


@dataclass(frozen=True)
class Stage:
    """A stage's command: what it reads, where it writes, how it is explained."""

    name: str
    summary: str
    inputs: tuple[str, ...]
    output: str
    example: str

    @property
    def module(self) -> str:
        return f"laurel.stages.{self.name.replace('-', '_')}"


PLACES = {
    "trajectories": "data/trajectories",
    "captions": "data/captions",
    "preferences": "data/preferences",
    "reward": "data/reward",
    "agents": "data/agents",
}
"""Where stages read their inputs unless told otherwise."""

RESPONSES = "responses/responses.db"
"""Where language models' answers are kept unless params.yaml says otherwise."""

STAGES = (
    Stage(
        "collect",
        "Step many environments with a policy and keep every transition.",
        (),
        "data/trajectories",
        "laurel collect --output data/trajectories",
    ),
    Stage(
        "caption",
        "Say every transition in words and count the distinct captions.",
        ("trajectories",),
        "data/captions",
        "laurel caption --trajectories data/trajectories",
    ),
    Stage(
        "annotate",
        "Ask an annotator which of two captions is better.",
        ("captions",),
        "data/preferences",
        "laurel annotate --captions data/captions",
    ),
    Stage(
        "train-reward",
        "Fit a reward model to the preferences.",
        ("trajectories", "captions", "preferences"),
        "data/reward",
        "laurel train-reward --preferences data/preferences",
    ),
    Stage(
        "train-agents",
        "Train agents of every arm with every seed.",
        ("captions", "preferences", "reward"),
        "data/agents",
        "laurel train-agents --reward data/reward --output data/agents",
    ),
    Stage(
        "evaluate",
        "Play fresh episodes, compare the arms, write the report.",
        ("trajectories", "captions", "preferences", "reward", "agents"),
        "reports",
        "laurel evaluate --agents data/agents --output reports",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, 2 for what the user can mend, 130 for Ctrl-C."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:
        raise SystemExit(say("") or end.code) from None  # argparse has printed, but not yet written
    try:
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

    ui = _command(commands, "ui", "Open MLflow's pages on the runs.", "laurel ui --port 5001")
    ui.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="whose project's runs")
    ui.add_argument("--port", type=whole(1, 65535), default=5000, metavar="N", help="default: 5000")
    ui.set_defaults(run=_ui)

    _add_pipeline(commands)
    add_prompt(commands, _command, say)
    add_classics(commands, _command, say)
    add_play(commands, _command, say)
    add_tune(commands, _command, say, PLACES)

    example = "laurel export minari doorkey/random-v0 --output minari"
    summary = "Write data in other libraries' formats."
    export = commands.add_parser("export", help=summary, **_explained(summary, example))
    formats = export.add_subparsers(dest="format", metavar="FORMAT", required=True)
    minari = _command(formats, "minari", "Write trajectories as a Minari data set.", example)
    minari.add_argument("dataset", metavar="NAME", help="name of the data set, e.g. doorkey/random-v0")
    minari.add_argument(
        "--trajectories",
        type=Path,
        default=Path(PLACES["trajectories"]),
        metavar="DIR",
        help=f"default: {PLACES['trajectories']}",
    )
    minari.add_argument("--output", type=Path, default=Path("minari"), metavar="DIR", help="folder of Minari data sets")
    minari.set_defaults(run=_export_minari)
    responses = _command(
        formats,
        "responses",
        "Write every answer of a language model as one Parquet file.",
        "laurel export responses --output responses.parquet",
    )
    responses.add_argument(
        "--responses", type=Path, default=Path(RESPONSES), metavar="FILE", help=f"the store; default: {RESPONSES}"
    )
    responses.add_argument(
        "--output", type=Path, default=Path("responses.parquet"), metavar="FILE", help="default: responses.parquet"
    )
    responses.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="prices of your own, as annotate.budget.prices; default: the packaged",
    )
    responses.set_defaults(run=_export_responses)
    return parser


def _add_pipeline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of the pipeline on KFP."""
    summary = "The whole pipeline on Kubeflow Pipelines: compile it, run it here, submit it."
    pipeline = commands.add_parser("pipeline", help=summary, description=summary)
    actions = pipeline.add_subparsers(dest="action", metavar="ACTION", required=True)
    compiling = _command(
        actions,
        "compile",
        "Write the pipeline as YAML for Kubeflow Pipelines or Vertex AI.",
        "laurel pipeline compile -o pipeline.yaml --image europe-docker.pkg.dev/me/laurel/python@sha256:...",
    )
    compiling.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the YAML to write")
    compiling.add_argument("--image", metavar="IMAGE", help="what the steps run in")
    compiling.add_argument("--cluster", action="store_true", help="for Kubernetes, where any GPU is nvidia.com/gpu")
    add_sweep(compiling)
    compiling.set_defaults(run=_compile_pipeline)
    running = _command(
        actions, "run", "Run the pipeline here, with KFP's own runner.", "laurel pipeline run --runner process"
    )
    running.add_argument(
        "--runner", choices=["process", "docker"], default="process", help="what a step is: a process, or a container"
    )
    running.add_argument("--image", metavar="IMAGE", help="what containers are made from; default: of `make image`")
    running.add_argument(
        "--output", type=Path, default=Path("data/pipeline"), metavar="DIR", help="default: data/pipeline"
    )
    running.add_argument("--resume", action="store_true", help="do not repeat what an earlier run has done alike")
    running.add_argument(
        "--retries", type=whole(0), default=0, metavar="N", help="further attempts at a step; default: 0"
    )
    add_sweep(running)
    running.set_defaults(run=_run_pipeline, again="With --resume, what is done is not done again.")
    for command in (compiling, running):
        command.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="the parameters")
    add_commands(lambda name, summary, example: _command(actions, name, summary, example))


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
    from laurel.tracking import configure

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    stage: Stage = options.stage
    params = load_params(options.params)
    configure(options.params.parent)
    inputs = {name: getattr(options, name) for name in stage.inputs}
    importlib.import_module(stage.module).run(params, **inputs, output=options.output)
    return 0


def _show(options: argparse.Namespace) -> int:
    from laurel.data.show import describe_directory

    return say(f"{describe_directory(options.directory)}\n")


def _table(options: argparse.Namespace) -> int:
    from laurel.data.directory import read_json
    from laurel.evaluation.summary import markdown_table, table

    file = options.directory / "metrics.json"
    metrics = read_json(file)
    if not isinstance(metrics, dict) or not isinstance(metrics.get("arms"), dict):
        raise DataError(f"{file}: does not hold the metrics of a report. Run laurel evaluate again.")
    return say(f"{markdown_table(metrics) if options.markdown else table(metrics)}\n")


def _ui(options: argparse.Namespace) -> int:
    from laurel.tracking import URI, configure

    configure(options.params.parent)
    uri = os.environ[URI]
    if uri.startswith("http"):
        say(f"The runs are logged to a server: open {uri.split('@')[-1]} in a browser.\n")
    else:
        say(f"MLflow at http://127.0.0.1:{options.port} (Ctrl-C ends it)\n")
        server = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(options.port)]
        os.execv(sys.executable, server)  # noqa: S606  the server takes this process's place, and its Ctrl-C
    return 0


def _compile_pipeline(options: argparse.Namespace) -> int:
    from laurel.params import load_params

    params = load_params(options.params)
    definition = pipelines_module("definition")
    image = options.image or definition.IMAGE
    form = {"image": image, "cluster": options.cluster, "sweep": sweep_plan(options, params)}
    definition.compile_pipeline(options.output, params, **form)
    return say(f"{options.output}\n")


def _run_pipeline(options: argparse.Namespace) -> int:
    from laurel.data.directory import read_json
    from laurel.evaluation.summary import table
    from laurel.params import load_params
    from laurel.tracking import configure

    params = load_params(options.params)
    configure(options.params.parent)  # steps that are processes log where this machine's stages do
    sweep = sweep_plan(options, params)
    made = pipelines_module("local").run_locally(
        params,
        options.output,
        runner=options.runner,
        image=options.image,
        resume=options.resume,
        retries=options.retries,
        debug=options.debug,
        sweep=sweep,
    )
    if sweep is not None:
        return say(f"{_summary_of_sweep(made, sweep)}\n")
    metrics = made / "metrics.json"
    return say(f"{table(read_json(metrics))}\n\nreport:  {made / 'report.html'}\nmetrics: {metrics}\n")


def _summary_of_sweep(made: Path, plan: SweepPlan) -> str:
    from laurel.data.directory import read_manifest
    from laurel.tuning.results import summary
    from laurel.tuning.trials import TRIALS, read_trials

    return summary(made, plan.sweep, read_trials(made / TRIALS), read_manifest(made)["notes"])


def _export_minari(options: argparse.Namespace) -> int:
    import warnings

    from laurel.data.minari import export

    warnings.filterwarnings("ignore", module="minari")  # that a data set names no author, and the like
    counts = export(options.trajectories, options.dataset, options.output.resolve())
    written = ", ".join(f"{value} {key}" for key, value in counts.items())
    return say(f"{written} in {options.output / options.dataset}\n")


def _export_responses(options: argparse.Namespace) -> int:
    from laurel.llm.responses_export import export_responses

    return say(f"{export_responses(options.responses, options.output, options.prices)} answers in {options.output}\n")
