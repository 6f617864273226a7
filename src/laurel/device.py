"""Which device a computation runs on, and in how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from laurel.errors import ParamsError

if TYPE_CHECKING:
    import torch


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute in one thread within the block, so that sums keep their order."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def torch_device(name: str, key: str) -> torch.device:
    """Return the device that a parameter names.

    Args:
        name: cpu, cuda, or auto (a GPU if there is one).
        key: of the parameter, for the error.

    Raises:
        ParamsError: a GPU is asked for, and PyTorch can use none here.
    """
    import torch

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU only"
        raise ParamsError(
            f'{key} is "cuda", but PyTorch finds no GPU here (it is {built}). Set it to cpu, or to auto, '
            "which uses a GPU if there is one."
        )
    return torch.device("cuda" if available and name != "cpu" else "cpu")
