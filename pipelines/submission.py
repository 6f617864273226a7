"""A submission to Vertex AI or a cluster, built from the options and validated.

All problems are reported at once, before anything is sent. Without client libraries and network access.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import getitem
from typing import Any

from laurel import __version__
from laurel.components.checkpoints import FOLDER as CHECKPOINTS
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import LaurelError, MissingHereError, ParamsError, closest
from laurel.params import Params, load_params, parse_params
from laurel.params.file import shown
from laurel.pipelines import forms
from laurel.pipelines.accelerators import ACCELERATORS, CLUSTER, check_count, check_size
from laurel.pipelines.definition import NAME, arguments, digest_of_sources
from laurel.pipelines.environment import chat_models, variables_of
from laurel.pipelines.estimate import cores, gigabytes
from laurel.pipelines.files import code_with_files, local_files
from laurel.pipelines.images import Needs, check_quantization, needed
from laurel.pipelines.machines import GPU_USERS, device_keys, idle, machine_of, uses_all
from laurel.pipelines.options import Findings, Options
from laurel.pipelines.sweep import SweepPlan, plan_sweep
from laurel.pipelines.template import (
    Spec,
    Task,
    check_arguments,
    compiled,
    compiled_sweep,
    completed,
    constant,
    images,
    read_template,
    tasks,
)
from laurel.stages.merge_agents import Branch
from laurel.stages.preflight import check_fit, check_parts
from laurel.stages.proposal_rounds import branches_beside
from laurel.tuning.plan import Search, sweep_of


class SubmissionError(LaurelError):
    """All problems that prevent a submission, one per line."""


@dataclass(frozen=True)
class Submission:
    """A checked submission, ready to be sent."""

    params: Params
    adapter: EnvAdapter | None
    """Of the environment; None where it is not installed here."""
    spec: Spec
    branches: Sequence[Branch]
    """Of the agents' training."""
    sweep: SweepPlan | None
    """The sweep that runs instead of the training; None without one."""
    arguments: Mapping[str, Any]
    title: str
    labels: Mapping[str, str]
    cluster_secrets: Mapping[str, tuple[str, str]]
    """Variable -> name of a Kubernetes secret and key in it."""
    images: Mapping[str, Needs]
    """Image -> what its steps need of it."""
    remarks: Sequence[str]
    """Notes to the user that are not errors."""


def make_submission(options: Options, environment: Mapping[str, str]) -> Submission:
    """Make and check the request.

    Args:
        environment: the user's variables; MLFLOW_TRACKING_URI is what the steps may get of them.

    Raises:
        SubmissionError: a line for everything that is wrong.
    """
    findings = Findings()
    _check_names(options, findings)
    variables, cluster_secrets = variables_of(options, environment, findings)
    params = findings.attempt(lambda: _params(options))
    search = options.search
    sweep = findings.attempt(lambda: plan_sweep(params, search)) if params and search else None
    spec = findings.attempt(lambda: _pipeline(options, params, sweep)) if params else None
    planned = adapter = None
    if params and spec:
        if options.template:
            sweep = findings.attempt(lambda: _sweep_of_template(spec, params))
        _check_files(params, options, findings)
        if not options.vertex:
            findings.remarks.append("the image was not inspected: only the cluster has credentials to pull it.")
        adapter = _check_fit(params, findings)
        if params.pipeline.checkpoints:
            variables[CHECKPOINTS] = params.pipeline.checkpoints
        elif options.vertex:  # where a bucket is mounted as a folder
            variables[CHECKPOINTS] = f"/gcs/{(options.bucket or '').removeprefix('gs://')}/checkpoints"
        elif params.pipeline.retries:
            findings.remarks.append(
                "a training step that is retried starts over. To resume it, set pipeline.checkpoints to a folder that "
                "all steps see, such as a mounted volume."
            )
        variables.update(chat_models(options, params, environment, {*variables, *cluster_secrets}, findings))
        planned = findings.attempt(lambda: _branches(spec, params))
        _check_machines(spec, params, options, findings)
        findings.check(check_quantization(spec, params))
    if findings.problems or params is None or spec is None or planned is None:
        raise SubmissionError("\n".join(findings.problems))
    code_version = options.code_version or _code_of(options.image or "", params)
    return Submission(
        params=params,
        adapter=adapter,
        spec=completed(spec, variables, cache=options.cache),
        branches=planned,
        sweep=sweep,
        arguments={**arguments(params), "code_version": code_version},
        title=f"{NAME} {params.env.id}"[:128],
        labels={"laurel-version": _label(__version__), "env": _label(params.env.id)},
        cluster_secrets=cluster_secrets,
        images=needed(spec, params, adapter),
        remarks=findings.remarks,
    )


def _code_of(image: str, params: Params) -> str:
    """Return an identifier of the code in an image: the image's digest, or else a digest of the local sources and of
    the files that parameters name, from which it is built.

    A tag alone may stand for another image tomorrow, and the cache would not know.
    """
    return image.partition("@")[2] or code_with_files(digest_of_sources(), params)


def _check_names(options: Options, findings: Findings) -> None:
    if options.vertex:
        findings.check(forms.project(options.project))
        findings.check(forms.region(options.region))
        findings.check(forms.bucket(options.bucket))
        findings.check(options.service_account and forms.service_account(options.service_account))
        findings.check(options.network and forms.network(options.network))
        findings.check(options.api_endpoint and forms.api_endpoint(options.api_endpoint))
    else:
        findings.check(forms.host(options.host or ""))
    if options.schedule is not None:
        findings.check(forms.cron(options.schedule, vertex=options.vertex))
    if options.template is None:
        findings.check(forms.image(options.image, vertex=options.vertex))
        findings.check(options.gpu_image and forms.image(options.gpu_image, vertex=options.vertex))
    else:
        compiled_in = {"image": options.image, "gpu-image": options.gpu_image, "gpu": options.gpu}
        for option, given in {**compiled_in, "sweep": options.search}.items():
            if given:
                findings.check(
                    f"--{option} cannot be used with --template, which already contains it: leave out one of them."
                )


