"""README and docs/ as tests read them: blocks of code, and the commands that a reader types, with those not run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tiny_project import REPOSITORY

_FILES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
PAGES = {file.relative_to(REPOSITORY).as_posix(): file.read_text(encoding="utf-8") for file in _FILES}
"""Page -> its text."""
VERTEX = "docs/vertex-ai.md"
"""The page whose commands tests/pipelines/submit runs, against a fake Google Cloud server."""
FENCE = re.compile(r"^```(\w*)(?: title=\"(.+?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ACCOUNT = "an account of Google Cloud"
DOCKER = "a Docker daemon; tests/docker runs the pipeline with one"
SMOLLM2 = "SmolLM2, whose weights come from the network; other tests train tiny models so"
QUEUE = "minutes; tests/pipelines/test_dvc_sweep.py does the same"
NOT_RUN = {
    "gcloud ": ACCOUNT,
    "make image IMAGE=$I && ": ACCOUNT,
    'printf %s "$PASSWORD" | gcloud ': ACCOUNT,
    "docker ": DOCKER,
    "make image": DOCKER,
    "kubectl ": "a cluster",
    "make setup": "the network",
    "laurel pipeline run": "a minute; tests/pipelines/test_kfp_local.py runs it",
    "dvc exp ": QUEUE,
    "dvc queue ": QUEUE,
    "cp data/tune/best.yaml params.yaml && make run": QUEUE,
    "make lint test": "these tests are part of it",
    "pip install '.[trl,language-model]' && make language-model": "the network",
    "mkdir rlhf && ": "the line after it",
    "laurel annotate tune --model smollm2 ": SMOLLM2,
    "laurel run --params ../examples/rlhf.yaml": SMOLLM2,
    "python benchmarks/language_actor.py ": "minutes of a quiet machine: it measures",
    "laurel export inspect ": "a package in an environment of its own: make test-others",
    "inspect view ": "the same",
}
"""How commands begin that are not run -> what they would need."""


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    """The file whose content it is, or ""."""
    text: str


def blocks(page: str) -> list[Block]:
    """Return a page's blocks of code in their order."""
    return [Block(*found) for found in FENCE.findall(PAGES[page])]


def lines(text: str) -> list[str]:
    """Return the commands of a shell block, each as one line without its comment."""
    found, open_ = [], ""
    for line in text.splitlines():
        open_ += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        try:
            shlex.split(open_, comments=True)
        except ValueError:  # a quotation continues in the next line
            open_ += "\n"
            continue
        if command := re.sub(r"\s+#\s.*$", "", open_).strip():
            found.append(re.sub(r"\s+", " ", command))
        open_ = ""
    assert not open_, open_
    return found


def typed(page: str) -> list[str]:
    """Return the commands of a page's shell blocks."""
    return [line for block in blocks(page) if block.language == "sh" for line in lines(block.text)]


def named(page: str) -> list[str]:
    """Return the commands that a page's sentences name."""
    prose = FENCE.sub("", PAGES[page])
    return [
        re.sub(r"\s+", " ", command)
        for command in re.findall(r"`((?:laurel|make|dvc|python|pip|hf|git|gcloud|vllm|pytest) [^`]+)`", prose)
    ]


def why_not(command: str) -> str | None:
    """Return what a command would need, where it is not run."""
    return next((reason for begins, reason in NOT_RUN.items() if command.startswith(begins)), None)
