"""The machine that a result was computed on, and matrix kernels that are the same on most machines."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

KERNELS = "OPENBLAS_CORETYPE"
"""Environment variable that selects the CPU kernels of OpenBLAS, NumPy's BLAS; read when NumPy is imported."""
COMMON = "Haswell"
"""Kernels for AVX2, which almost all x86-64 CPUs since 2013 have. OpenBLAS uses them on AMD's CPUs anyway."""


def today() -> date:
    """Return the date in UTC, so that a run does not show two dates."""
    return datetime.now(UTC).date()


def machine() -> dict[str, Any]:
    """Describe what numerical results may depend on: CPU, instruction sets, BLAS, threads, versions.

    Libraries that are not imported are left out, since nothing was computed with them.
    """
    found: dict[str, Any] = {
        "cpu": cpu(),
        "architecture": platform.machine(),
        "platform": sys.platform,
        "python": platform.python_version(),
    }
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_info

        found["numpy"] = importlib.metadata.version("numpy")
        found["blas"] = sorted(  # the order in which they are found differs between processes
            " ".join(str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key))
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        )
        found["workers_blas"] = os.environ.get(KERNELS) or (COMMON if has_avx2() else "the CPU's own")
    if torch := sys.modules.get("torch"):
        found["torch"] = importlib.metadata.version("torch")
        found["torch_isa"] = torch.backends.cpu.get_cpu_capability()
        found["torch_threads"] = torch.get_num_threads()
    return found


@contextmanager
def common_kernels() -> Iterator[None]:
    """Let processes that are started in the block multiply matrices alike on every x86-64 CPU with AVX2.

    OpenBLAS has separate kernels for AVX-512, which sum in another order: with PPO, this leads to a different agent. A
    value that the user has set is kept.
    """
    changed = set_common_kernels()
    try:
        yield
    finally:
        if changed:
            del os.environ[KERNELS]


def set_common_kernels() -> bool:
    """Choose COMMON for the processes that are started from now on, and for this one if NumPy is not imported.

    Returns:
        Whether it changed the environment: not on other CPUs, or if the user has set a value.
    """
    if KERNELS in os.environ or not has_avx2():
        return False
    os.environ[KERNELS] = COMMON
    return True


def has_avx2() -> bool:
    """Whether this CPU reports itself as x86-64 with AVX2 and FMA; others cannot run such kernels."""
    return platform.machine() in ("x86_64", "AMD64") and {"avx2", "fma"} <= set(_of_cpu("flags").split())


def cpu() -> str:
    """Return the name of the CPU, as far as known."""
    return _of_cpu("model name") or platform.processor() or "unknown"


def _of_cpu(name: str) -> str:
    """Return the first CPU's entry in /proc/cpuinfo; empty if the file or entry is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name), "")
