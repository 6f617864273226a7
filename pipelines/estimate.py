"""Estimate of a submitted run: steps, tasks, machines, environment steps, and cost by a dated price table.

Reads only the compiled pipeline and the parameters. The duration of steps is unknown, so prices are per hour; the
duration of training is computed from a speed measured by the user, if given.
"""

from __future__ import annotations

import contextlib
import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from laurel.console import aligned
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, ParamsError
from laurel.llm.actor_size import described
from laurel.params import Params
from laurel.params.language_actor import GLAMParams, LanguageActorParams
from laurel.params.pipeline import short_name
from laurel.params.search import with_values
from laurel.pipelines.accelerators import ACCELERATORS, AcceleratorKind
from laurel.pipelines.machines import AGENT_TRAINERS
from laurel.pipelines.sweep import SweepPlan
from laurel.pipelines.template import Machine, Spec, Task, constant, tasks
from laurel.stages.merge_agents import Branch
from laurel.stages.workload import Training, agents_and_steps, pairs_asked, questions_in_training, trainings
from laurel.tuning.candidates import Candidate
from laurel.tuning.plan import narrowed

PRICES = Path(__file__).resolve().with_name("prices.yaml")
HEADER = ("step", "tasks", "cpu", "memory", "accelerator", "machine", "cached", "tries")
DECIMAL = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3, "P": 1e6, "E": 1e9}


class Price(BaseModel):
    """Machine prices of a region, with their date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    region: str
    date: date
    source: str
    currency: str
    run: float
    cpu_hour: float
    memory_hour: float
    accelerator_hour: Mapping[Annotated[str, BeforeValidator(short_name)], float] = {}

    def hour(self, machine: Machine) -> float | None:
        """Return the price of a machine per hour, whole where it is sold in fixed sizes; None if the price of its
        accelerator is unknown.
        """
        cpu, memory = cores(machine.cpu), gigabytes(machine.memory)
        if kind := _kind(machine):
            cpu, memory = kind.size(machine.accelerators, cpu, memory)
        cost = self.cpu_hour * cpu + self.memory_hour * memory
        if machine.accelerators:
            if (name := short_name(machine.accelerator)) not in self.accelerator_hour:
                return None
            cost += self.accelerator_hour[name] * machine.accelerators
        return cost


def read_price(region: str, file: Path) -> Price | None:
    """Return the latest price of a region, if there is one.

    Raises:
        DataError: the table is malformed.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        prices = TypeAdapter(list[Price]).validate_python(content)
    except (OSError, yaml.YAMLError) as error:
        raise DataError(f"{file}: cannot be read ({' '.join(str(error).split())[:200]}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{file}: {place or 'it'} does not have the form described in its comment ({first['msg']})."
        ) from None
    return max((price for price in prices if price.region == region), key=lambda price: price.date, default=None)


def estimate(
    spec: Spec,
    params: Params,
    branches: Sequence[Branch],
    *,
    region: str | None,
    adapter: EnvAdapter | None = None,
    sweep: SweepPlan | None = None,
    speed: float | None = None,
    prices: Path = PRICES,
) -> str:
    """Describe what will run, as lines of text.

    Args:
        branches: of the training of agents, which the pipeline's first step lists.
        region: of Vertex AI; None for a cluster, which has no price.
        adapter: of the environment; None where it is not installed here.
        sweep: the candidates that are tried instead of training all arms.
        speed: environment steps a second of one task that trains agents, as the user has measured it.
        prices: the table of prices.

    Raises:
        DataError: the table is malformed.
    """
    price = read_price(region, prices) if region else None
    repeated = Counter(tasks(spec))  # the rounds of an actor are in the graph one after another
    steps = list(repeated)
    counts = [
        n * math.prod(len(branches) if loop is None else loop for loop in step.loops) for step, n in repeated.items()
    ]
    rows = [HEADER, *(_row(step, count, region) for step, count in zip(steps, counts, strict=True))]
    if sweep is None:
        by_arm = trainings(params, adapter)
        trained = list(by_arm.values())
        by_task = [
            by_arm[branch.arm].steps_each * len(branch.seeds) if branch.arm in by_arm else 0 for branch in branches
        ]
    else:
        tried = [_tried(params, sweep, values) for values in sweep.candidates]
        trained = [training for training in tried if training]
        by_task = [training.agents * training.steps_each if training else 0 for training in tried]
    to_train = sum(training.agents * training.steps_each for training in trained)
    pairs = pairs_asked(params, constant(spec, "judges", "shards"))  # of the template, where one was given
    work = [
        f"{params.collect.steps:,} environment steps to collect; {pairs} to annotate",
        f"{to_train:,} environment steps to train: {agents_and_steps(trained)}",
        *questions_in_training(trained),
    ]
    work += [
        described(arm.name, arm.agent.settings, arm.agent.steps)
        for arm in (params.resolved_arms.values() if sweep is None else ())
        if arm.trained and isinstance(arm.agent.settings, LanguageActorParams | GLAMParams)
    ]
    if speed:
        work.append(_hours(steps, by_task, speed, price))
    if price is not None:
        work.append(_cost(steps, counts, price))
    elif region:
        work.append(f"price: unknown for {region}: add it, dated, to {prices}, or to another file (--prices).")
    return "\n".join([*aligned(rows), "", *work])


