"""`laurel pipeline submit`, `status` and `cancel`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.cli.command import Commands, add_command, add_params, number, pipelines_module
from laurel.cli.search import add_sweep, sweep_search
from laurel.console import say, tell
from laurel.errors import LaurelError
from laurel.permissions import add_permissions

if TYPE_CHECKING:
    from laurel.pipelines.cluster import Cluster
    from laurel.pipelines.follow import Progress
    from laurel.pipelines.options import Options
    from laurel.pipelines.request import Place
    from laurel.pipelines.submission import Submission
    from laurel.pipelines.vertex import Vertex

    Backend = Vertex | Cluster

RUN_FAILED = 1
INTERRUPTED = 130
PROJECT, REGION = "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_REGION"
OF_VERTEX = ("project", "region", "bucket", "network", "api_endpoint", "prices")
OF_CLUSTER = ("namespace", "experiment")
OF_DRY_RUN = ("steps_per_second", "prices")
OF_ONE_RUN = ("wait", "again")


def add(actions: Commands) -> None:
    """Add submit, status and cancel to `laurel pipeline`."""
    submit = add_command(
        actions,
        "submit",
        "Start the pipeline on Vertex AI, or on a cluster with Kubeflow Pipelines.",
        "laurel pipeline submit --project my-project --region europe-west4 --bucket gs://my-bucket/laurel \\\n"
        "    --image europe-west4-docker.pkg.dev/my-project/laurel/laurel-python:1 --dry-run",
    )
    add_params(submit)
    add_permissions(submit)
    submit.add_argument("--image", metavar="IMAGE", help="image of the steps, by digest or by a tag other than latest")
    submit.add_argument(
        "--gpu-image",
        metavar="IMAGE",
        help="image of steps with a GPU; default: the tag of --image with -gpu",
    )
    submit.add_argument("--template", type=Path, metavar="FILE", help="a pipeline that `laurel pipeline compile` wrote")
    submit.add_argument(
        "--gpu",
        metavar="TYPE[:COUNT]",
        help="accelerators for annotate, train-reward and train-agents, and device: cuda there, e.g. L4:1; "
        "default: the params' values",
    )
    submit.add_argument("--service-account", metavar="ACCOUNT", help="service account of the steps")
    submit.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME=SECRET",
        help="set a variable of the steps from projects/P/secrets/S[/versions/V], or on a cluster from SECRET/KEY",
    )
    submit.add_argument("--schedule", metavar="CRON", help="run on a schedule, e.g. '0 3 * * 1', instead of now")
    submit.add_argument(
        "--code-version",
        metavar="TEXT",
        help="version for the steps' cache; default: the image's digest, or else one of Laurel's files here and of "
        "those that the parameters name",
    )
    submit.add_argument(
        "--in-image",
        action="append",
        default=[],
        metavar="KEY",
        help="a parameter that names a file or folder in the image, e.g. env.id",
    )
    submit.add_argument(
        "--again", action="store_true", help="start another run even if the same request is still running"
    )
    submit.add_argument("--no-cache", action="store_true", help="run every step, without the cache")
    submit.add_argument(
        "--dry-run",
        nargs="?",
        const="short",
        choices=["short", "full"],
        help="print the request (full: with the whole pipeline) and what will run, without a network connection",
    )
    submit.add_argument(
        "--steps-per-second",
        type=number(1e-3, 1e9),
        metavar="N",
        help="--dry-run: environment steps per second of one training task, to estimate hours and cost",
    )
    submit.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="--dry-run: prices of Vertex AI's machines, in the form of pipelines/prices.yaml; default: that file",
    )
    submit.add_argument("--wait", action="store_true", help="follow the run; exit code 1 if it does not succeed")
    submit.add_argument("--bucket", metavar="gs://...", help="Vertex AI: bucket for the steps' files")
    submit.add_argument("--network", metavar="NETWORK", help="Vertex AI: projects/NUMBER/global/networks/NAME")
    submit.add_argument("--experiment", metavar="NAME", help="cluster: experiment of the run")
    add_sweep(submit)
    submit.set_defaults(run=_submit)

    status = add_command(
        actions, "status", "Show the progress of a submitted run.", "laurel pipeline status JOB --wait"
    )
    status.add_argument("--wait", action="store_true", help="follow the run; exit code 1 if it does not succeed")
    status.set_defaults(run=_status)
    cancel = add_command(actions, "cancel", "Stop a submitted run.", "laurel pipeline cancel JOB")
    cancel.set_defaults(run=_cancel)
    for command in (status, cancel):
        command.add_argument("job", metavar="JOB", help="the job that submit printed")
    for command in (submit, status, cancel):
        command.add_argument("--project", metavar="ID", help=f"Vertex AI: project; default: {PROJECT}")
        command.add_argument("--region", metavar="REGION", help=f"Vertex AI: e.g. europe-west4; default: {REGION}")
        command.add_argument("--api-endpoint", metavar="URL", help="Vertex AI: a different API address")
        command.add_argument(
            "--host", metavar="URL", help="address of a cluster's Kubeflow Pipelines, instead of Vertex AI"
        )
        command.add_argument("--namespace", metavar="NAME", help="cluster: namespace of the run")
    for command in (submit, status):
        command.add_argument(
            "--poll", type=number(0.05, 3600), default=15.0, metavar="SECONDS", help="--wait: default: 15"
        )


def _submit(options: argparse.Namespace) -> int:
    _check_exclusive(options)
    submission = pipelines_module("submission").make_submission(_options(options), os.environ)
    _tell_notes(*submission.remarks)
    return _submit_to_cluster(options, submission) if options.host else _submit_to_vertex(options, submission)


def _options(options: argparse.Namespace) -> Options:
    """Return the options of a submission, most of which have the names that they have on the command line."""
    values = {**vars(options), "project": _project(options), "region": _region(options)}
    values |= {"cache": not options.no_cache, "secrets": options.secret}
    values["search"] = sweep_search(options)
    kind = pipelines_module("submission").Options
    made: Options = kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})
    return made


def _check_exclusive(options: argparse.Namespace) -> None:
    def given(names: Sequence[str]) -> str:
        return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(options, name, None))

    if options.host and (named := given(OF_VERTEX)):
        raise LaurelError(f"{named} is for Vertex AI and --host for a cluster: leave out one of them.")
    if not options.host and (named := given(OF_CLUSTER)):
        raise LaurelError(f"{named} is for a cluster: add --host URL, or leave it out.")
    if (named := given(OF_DRY_RUN)) and not options.dry_run:
        raise LaurelError(f"{named} is for an estimate before anything is sent: add --dry-run, or leave it out.")
    if getattr(options, "schedule", None) and (named := given(OF_ONE_RUN)):
        raise LaurelError(f"{named} is for a run that starts now, not for --schedule: leave out one of them.")


def _submit_to_vertex(options: argparse.Namespace, submission: Submission) -> int:
    request = pipelines_module("request")
    place: Place = request.Place(_project(options), _region(options), options.api_endpoint)
    for name, chosen, variable in (("project", options.project, PROJECT), ("region", options.region, REGION)):
        if not chosen:
            tell(f"note: {name} {os.environ[variable]} (from {variable}).")
    body = request.job_request(
        submission.spec,
        submission.arguments,
        title=submission.title,
        bucket=options.bucket,
        labels=submission.labels,
        service_account=options.service_account,
        network=options.network,
    )
    job = request.new_job_id("laurel")
    if options.schedule:
        body = request.schedule_request(place, body, options.schedule)
        url = f"{place.address}/v1/{place.parent}/schedules"
    else:
        url = f"{place.address}/v1/{place.parent}/pipelineJobs?pipelineJobId={job}"
    if options.dry_run:
        return _dry_run(submission, url, body, options, region=place.region)

    backend = pipelines_module("vertex").Vertex(place)
    _tell_notes(
        backend.check_bucket(options.bucket),
        *(backend.check_image(image, needs) for image, needs in submission.images.items()),
    )
    if options.schedule:
        name = _existing_schedule(backend.scheduled(body)) or backend.schedule(body)
        say(f"schedule: {name}\npage:     {place.page_of_schedule(name)} (pause or delete it there)\n")
        return 0
    job = _active_run(options, backend, body) or backend.submit(body, job).rpartition("/")[2]
    return _submitted(options, backend, job, _named(job, place), place.page(job))


def _submit_to_cluster(options: argparse.Namespace, submission: Submission) -> int:
    request = pipelines_module("request")
    body = request.run_request(
        submission.spec,
        request.platform_spec(submission.spec, submission.cluster_secrets),
        submission.arguments,
        title=submission.title,
        service_account=options.service_account,
    )
    url = f"{options.host.rstrip('/')}/apis/v2beta1/runs"
    if options.schedule:
        body = request.recurring_request(body, options.schedule)
        url = f"{options.host.rstrip('/')}/apis/v2beta1/recurringruns"
    if options.dry_run:
        return _dry_run(submission, url, body, options, region=None)

    backend = pipelines_module("cluster").Cluster(options.host, options.namespace)
    _tell_notes(backend.check_version())
    experiment = options.experiment or submission.params.tracking.experiment
    if options.schedule:
        say(f"recurring run: {_existing_schedule(backend.scheduled(body)) or backend.schedule(body, experiment)}\n")
        return 0
    run = _active_run(options, backend, body) or backend.submit(body, experiment)
    namespace = f" --namespace {options.namespace}" if options.namespace else ""
    return _submitted(options, backend, run, f"{run} --host {options.host}{namespace}", backend.page(run))


def _active_run(options: argparse.Namespace, backend: Any, body: dict[str, Any]) -> str | None:
    """Return the run that an earlier submission of the same request has started, if it is still active."""
    if options.again or not (run := backend.running(body)):
        return None
    tell(
        "note: this request was sent before and its run is still active, so it is not submitted again. To start "
        "another run, add --again"
    )
    return str(run)


def _existing_schedule(schedule: str | None) -> str | None:
    """Return an existing schedule of the same request, if there is one, and tell the user."""
    if schedule:
        tell("note: this request was sent before and its schedule is still active, so no second one is made.")
    return schedule


def _tell_notes(*remarks: str | None) -> None:
    for remark in filter(None, remarks):
        tell(f"note: {remark}")


def _dry_run(
    submission: Submission, url: str, body: dict[str, Any], options: argparse.Namespace, *, region: str | None
) -> int:
    """Print the request to standard output, and what will run to standard error."""
    estimate = pipelines_module("estimate")
    run = estimate.estimate(
        submission.spec,
        submission.params,
        submission.branches,
        region=region,
        adapter=submission.adapter,
        sweep=submission.sweep,
        speed=options.steps_per_second,
        prices=options.prices or estimate.PRICES,
    )
    tell(f"{run}\nnothing was sent.\n")
    shown = body if options.dry_run == "full" else _shortened(body, submission.spec, estimate.summary(submission.spec))
    return say(json.dumps({"method": "POST", "url": url, "body": shown}, indent=2) + "\n")


def _shortened(body: Any, spec: Any, summary: Any) -> Any:
    """Replace the pipeline's specification anywhere in the request."""
    if body is spec:
        return summary
    return {key: _shortened(value, spec, summary) for key, value in body.items()} if isinstance(body, dict) else body


