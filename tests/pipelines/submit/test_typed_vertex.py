"""The commands of the page on Vertex AI, against a fake Google Cloud server; without gcloud."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from vertex_server import VertexServer, job, task

from installed import EXAMPLES
from laurel.cli.app import main
from pages import VERTEX, blocks, typed, why_not
from tiny_project import REPOSITORY

PLACE = ["--project", "my-project", "--region", "europe-west4", "--bucket", "gs://my-bucket/laurel"]
IMAGE = ["--image", "europe-west4-docker.pkg.dev/my-project/laurel/laurel-python:1"]
PRICES = ["--prices", str(EXAMPLES / "vertex_prices.yaml")]


def in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def calls() -> list[list[str]]:
    """Return what the page gives `laurel` to do, as bash makes it of its variables."""
    page = [command.replace("$T", "$I:1") for command in typed(VERTEX) if why_not(command) is None]
    script = "\n".join(["laurel() { printf '%q ' \"$@\"; echo; }", *page])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in done.stdout.splitlines()]


def test_the_commands_of_the_page_are_taken(
    google: VertexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(REPOSITORY / "params.yaml", tmp_path)
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    google.says("get", job("SUCCEEDED", task("laurel", "SUCCEEDED")))
    sent = []
    monkeypatch.setattr("laurel.pipelines.follow.time.sleep", lambda seconds: None)
    for call in calls():
        whole = [word for part in call for word in ([*PLACE, *IMAGE] if part == "..." else [part])]
        assert main([*whole, "--api-endpoint", google.url]) == 0, capsys.readouterr().err
        sent.append(capsys.readouterr())
    assert len(google.of("create")) == 2, "the dry run sends nothing"
    shown = [
        line for block in blocks(VERTEX) if "environment steps/s" in block.text for line in block.text.splitlines()
    ]
    for line in shown:
        assert any(line in said.err for said in sent), line
    assert shown


def test_the_price_of_the_page_is_what_the_dry_run_says(capsys: pytest.CaptureFixture[str]) -> None:
    given = [*PLACE, *IMAGE, *PRICES, "--params", str(REPOSITORY / "params.yaml"), "--dry-run"]
    assert main(["pipeline", "submit", *given]) == 0
    (price,) = (block.text for block in blocks(VERTEX) if block.text.startswith("price: "))
    assert in_one_line(price).removesuffix("(...)") in in_one_line(capsys.readouterr().err)
