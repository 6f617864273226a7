"""`laurel pipeline compile` and `run`; `laurel.cli.pipeline_runs` submits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.cli import pipeline_runs
from laurel.cli.command import Commands, add_command, add_group, add_output, add_params, pipelines_module, whole
from laurel.cli.search import add_sweep, sweep_plan
from laurel.console import say, tell
from laurel.permissions import add_permissions

if TYPE_CHECKING:
    from laurel.pipelines.sweep import SweepPlan


def add(commands: Commands) -> None:
    """Add the commands of the pipeline on KFP."""
    summary = "The whole pipeline on Kubeflow Pipelines: compile it, run it here, submit it."
    actions = add_group(commands, "pipeline", summary)
    compiling = add_command(
        actions,
        "compile",
        "Write the pipeline as YAML for Kubeflow Pipelines or Vertex AI.",
        "laurel pipeline compile -o pipeline.yaml --image europe-docker.pkg.dev/me/laurel/python@sha256:...",
    )
    compiling.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the YAML to write")
    compiling.add_argument("--image", metavar="IMAGE", help="container image of the steps")
    compiling.add_argument("--gpu-image", metavar="IMAGE", help="image of steps with a GPU; default: TAG-gpu")
    compiling.add_argument(
        "--cluster", action="store_true", help="compile for Kubernetes, where every GPU is nvidia.com/gpu"
    )
    add_sweep(compiling)
    compiling.set_defaults(run=_compile_pipeline)
    running = add_command(
        actions, "run", "Run the pipeline here, with KFP's own runner.", "laurel pipeline run --runner process"
    )
    running.add_argument(
        "--runner",
        choices=["process", "docker"],
        default="process",
        help="run each step as a process or as a container",
    )
    add_permissions(running)
    running.add_argument("--image", metavar="IMAGE", help="image of the containers; default: that of `make image`")
    add_output(running, "data/pipeline")
    running.add_argument(
        "--resume", action="store_true", help="skip steps that an earlier run finished with the same inputs"
    )
    running.add_argument(
        "--retries", type=whole(0), default=0, metavar="N", help="retries of a failed step; default: 0"
    )
    add_sweep(running)
    running.set_defaults(run=_run_pipeline, again="With --resume, finished steps are not repeated.")
    for parser in (compiling, running):
        add_params(parser)
    pipeline_runs.add(actions)


def _compile_pipeline(options: argparse.Namespace) -> int:
    from laurel.params import load_params

    params = load_params(options.params)
    definition = pipelines_module("definition")
    image = options.image or definition.IMAGE
    form = {"image": image, "gpu_image": options.gpu_image, "cluster": options.cluster}
    definition.compile_pipeline(options.output, params, sweep=sweep_plan(options, params), **form)
    if options.cluster and params.pipeline.retries:
        tell(
            "note: if this file is uploaded by other means than laurel pipeline submit, a retried training step "
            "starts over; submit passes on pipeline.checkpoints, a folder that all steps see."
        )
    return say(f"{options.output}\n")


def _run_pipeline(options: argparse.Namespace) -> int:
    from laurel.data.json_file import read_json
    from laurel.evaluation.summary import METRICS, table
    from laurel.params import load_params
    from laurel.tracking.server import configure

    params = load_params(options.params)
    configure(options.params.parent)  # steps that are processes log where this machine's stages do
    sweep = sweep_plan(options, params)
    produced = pipelines_module("local").run_locally(
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
        return say(f"{_summary_of_sweep(produced, sweep)}\n")
    metrics = produced / METRICS
    return say(f"{table(read_json(metrics))}\n\nreport:  {produced / 'report.html'}\nmetrics: {metrics}\n")


def _summary_of_sweep(folder: Path, plan: SweepPlan) -> str:
    from laurel.data.manifest import read_manifest
    from laurel.tuning.results import summary
    from laurel.tuning.trials import TRIALS, read_trials

    return summary(folder, plan.sweep, read_trials(folder / TRIALS), read_manifest(folder)["notes"])
