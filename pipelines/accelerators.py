"""The accelerators that a step can have: their names on Vertex AI, and how many a machine there holds.

Knows nothing about steps or prices. Source: Google Cloud's list of accelerator-optimised machine types.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from laurel.errors import ParamsError
from laurel.params.pipeline import Accelerator

CLUSTER = "nvidia.com/gpu"
"""What Kubernetes calls a GPU of whatever type; a cluster's nodes decide which."""


@dataclass(frozen=True)
class AcceleratorKind:
    """A type of accelerator on Vertex AI."""

    vertex: str
    """Its name in a request."""
    counts: tuple[int, ...]
    """How many a machine can have."""
    machines: str
    """The family of machines that have it."""


ACCELERATORS: Mapping[Accelerator, AcceleratorKind] = {
    "T4": AcceleratorKind("NVIDIA_TESLA_T4", (1, 2, 4), "n1"),
    "P4": AcceleratorKind("NVIDIA_TESLA_P4", (1, 2, 4), "n1"),
    "P100": AcceleratorKind("NVIDIA_TESLA_P100", (1, 2, 4), "n1"),
    "V100": AcceleratorKind("NVIDIA_TESLA_V100", (1, 2, 4, 8), "n1"),
    "L4": AcceleratorKind("NVIDIA_L4", (1, 2, 4, 8), "g2-standard"),
    "A100": AcceleratorKind("NVIDIA_TESLA_A100", (1, 2, 4, 8, 16), "a2-highgpu"),
    "A100_80GB": AcceleratorKind("NVIDIA_A100_80GB", (1, 2, 4, 8), "a2-ultragpu"),
    "H100": AcceleratorKind("NVIDIA_H100_80GB", (1, 2, 4, 8), "a3-highgpu"),
    "H100_MEGA": AcceleratorKind("NVIDIA_H100_MEGA_80GB", (8,), "a3-megagpu"),
    "H200": AcceleratorKind("NVIDIA_H200_141GB", (8,), "a3-ultragpu"),
    "B200": AcceleratorKind("NVIDIA_B200", (8,), "a4-highgpu"),
}


def check_count(step: str, accelerator: Accelerator, count: int) -> None:
    """Refuse a number of accelerators that no machine of Vertex AI has.

    Raises:
        ParamsError: none has.
    """
    allowed = ACCELERATORS[accelerator].counts
    if count not in allowed:
        numbers = ", ".join(map(str, allowed))
        raise ParamsError(
            f"pipeline.resources.{step} asks for {count} accelerators of type {accelerator}, but a machine of "
            f"Vertex AI has {numbers} of them."
        )