def _tried(params: Params, sweep: SweepPlan, values: Candidate) -> Training | None:
    """Return the training of a candidate; None for one with inconsistent values, which trains nothing."""
    arm = sweep.sweep.arm
    with contextlib.suppress(ParamsError):
        candidate = narrowed(with_values(params, values), arm, sweep.sweep.seeds, sweep.sweep.steps)
        return Training.of(candidate.resolved_arms[arm], candidate)
    return None


def _hours(steps: Sequence[Task], by_task: Sequence[int], speed: float, price: Price | None) -> str:
    """Describe the duration of training at a speed, and the cost of its machines.

    Args:
        steps: of the pipeline.
        by_task: environment steps of each task that trains agents, in the order in which they begin.
        speed: environment steps a second of a task.
        price: of machines, if known.
    """
    if any(step.name in ("propose", "train-round") for step in steps):
        return "the hours of training cannot be computed from a speed if proposals are sampled in tasks of their own"
    step = next(step for step in steps if step.name in AGENT_TRAINERS)
    hours = sum(by_task) / speed / 3600
    hour = price.hour(step.machine) if price else None
    cost = f", which cost {hours * hour:,.2f} {price.currency}" if price and hour is not None else ""
    at_once = min(step.at_once or len(by_task), len(by_task))
    machines = [0] * at_once
    for task in by_task:  # the next one begins where one has ended
        heapq.heapreplace(machines, machines[0] + task)
    tasks_run = f"all {at_once} tasks run" if at_once == len(by_task) else f"{at_once} of {len(by_task)} tasks run"
    at_least = f"; {max(machines) / speed / 3600:,.1f} hours if {tasks_run} at once" if at_once > 1 else ""
    return f"{step.name} at {speed:,.0f} environment steps/s per task: {hours:,.1f} machine hours{cost}{at_least}"


def _row(step: Task, count: int, region: str | None) -> tuple[str, ...]:
    machine = step.machine
    accelerator = f"{machine.accelerators} x {machine.accelerator}" if machine.accelerators else "-"
    return (
        step.name,
        str(count),
        machine.cpu or "-",
        machine.memory or "-",
        accelerator,
        _family(machine) if region else "any node",
        "yes" if step.cached else "no",
        str(step.attempts),
    )


def _family(machine: Machine) -> str:
    """Describe the machine that Vertex AI chooses: the smallest that satisfies the step's request."""
    if not machine.accelerators:
        return "general purpose"
    kind = _kind(machine)
    return kind.machines if kind else "unknown"


def _kind(machine: Machine) -> AcceleratorKind | None:
    """Return the type of a machine's accelerator; None without one, or for one that Vertex AI does not have."""
    return next((kind for kind in ACCELERATORS.values() if kind.vertex == machine.accelerator), None)


def _cost(steps: list[Task], counts: list[int], price: Price) -> str:
    hours = [price.hour(step.machine) for step in steps]
    known = [
        f"{step.name} {hour:.3f}" + (f" x {count}" if count > 1 else "")
        for step, hour, count in zip(steps, hours, counts, strict=True)
        if hour is not None
    ]
    unknown = [step.name for step, hour in zip(steps, hours, strict=True) if hour is None]
    missing = f"; not known for the accelerator of {', '.join(unknown)}" if unknown else ""
    return (
        f"price: {price.run:.2f} {price.currency} per run; per hour: {', '.join(known)} {price.currency}{missing} "
        f"({price.region}, {price.date}, {price.source}). How long a step takes is not known beforehand."
    )


def cores(quantity: str) -> float:
    """Read a number of cores: "4", "0.5" or "500m"."""
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1) if quantity else 0.0


def gigabytes(quantity: str) -> float:
    """Read an amount of memory such as "16G" or "512Mi" in units of 10^9 bytes."""
    unit = quantity.lstrip("0123456789.")
    if not quantity:
        return 0.0
    number = float(quantity[: len(quantity) - len(unit)])
    if unit.endswith("i"):
        return number * 1024.0 ** ("KMGTPE".index(unit[0]) + 1) / 1e9
    return number * DECIMAL[unit]


def summary(spec: Spec) -> dict[str, Any]:
    """Return a short stand-in for a pipeline's specification, which would fill pages."""
    return {
        "pipelineInfo": spec["pipelineInfo"],
        "schemaVersion": spec.get("schemaVersion"),
        "sdkVersion": spec.get("sdkVersion"),
        "...": f"components, deploymentSpec and root of {len(list(tasks(spec)))} steps; whole with --dry-run=full",
    }
