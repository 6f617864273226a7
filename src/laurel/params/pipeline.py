"""The section `pipeline`: the run on Kubeflow or Vertex AI."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from laurel.errors import closest
from laurel.params.fields import Count, Section
from laurel.params.file import shown

Accelerator = Literal["T4", "P4", "P100", "V100", "L4", "A100", "A100_80GB", "H100", "H100_MEGA", "H200", "B200"]
STEPS = (
    "plan",
    "judges",
    "collect",
    "merge-trajectories",
    "caption",
    "annotate",
    "merge-preferences",
    "train-reward",
    "train-agents",
    "merge-agents",
    "evaluate",
    "finish",
)
"""The steps of the pipeline on Kubeflow: the stages, and the steps that split and merge their work."""
SWEEP_STEPS = ("try-candidate", "pick-best")
"""The steps of a sweep, which replace train-agents and merge-agents and use the same machines."""
ROUND_STEPS = ("train-round", "propose")
"""The steps that replace train-agents for agents with `agent.language_model.shards`, on the same machines."""


def _quantity(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d*([EPTGMK]i?)?", value):
        raise ValueError(f"is {shown(value)}, but must be a quantity such as 16G or 512Mi.")
    return value


def _steps_alone(values: dict[str, Any]) -> dict[str, Any]:
    for name in values:
        if name not in STEPS:
            raise ValueError(
                f"names {shown(name)}, which is not a step.{closest(name, STEPS)} Steps: {', '.join(STEPS)}."
            )
    return values


def short_name(value: Any) -> Any:
    """Shorten Vertex AI's names of accelerators, such as NVIDIA_TESLA_T4 or NVIDIA_H100_80GB."""
    if not isinstance(value, str):
        return value
    name = value.upper().removeprefix("NVIDIA_").removeprefix("TESLA_")
    return {"H100_80GB": "H100", "H100_MEGA_80GB": "H100_MEGA", "H200_141GB": "H200"}.get(name, name)


class ResourceParams(Section):
    """Resources of a step's machine; keys that are left out keep their defaults."""

    cpu: Annotated[float, Field(gt=0.0, le=1000.0, allow_inf_nan=False)] | None = None
    """Number of cores."""
    memory: Annotated[str, AfterValidator(_quantity)] | None = None
    """Memory, e.g. 16G or 512Mi."""
    accelerator: Annotated[Accelerator | None, BeforeValidator(short_name)] = None
    """Type of GPU, e.g. T4, L4, A100 or H100; null: no GPU."""
    accelerators: Annotated[int, Field(ge=0, le=16)] | None = None
    """Number of GPUs; by default one if a type is given."""

    @model_validator(mode="after")
    def _type_with_count(self) -> ResourceParams:
        if self.accelerator is not None and self.accelerators == 0:
            raise ValueError(f"asks for 0 accelerators of type {self.accelerator}: ask for 1 or more, or name no type.")
        if self.accelerator is None and self.accelerators:
            raise ValueError(
                f"asks for {self.accelerators} accelerators without a type: name one, e.g. accelerator: L4."
            )
        return self


class PipelineParams(Section):
    """The run on Kubeflow or Vertex AI; `dvc repro` ignores this section, and no result depends on it."""

    annotate_shards: Annotated[int, Field(ge=1, le=100)] = 1
    """Parallel steps that share the pairs to judge."""
    seeds_per_step: Count | None = None
    """Seeds of an arm that are trained in one step and share its cores; null: all."""
    parallelism: Count | None = None
    """Maximum number of parallel branches of a loop (parts, shards, training); null: all."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Retries of a failed step."""
    checkpoints: str | None = None
    """Folder for checkpoints that all steps share, such as a volume mounted by the cluster, from which a retried
    training step resumes. null: on Vertex AI a folder of the bucket; on a cluster none, so a retried step starts
    over."""
    resources: Annotated[dict[str, ResourceParams], AfterValidator(_steps_alone)] = Field(default_factory=dict)
    """Step -> resources of its machine."""
