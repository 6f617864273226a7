"""A record: the result of a benchmark, with its command, machine, versions and date.

    from record import about, command_line, load_average, write

Does no measuring; `table.py` reads its records.
"""

import argparse
import json
import os
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from laurel.machine import machine

RESULTS = Path(__file__).resolve().parent / "results"
ONE_THREAD = "NumPy, PyTorch on one thread"


def write(
    name: str, found: dict[str, Any], common: dict[str, Any], output: Path | None = None, *, last: bool = True
) -> None:
    """Write a record atomically, and print it if it is the last of its run.

    Args:
        name: of the benchmark.
        found: value, unit, target, met, peer, peer_value, and more.
        common: as `about` gives it.
        output: None takes the file of that name in results/.
        last: False where more will be found, and the same record written again.
    """
    file = output or RESULTS / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, **found, **common, "date": date.today().isoformat()}, indent=2) + "\n"
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(file)
    if last:
        sys.stdout.write(text)


def command_line(docstring: str | None) -> argparse.ArgumentParser:
    """Return an argument parser with --help that rejects unknown arguments."""
    return argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)


def about(*packages: str, remarks: tuple[str, ...] = (), **others: str) -> dict[str, Any]:
    """Return the fields of a record other than its figures.

    Args:
        packages: installed here, whose versions matter.
        remarks: on the machine, such as its load.
        others: what else has a version -> which.
    """
    script, *given = sys.argv
    return {
        "command": " ".join(["python", f"benchmarks/{Path(script).name}", *given]),
        "machine": "; ".join([f"{os.cpu_count()} cores of {machine()['cpu']}, {platform.system()}", *remarks]),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
            **others,
        },
    }


def load_average() -> str:
    """Return the machine's current load."""
    return f"load average {os.getloadavg()[0]:.1f}"
