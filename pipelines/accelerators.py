"""The accelerators that a step can have: their names on Vertex AI, and the largest machines that have them.

Sources: Google Cloud's list of GPU machine types (cloud.google.com/compute/docs/gpus) and of what a pipeline step can
ask for (cloud.google.com/vertex-ai/docs/pipelines/machine-types).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laurel.errors import ParamsError
from laurel.params.pipeline import Accelerator

CLUSTER = "nvidia.com/gpu"
"""Kubernetes' resource name of a GPU of any type; the cluster's nodes determine the type."""


@dataclass(frozen=True)
class AcceleratorKind:
    """A type of accelerator on Vertex AI."""

    vertex: str
    """Its name in a request."""
    machines: str
    """The family of machines that have it."""
    largest: Mapping[int, tuple[int, int]]
    """Number of accelerators -> vCPUs and GB of memory of the largest machine with that number."""
    smaller: Sequence[tuple[int, int]] = ()
    """vCPUs and GB of memory of the other machines with one, if they are sold in fixed sizes; the smallest first."""

    def size(self, count: int, cpu: float, memory: float) -> tuple[float, float]:
        """Return vCPUs and GB of memory of the machine that a step gets: n1 has any size, others have fixed ones."""
        if self.machines == "n1" or count not in self.largest:
            return cpu, memory
        sold = [*(self.smaller if count == 1 else ()), self.largest[count]]
        return next(((cpus, gb) for cpus, gb in sold if cpus >= cpu and gb >= memory), sold[-1])


LARGEST = (96, 624)
"""vCPUs and GB of memory that a step can ask for on Vertex AI, whatever the machine has."""
_G2 = ((4, 16), (8, 32), (12, 48), (16, 64))
_N1_24 = {1: (24, 156), 2: (48, 312), 4: (96, 624)}
ACCELERATORS: Mapping[Accelerator, AcceleratorKind] = {
    "T4": AcceleratorKind("NVIDIA_TESLA_T4", "n1", _N1_24),
    "P4": AcceleratorKind("NVIDIA_TESLA_P4", "n1", _N1_24),
    "P100": AcceleratorKind("NVIDIA_TESLA_P100", "n1", {1: (16, 104), 2: (32, 208), 4: (96, 624)}),
    "V100": AcceleratorKind("NVIDIA_TESLA_V100", "n1", {1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)}),
    "L4": AcceleratorKind("NVIDIA_L4", "g2-standard", {1: (32, 128), 2: (24, 96), 4: (48, 192), 8: (96, 384)}, _G2),
    "A100": AcceleratorKind(
        "NVIDIA_TESLA_A100", "a2-highgpu", {1: (12, 85), 2: (24, 170), 4: (48, 340), 8: (96, 680), 16: (96, 1360)}
    ),
    "A100_80GB": AcceleratorKind(
        "NVIDIA_A100_80GB", "a2-ultragpu", {1: (12, 170), 2: (24, 340), 4: (48, 680), 8: (96, 1360)}
    ),
    "H100": AcceleratorKind(
        "NVIDIA_H100_80GB", "a3-highgpu", {1: (26, 234), 2: (52, 468), 4: (104, 936), 8: (208, 1872)}
    ),
    "H100_MEGA": AcceleratorKind("NVIDIA_H100_MEGA_80GB", "a3-megagpu", {8: (208, 1872)}),
    "H200": AcceleratorKind("NVIDIA_H200_141GB", "a3-ultragpu", {8: (224, 2952)}),
    "B200": AcceleratorKind("NVIDIA_B200", "a4-highgpu", {8: (224, 3968)}),
}


def check_count(step: str, accelerator: Accelerator, count: int) -> None:
    """Raise if no machine of Vertex AI has this number of accelerators.

    Raises:
        ParamsError: none has.
    """
    allowed = ACCELERATORS[accelerator].largest
    if count not in allowed:
        numbers = ", ".join(map(str, allowed))
        raise ParamsError(
            f"pipeline.resources.{step} asks for {count} accelerators of type {accelerator}, but a machine of "
            f"Vertex AI has {numbers} of them."
        )


def check_size(step: str, cpu: float, memory: float, accelerator: Accelerator | None, count: int) -> None:
    """Raise if no machine of Vertex AI with these accelerators has this many cores or GB of memory.

    Raises:
        ParamsError: none has.
    """
    largest, suffix = LARGEST, ""
    if accelerator and count in ACCELERATORS[accelerator].largest:
        cpus, gigabytes = ACCELERATORS[accelerator].largest[count]
        largest = (min(cpus, LARGEST[0]), min(gigabytes, LARGEST[1]))
        suffix = f" with {count} x {accelerator}"
    for unit, key, wanted, limit in (("cores", "cpu", cpu, largest[0]), ("GB of memory", "memory", memory, largest[1])):
        if wanted > limit:
            raise ParamsError(
                f"pipeline.resources.{step}.{key} asks for {wanted:g} {unit}, but a machine of Vertex AI{suffix} has "
                f"{limit} at most."
            )