def _params(options: Options) -> Params:
    """Read the parameters; --gpu adds accelerators to the steps that can use one, and lets them."""
    params = load_params(options.params)
    if options.gpu is None or options.template:
        return params
    kind, colon, count = options.gpu.partition(":")
    if colon and not count.isdecimal():
        raise ParamsError(f"--gpu is {shown(options.gpu)}, but must be TYPE or TYPE:COUNT, e.g. --gpu L4:1")
    content = params.dump()
    for step in GPU_USERS:
        if not (keys := device_keys(params, step)):
            continue  # it would stand idle
        machine = content["pipeline"]["resources"].setdefault(step, {})
        machine.update(accelerator=kind, accelerators=int(count or 1))
        for key in keys:
            *sections, last = key.split(".")
            section = reduce(getitem, sections, content)
            section[last] = "cuda"  # where an image for the CPU says so at once; auto would leave the GPU idle
    try:
        return parse_params(content, "--gpu")
    except ParamsError as error:  # the same for each of the steps
        raise ParamsError(str(error).splitlines()[0]) from None


def _pipeline(options: Options, params: Params, sweep: SweepPlan | None) -> Spec:
    if options.template is None:
        form = {"gpu_image": options.gpu_image, "cluster": not options.vertex, "sweep": sweep}
        return compiled(params, options.image or "", **form)
    spec = read_template(options.template)
    check_arguments(spec, arguments(params), str(options.template))
    for image in images(spec):
        if problem := forms.image(image, vertex=options.vertex):
            raise ParamsError(f"{options.template}: {problem}")
    return spec


def _sweep_of_template(spec: Spec, params: Params) -> SweepPlan | None:
    """Return the sweep that a template was compiled with, whose arm the parameters must have."""
    if sweep := compiled_sweep(spec):
        sweep_of(params, Search(arm=sweep.sweep.arm, seeds=sweep.sweep.seeds))
    return sweep


def _check_files(params: Params, options: Options, findings: Findings) -> None:
    """Raise if parameters name local files, unless the user says that the image contains them."""
    local = local_files(params, vertex=options.vertex)
    for key, file in local.items():
        if key not in options.in_image:
            bucket = " or, on Vertex AI, in a bucket below /gcs/" if options.vertex and key != "env.id" else ""
            findings.check(
                f"{key} is {file}, which is on this machine: steps only find what is in their image{bucket}. If the "
                f"image holds it at the same place, add --in-image {key}"
            )
    for key in options.in_image:
        if key not in local:
            findings.check(
                f"--in-image {shown(key)} names no parameter that is a file or folder here.{closest(key, local)}"
            )


def _check_fit(params: Params, findings: Findings) -> EnvAdapter | None:
    """Run the checks of the step `plan` that are possible here; return the environment's adapter."""
    try:
        adapter = adapter_for(params.env, with_action=params.caption.with_action)
        check_fit(params, adapter)
        return adapter
    except MissingHereError as error:
        findings.remarks.append(
            f"whether the parameters fit together was not checked here: {error} The step plan does so, in the image "
            "and before any other step."
        )
    except LaurelError as error:
        findings.problems.extend(str(error).splitlines())
    return None


def _branches(spec: Spec, params: Params) -> list[Branch]:
    """List the branches of training, as the pipeline's first step will."""
    check_parts(params, constant(spec, "plan", "collect_parts"))
    return branches_beside(params, constant(spec, "plan", "rounds"), constant(spec, "plan", "seeds_per_step"))


def _check_machines(spec: Spec, params: Params, options: Options, findings: Findings) -> None:
    """Raise for machines that Vertex AI does not have, and for idle accelerators."""
    by_name = {kind.vertex: name for name, kind in ACCELERATORS.items()}
    for task in dict.fromkeys(tasks(spec)):  # of the rounds of an actor, each once
        kind, count = task.machine.accelerator, task.machine.accelerators
        known = by_name.get(kind) if options.vertex else None
        if count:
            _check_accelerators(task, params, options, findings)
        if options.vertex and (known or not count):
            size = cores(task.machine.cpu), gigabytes(task.machine.memory)
            findings.attempt(partial(check_size, task.name, *size, known, count))


def _check_accelerators(task: Task, params: Params, options: Options, findings: Findings) -> None:
    kind, count = task.machine.accelerator, task.machine.accelerators
    by_name = {kind.vertex: name for name, kind in ACCELERATORS.items()}
    if not options.vertex and kind != CLUSTER:
        findings.check(f"step {task.name} asks for {kind}, but on a cluster a GPU is {CLUSTER}: leave out --template.")
    elif options.vertex and kind not in by_name:
        findings.check(
            f"step {task.name} asks for {kind}, which Vertex AI does not have. It has: {', '.join(ACCELERATORS)}."
        )
    elif options.vertex:
        findings.attempt(partial(check_count, task.name, by_name[kind], count))
    if options.template and (reason := idle(params, machine_of(task.name))):
        findings.check(f"step {task.name} of {options.template} asks for an accelerator, {reason}")
    if count > 1 and not uses_all(params, task.name):
        findings.remarks.append(f"step {task.name} asks for {count} accelerators and uses one of them.")


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]
