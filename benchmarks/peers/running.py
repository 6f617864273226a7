"""Runs one side of a training benchmark, Laurel's or a peer's, in a separate process on one thread."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import laurel

SB3 = "stable-baselines3==2.9.2"
Figures = dict[str, Any]


def run_peer(python: Path, script: str, *arguments: object, ours: bool = False) -> Figures:
    """Run a peer's script on one thread in its virtual environment, with Laurel added if needed; return its figures."""
    paths = [str(Path(str(package.__file__)).parents[1]) for package in (laurel, __import__("torch"))] if ours else []
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(  # noqa: S603
        [str(python), str(Path(__file__).parent / script), *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)},
    )
    figures: Figures = json.loads(done.stdout)
    return figures
