"""What benchmarks of training share: how a peer is run, and what a record says of machine and versions."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import laurel

RESULTS = Path(__file__).resolve().parents[1] / "results"
SB3 = "stable-baselines3==2.9.2"
Figures = dict[str, Any]


def run_peer(python: Path, script: str, *arguments: object, ours: bool = False) -> Figures:
    """Run a peer's script on one thread in its environment, to which ours is added if need be; return its figures."""
    paths = [str(Path(package.__file__).parents[1]) for package in (laurel, __import__("torch"))] if ours else []
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


def write(name: str, command: str, record: Figures, packages: Sequence[str], **peers: str) -> None:
    """Write a record, with what all records say, and print it."""
    common = {
        "command": command,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}; NumPy, PyTorch on one thread; "
        f"load average {round(os.getloadavg()[0], 1)} after the run",
        "versions": {"python": platform.python_version(), **{each: version(each) for each in packages}, **peers},
        "date": date.today().isoformat(),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, **record, **common}, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text)
    print(text, end="")  # noqa: T201
