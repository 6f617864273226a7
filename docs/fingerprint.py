"""Digests of what a small run makes of an environment: they change when README's figures would have to be made again.

    python docs/fingerprint.py ENV_ID...        # prints them as JSON

The small run collects, captions, labels, fits the rewards and trains two arms, with few steps of everything. What it
makes is the same on every x86-64 CPU with AVX2 that was tried; elsewhere digests differ though nothing has changed. Of
epochs there are few, since rounding errors of different instructions grow from step to step: after 200 epochs on
shuffled labels of Blackjack, 12 of 123,000 weights differed between two CPUs by one in the last place that is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from laurel.cli.app import main as laurel

ROOT = Path(__file__).resolve().parents[1]
STAGES = {
    "collect": "trajectories",
    "caption": "captions",
    "annotate": "preferences",
    "train-reward": "reward",
    "train-agents": "agents",
}
"""Stage -> what it makes, below data/."""
MANIFEST = "manifest.json"
"""Names versions and the CPU, and so is left out; hidden files are of one run alone."""


def small(env_id: str) -> dict[str, Any]:
    """Return the repository's parameters for an environment, with a small share of the work."""
    params: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["env"] = {**params["env"], "id": env_id}
    params["collect"] = {**params["collect"], "steps": 4_000}
    params["annotate"] = {**params["annotate"], "n_pairs": 200}
    params["agent"] = {**params["agent"], "steps": 6_000, "seeds": [0]}
    params["arms"] = ["preference", "shuffled_labels"]
    params["rewards"]["preference"]["max_epochs"] = 40
    params["tracking"] = {"enabled": False}
    return params


def fingerprint(env_id: str) -> dict[str, str]:
    """Return output -> digest of its files."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), contextlib.redirect_stdout(sys.stderr):
        Path("params.yaml").write_text(yaml.safe_dump(small(env_id)), encoding="utf-8")
        for stage in STAGES:
            if laurel([stage]):
                raise SystemExit(f"{env_id}: laurel {stage} failed.")
        return {output: digest(Path("data") / output) for output in STAGES.values()}


def digest(directory: Path) -> str:
    """Return one digest of the files of a directory, their names included."""
    found = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        if file.is_file() and file.name != MANIFEST and not file.name.startswith("."):
            found.update(f"{file.relative_to(directory)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(json.dumps({env_id: fingerprint(env_id) for env_id in sys.argv[1:]}, indent=2) + "\n")