def _submitted(options: argparse.Namespace, backend: Backend, job: str, named: str, page: str) -> int:
    """Print what was started, and how to follow and cancel it."""
    status, stop = _commands(named)
    say(f"job:    {job}\npage:   {page}\nfollow: {status} --wait\ncancel: {stop}\n")
    with _run_continues(named):
        return _follow(options, backend, job) if options.wait else 0


def _commands(named: str) -> tuple[str, str]:
    return f"laurel pipeline status {named}", f"laurel pipeline cancel {named}"


@contextmanager
def _run_continues(named: str) -> Iterator[None]:
    """If Ctrl-C or a lost connection ends the block, tell the user that the run continues."""
    status, stop = _commands(named)
    try:
        yield
    except KeyboardInterrupt:
        tell(f"laurel: the run continues. Follow it: {status} --wait\n        Cancel it: {stop}")
        raise SystemExit(INTERRUPTED) from None
    except LaurelError as error:  # only the connection failed, not the run
        raise LaurelError(f"{error} The run continues. Follow it: {status} --wait") from None


def _follow(options: argparse.Namespace, backend: Backend, job: str) -> int:
    """Print every change until the run has ended; return the exit code."""
    progress: Progress = pipelines_module("follow").follow(lambda: backend.look(job), tell, seconds=options.poll)
    for line in progress.failures():
        tell(line)
    return 0 if progress.state == "succeeded" else RUN_FAILED


