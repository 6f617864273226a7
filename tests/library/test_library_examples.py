"""The examples and the snippets of docs/ run as they are printed, with fewer steps."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest

from tiny_project import REPOSITORY, Project

EXAMPLES = REPOSITORY / "examples/library"
NEEDS = {"sb3": "stable_baselines3", "cleanrl": "torch", "rllib": "ray", "torchrl": "torchrl"}


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_trains(name: str, learned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES / f"train_{name}.py").read_text()
    assert len(text.splitlines()) <= 30, "thirty lines"
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    file = tmp_path / "example.py"
    file.write_text(re.sub(r"^(STEPS|UPDATES|ITERATIONS)\b(.*)= \d[\d_]*", r"\1\2= 64", text, flags=re.MULTILINE))
    monkeypatch.chdir(learned.path)
    runpy.run_path(str(file))


def snippets() -> dict[str, str]:
    """Return page of docs/ -> its Python, but for files, figures (test_readme) and what follows commands."""
    docs = REPOSITORY / "docs"
    others = ("classics.md", "first-run.md", "rewards.md")  # test_typed_pages types the last two
    pages = [page for page in sorted(docs.rglob("*.md")) if page.name not in others]
    code = {
        str(page.relative_to(docs)): re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in pages
    }
    return {name: "\n".join(blocks) for name, blocks in code.items() if blocks}


@pytest.mark.parametrize("page", snippets())
def test_a_pages_snippets_run(page: str, finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.path)
    exec(compile(snippets()[page], page, "exec"), {})


@pytest.mark.slow
def test_the_notebook_trains_stable_baselines3(finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    assert len(cells) == 10
    monkeypatch.chdir(finished.path)
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("STEPS = 4096", "STEPS = 512"), names)
    assert len(names["returns"]) == 10
