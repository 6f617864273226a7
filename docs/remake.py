"""Make the results in README and docs/results.md again: tables and verdict of each environment, from runs of this code.

    python docs/remake.py            # of the last `make run` alone
    python docs/remake.py --all      # of the other environments, too, each in a project of its own below data/docs

Each environment's part of a page stands between `<!-- results: FILE -->` and `<!-- end of results -->`, and is written
from docs/FILE. Prose around it is not touched: read it again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fingerprint import fingerprint

from laurel.data.digests import digest_file
from laurel.data.json_file import read_json
from laurel.evaluation.summary import legend, markdown_table, read_metrics
from laurel.params.edit import edited
from laurel.stages.pipeline import STAGE

ROOT = Path(__file__).resolve().parents[1]
FIGURE = "success_curve.png"
FINGERPRINTS = ROOT / "docs" / "fingerprints.json"
"""What a small run of the code that made the figures makes, which a test compares with that of today's; and the digest
of the figures, which are not to be changed by hand."""
SIX_SEEDS: dict[str, Any] = {"agent.seeds": [0, 1, 2, 3, 4, 5]}
OTHERS: dict[str, dict[str, Any]] = {"Blackjack-v1": {**SIX_SEEDS, "agent.steps": 100_000}, "MountainCar-v0": SIX_SEEDS}
"""The other environments, with what differs of params.yaml: more seeds and steps would take longer and show no more."""


def block(metrics: Mapping[str, Any]) -> str:
    """Return what a page says of a run: its tables, what their numbers are, and the verdict."""
    return f"{markdown_table(metrics)}\n\n{legend(metrics)}\n\n> {' '.join(metrics['headline']['sentences'])}"


def page_of(name: str) -> Path:
    """Return the page that has the part of a metrics file: README for the default environment."""
    return ROOT / ("README.md" if name == "metrics.json" else "docs/results.md")


def replaced(page: str, name: str, text: str) -> str:
    """Return a page with another text in the part of a metrics file.

    Raises:
        SystemExit: there is no such part.
    """
    pattern = rf"(<!-- results: {re.escape(name)} -->\n).*?(\n<!-- end of results -->)"
    changed, found = re.subn(pattern, lambda match: f"{match[1]}{text}{match[2]}", page, flags=re.DOTALL)
    if found != 1:
        raise SystemExit(f"The page has {found} parts that begin with <!-- results: {name} -->, and should have one.")
    return changed


def run(env_id: str) -> Path:
    """Run all stages for an environment in a project of its own; return its reports."""
    project = ROOT / "data" / "docs" / env_id
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    params = (ROOT / "params.yaml").read_text(encoding="utf-8")
    (project / "params.yaml").write_text(edited(params, {"env.id": env_id, **OTHERS[env_id]}), encoding="utf-8")
    for stage in STAGE:
        subprocess.run([sys.executable, "-m", "laurel", stage], cwd=project, check=True)  # noqa: S603
    return project / "reports"


def main() -> None:
    """Write README.md and docs/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run the other environments, too (some minutes each)")
    options = parser.parse_args()
    reports = {"metrics.json": ROOT / "reports"}
    if options.all:
        reports |= {f"metrics-{env_id}.json": run(env_id) for env_id in OTHERS}
    for name, place in reports.items():
        shutil.copyfile(place / "metrics.json", ROOT / "docs" / name)
        page = page_of(name)
        text = block(read_metrics(ROOT / "docs" / name))
        page.write_text(replaced(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")
    shutil.copyfile(ROOT / "reports" / "figures" / FIGURE, ROOT / "docs" / FIGURE)
    known = read_json(FINGERPRINTS) if FINGERPRINTS.exists() else {}
    made = {}
    for file in (ROOT / "docs" / name for name in reports):
        env_id = read_json(file)["env"]
        made[env_id] = {**fingerprint(env_id), "figures": digest_file(file)}
    FINGERPRINTS.write_text(json.dumps({**known, **made}, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write("README.md and docs/ hold these results now. Read the prose around them again.\n")


if __name__ == "__main__":
    main()
