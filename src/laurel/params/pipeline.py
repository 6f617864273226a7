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
"""The steps of the pipeline on Kubeflow: the stages, and what divides their work and joins it again."""
SWEEP_STEPS = ("try-candidate", "pick-best")
"""The steps of a sweep in place of train-agents and merge-agents, on the same machines."""
ROUND_STEPS = ("train-round", "propose")
"""The steps of agents with `agent.language_model.shards` in place of train-agents, on the same machines."""


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


def _short_name(value: Any) -> Any:
    """Read Vertex AI's names of accelerators, such as NVIDIA_TESLA_T4 or NVIDIA_H100_80GB, as the short ones."""
    if not isinstance(value, str):
        return value
    name = value.upper().removeprefix("NVIDIA_").removeprefix("TESLA_")
    return {"H100_80GB": "H100", "H100_MEGA_80GB": "H100_MEGA", "H200_141GB": "H200"}.get(name, name)


class ResourceParams(Section):
    """What a step's machine has; what is left out keeps its default."""

    cpu: Annotated[float, Field(gt=0.0, le=1000.0, allow_inf_nan=False)] | None = None
    """Cores."""
    memory: Annotated[str, AfterValidator(_quantity)] | None = None
    """E.g. 16G or 512Mi."""
    accelerator: Annotated[Accelerator | None, BeforeValidator(_short_name)] = None
    """Type of GPU, e.g. T4, L4, A100 or H100; null is a machine without one."""
    accelerators: Annotated[int, Field(ge=0, le=16)] | None = None
    """How many GPUs; left out, one where a type is given."""

    @model_validator(mode="after")
    def _type_with_count(self) -> ResourceParams:
        if self.accelerator is not None and self.accelerators == 0:
            raise ValueError(f"asks for 0 accelerators of type {self.accelerator}: ask for 1 or more, or name no type.")
        if self.accelerator is None and self.accelerators:
            raise ValueError(f"asks for {self.accelerators} accelerators of no type: name it, e.g. accelerator: L4.")
        return self


class PipelineParams(Section):
    """The run on Kubeflow or Vertex AI; `dvc repro` reads nothing here, and no figure depends on it."""

    annotate_shards: Annotated[int, Field(ge=1, le=100)] = 1
    """Steps that share the pairs to judge, side by side."""
    seeds_per_step: Count | None = None
    """Training runs of an arm that share a step and its cores; null: all seeds."""
    parallelism: Count | None = None
    """Branches of a loop (parts, shards, training) that run at once, at most; null: all."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts at a step that failed."""
    checkpoints: str | None = None
    """Folder that all steps see, such as a volume that the cluster mounts: a training step that is tried again
    resumes from there. null: on Vertex AI a folder of the bucket; on a cluster none, so that it starts over."""
    resources: Annotated[dict[str, ResourceParams], AfterValidator(_steps_alone)] = Field(default_factory=dict)
    """Step -> what its machine has."""
