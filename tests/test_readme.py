"""The tables of README and docs/ are those of the metrics, and their examples run as they are printed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from installed import EXAMPLES
from laurel.classics.deep import TASKS, in_words
from laurel.cli.app import _parser
from laurel.data.captions import read_vocabulary
from laurel.evaluation.summary import markdown_table
from pages import PAGES, named, typed
from tiny_project import REPOSITORY, UNTRACKED, Project, read_json

sys.path.insert(0, str(REPOSITORY / "docs"))
import remake

TEXT = "\n".join(PAGES.values())
METRICS = sorted((REPOSITORY / "docs").glob("metrics*.json"))


@pytest.mark.parametrize("file", METRICS, ids=lambda file: file.stem)
def test_a_table_holds_the_metrics(file: Path) -> None:
    metrics = read_json(file)
    page = remake.page_of(file.name)
    text = page.read_text(encoding="utf-8")
    before, found, _ = text.partition(markdown_table(metrics))
    assert found
    assert metrics["env"] in before.rpartition("| arm |")[2], "the environment is named after the table before it"
    assert f"]({file.relative_to(page.parent)})" in text


@pytest.mark.parametrize("file", METRICS, ids=lambda file: file.stem)
def test_a_page_matches_the_metrics(file: Path) -> None:
    text = remake.page_of(file.name).read_text(encoding="utf-8")
    assert remake.replaced(text, file.name, remake.block(read_json(file))) == text


def test_results_replace_those_of_before() -> None:
    page = "a\n<!-- results: m.json -->\nold\n\nold\n<!-- end of results -->\nb\n"
    assert remake.replaced(page, "m.json", r"new \1") == page.replace("old\n\nold", r"new \1")
    with pytest.raises(SystemExit, match=r"0 parts"):
        remake.replaced(page, "other.json", "new")


def test_every_table_of_arms_has_its_metrics() -> None:
    assert len(re.findall(r"^\| arm \| return ", TEXT, re.MULTILINE)) == len(METRICS) > 2


def test_the_table_of_agents_holds_what_they_learned() -> None:
    """As `laurel classics deep` wrote it beside its figure; a dash where an agent has not been trained yet."""
    expected = set()
    found = read_json(REPOSITORY / "docs" / "deep.json")["tasks"]
    for task in TASKS:
        for name in task.agents.keys() - {"plain PPO", "PPO without"}:  # they are there to compare with
            record = found.get(task.title, {"agents": {}})["agents"].get(name)
            returned, steps = in_words(record) if record else ("-", "-")
            expected.add(f"{task.title} | {returned} | {task.goal:g}: {steps} |")
    table = TEXT.partition("| `agent.algorithm` | use it for |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines()[2:] if not row.startswith(("| `tabular`", "| `bandit`"))]
    assert {" | ".join(row.split(" | ")[3:]) for row in rows} == expected
    assert len(rows) == len(expected)


@pytest.mark.parametrize("page", [*PAGES, "benchmarks/README.md", "benchmarks/suites/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    file = REPOSITORY / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


def shown(program: str) -> list[str]:
    """Return what README and docs/ give a program to do, between backticks or in a block of shell commands."""
    commands = [part for page in PAGES for command in (*named(page), *typed(page)) for part in command.split(" && ")]
    return [command.removeprefix(f"{program} ") for command in commands if command.startswith(f"{program} ")]


@pytest.mark.parametrize("command", dict.fromkeys(shown("laurel")))
def test_a_command_is_one_that_laurel_takes(command: str) -> None:
    words = [word for word in shlex.split(command.partition(" | ")[0], comments=True) if word != "..."]
    if any(word.startswith("-") and word != "--help" for word in words):
        _parser().parse_args(words)
        return
    with pytest.raises(SystemExit, match=r"^0$"):  # it is named, and need not be whole
        _parser().parse_args([*words, "--help"])


def test_readme_is_short() -> None:
    """What is longer has a page."""
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_make_has_the_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {command.split()[0] for command in shown("make") if not command.startswith("-")}
    assert {"run", "test", "image"} <= named <= targets


def example(word: str) -> str:
    """Return the Python of the one example that has a word."""
    (code,) = (code for code in re.findall(r"```python\n(.+?)```", TEXT, re.DOTALL) if word in code)
    return code


def test_bandits_are_drawn_as_printed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", example("run_agent(")], cwd=tmp_path, check=True)
    with Image.open(tmp_path / "bandits.png") as image:
        assert image.width > 500


def test_an_environment_of_ones_own_runs(tmp_path: Path) -> None:
    sentence = r"Write one file beside `params.yaml`, such as \[(.+)\]\(.+\), and set `env.id: (.+)`"
    file, env_id = re.findall(sentence, TEXT)[0]
    small = {
        "collect.steps": 300,
        "rewards.preference.max_epochs": 3,
        "agent.steps": 256,
        "agent.seeds": [0],
        "arms": ["preference"],
    }
    project = Project.create(tmp_path / "p", {**UNTRACKED, **small, "env.id": env_id})
    shutil.copyfile(EXAMPLES / file, project.path / file)
    run = (
        "from laurel.cli.app import main; from laurel.stages.pipeline import STAGE; "
        "raise SystemExit(any(main([stage]) for stage in STAGE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=project.path, env=project.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = read_vocabulary(project.output("caption")).texts
    assert {"You walk right.", "You walk left.", "You bump into the wall."} <= set(said)
    assert list(read_json(project.path / "reports/metrics.json")["arms"]) == ["preference"]
    assert "no adapter of its own" not in done.stderr