def _status(options: argparse.Namespace) -> int:
    backend, named = _connect(options)
    if options.wait:
        with _run_continues(named):
            return _follow(options, backend, options.job)
    say("\n".join(backend.look(options.job).summary()) + "\n")
    return 0


def _cancel(options: argparse.Namespace) -> int:
    backend, named = _connect(options)
    backend.cancel(options.job)
    say(f"cancellation requested. Status: laurel pipeline status {named}\n")
    return 0


def _connect(options: argparse.Namespace) -> tuple[Backend, str]:
    """Connect to where a run is; return that, and the options that name the run."""
    _check_exclusive(options)
    forms = pipelines_module("forms")
    if options.host:
        if problem := forms.host(options.host):
            raise LaurelError(problem)
        namespace = f" --namespace {options.namespace}" if options.namespace else ""
        backend: Backend = pipelines_module("cluster").Cluster(options.host, options.namespace)
        return backend, f"{options.job} --host {options.host}{namespace}"
    project, region = _project(options), _region(options)
    problems = [forms.project(project), forms.region(region)]
    if not any(problems):
        problems.append(forms.job(options.job, region))
    if options.api_endpoint:
        problems.append(forms.api_endpoint(options.api_endpoint))
    if any(problems):
        raise LaurelError("\n".join(filter(None, problems)))
    place = pipelines_module("request").Place(project, region, options.api_endpoint)
    return pipelines_module("vertex").Vertex(place), _named(options.job, place)


def _named(job: str, place: Place) -> str:
    """Return the options that name a run of Vertex AI to `status` and `cancel`."""
    endpoint = f" --api-endpoint {place.endpoint}" if place.endpoint else ""
    return f"{job} --project {place.project} --region {place.region}{endpoint}"


def _project(options: argparse.Namespace) -> str | None:
    return options.project or os.environ.get(PROJECT)


def _region(options: argparse.Namespace) -> str | None:
    return options.region or os.environ.get(REGION)
