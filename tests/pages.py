"""README and docs/ as tests read them: blocks of code, each with its language, and the commands that a reader types."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tiny_project import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
NAMES = {page.relative_to(REPOSITORY).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
"""Page -> its text."""
FENCE = re.compile(r"^```(\w*)(?: title=\"(.+?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    """The file whose content it is, or nothing."""
    text: str


def blocks(page: str) -> list[Block]:
    """Return a page's blocks of code in their order."""
    return [Block(*found) for found in FENCE.findall(NAMES[page])]


def lines(text: str) -> list[str]:
    """Return the commands of a shell block, each as one line without its comment."""
    found, open_ = [], ""
    for line in text.splitlines():
        open_ += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        try:
            shlex.split(open_, comments=True)
        except ValueError:  # a quotation goes on in the next line
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
    prose = FENCE.sub("", NAMES[page])
    return [
        re.sub(r"\s+", " ", command)
        for command in re.findall(r"`((?:laurel|make|dvc|python|pip|hf|git|gcloud|vllm|pytest) [^`]+)`", prose)
    ]
