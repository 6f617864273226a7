"""The accelerators that a step can have: their names on Vertex AI, and the machines that have them.

Source: Google Cloud's list of GPU machine types (cloud.google.com/compute/docs/gpus). How many a machine can have, and
how much memory beside them, Vertex AI says itself when it is asked for a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from laurel.params.pipeline import Accelerator

CLUSTER = "nvidia.com/gpu"
"""What Kubernetes calls a GPU of whatever type; a cluster's nodes decide which."""


@dataclass(frozen=True)
class AcceleratorKind:
    """A type of accelerator on Vertex AI."""

    vertex: str
    """Its name in a request."""
    machines: str
    """The family of machines that have it."""


ACCELERATORS: Mapping[Accelerator, AcceleratorKind] = {
    "T4": AcceleratorKind("NVIDIA_TESLA_T4", "n1"),
    "P4": AcceleratorKind("NVIDIA_TESLA_P4", "n1"),
    "P100": AcceleratorKind("NVIDIA_TESLA_P100", "n1"),
    "V100": AcceleratorKind("NVIDIA_TESLA_V100", "n1"),
    "L4": AcceleratorKind("NVIDIA_L4", "g2-standard"),
    "A100": AcceleratorKind("NVIDIA_TESLA_A100", "a2-highgpu"),
    "A100_80GB": AcceleratorKind("NVIDIA_A100_80GB", "a2-ultragpu"),
    "H100": AcceleratorKind("NVIDIA_H100_80GB", "a3-highgpu"),
    "H100_MEGA": AcceleratorKind("NVIDIA_H100_MEGA_80GB", "a3-megagpu"),
    "H200": AcceleratorKind("NVIDIA_H200_141GB", "a3-ultragpu"),
    "B200": AcceleratorKind("NVIDIA_B200", "a4-highgpu"),
}
