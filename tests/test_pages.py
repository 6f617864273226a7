"""The pages of README and docs/ as a site, and their snippets: YAML is valid, listings are the files.

Other Python is run by test_library_examples, commands are parsed by test_readme.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from browser import Browser
from installed import EXAMPLES
from laurel.params import Params, parse_params
from pages import FENCE, PAGES, blocks
from tiny_project import REPOSITORY

LANGUAGES = {"sh", "python", "yaml", "toml", "dockerfile", "text"}


def listings(page: str) -> list[tuple[str, str]]:
    """Return the files of examples/ that a page prints, with what it prints."""
    return [(block.title, block.text) for block in blocks(page) if block.language == "python" and block.title]


def yaml_blocks() -> list[Any]:
    """Return what pages show of params.yaml: YAML without a file's name, whose keys are sections."""
    shown = [
        (page, yaml.safe_load(block.text))
        for page in PAGES
        for block in blocks(page)
        if block.language == "yaml" and not block.title
    ]
    return [
        pytest.param(content, id=f"{page}-{number}")
        for number, (page, content) in enumerate(shown)
        if content.keys() <= Params.model_fields.keys()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_code_says_its_language(page: str) -> None:
    """So that all of it is run or checked: an indented block would pass unseen."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert not re.search(r"(?<=\n\n)    ", FENCE.sub("", PAGES[page]))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return params with sections of others in them; arms are replaced as a whole."""
    both = {
        key: merged(base[key], value)
        for key, value in changes.items()
        if key != "arms" and isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **changes, **both}


@pytest.mark.parametrize(
    ("name", "code"), [pytest.param(*found, id=found[0]) for page in PAGES for found in listings(page)]
)
def test_a_listing_is_the_file_that_other_tests_run(name: str, code: str) -> None:
    assert (EXAMPLES / name).read_text(encoding="utf-8") == code


@pytest.mark.parametrize("content", yaml_blocks())
def test_what_pages_show_of_params_is_valid(
    content: dict[str, Any], examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)  # for examples/, and files that params name
    base = yaml.safe_load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    parse_params(merged(base, content), "params.yaml")


@pytest.mark.parametrize(("page", "group"), [("judge", "laurel.annotators"), ("reward-method", "laurel.rewards")])
def test_the_package_that_a_page_shows_brings_the_module_that_it_lists(page: str, group: str) -> None:
    name = f"docs/tutorials/{page}.md"
    (text,) = [block.text for block in blocks(name) if block.title == "pyproject.toml"]
    package, ((file, _),) = tomllib.loads(text), listings(name)
    name = file.removesuffix(".py")
    assert package["project"]["entry-points"] == {group: {name: name}}
    assert package["tool"]["setuptools"]["py-modules"] == [name]


def test_pages_show_many_params() -> None:
    assert len(yaml_blocks()) > 15


def test_the_custom_job_has_the_fields_of_googles_client() -> None:
    """No server of Google's was asked."""
    from google.cloud.aiplatform_v1.types import CustomJobSpec

    (job,) = [block.text for block in blocks("docs/vertex-ai.md") if block.title == "job.yaml"]
    spec = CustomJobSpec.from_json(json.dumps(yaml.safe_load(job)))
    assert spec.scheduling.strategy.name == "SPOT"
    assert spec.worker_pool_specs[0].machine_spec.machine_type == "g2-standard-8"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: links and anchors are checked, those into the repository's files, too."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    place = tmp_path_factory.mktemp("built") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(REPOSITORY)
        patch.setattr(sys, "path", [*sys.path])
        build(load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(place), strict=True))
    return place


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    built = (site / "reference/params.html").read_text(encoding="utf-8")
    assert "agent.ppo.learning_rate" in built
    assert "laurel annotate review" in (site / "reference/commands.html").read_text(encoding="utf-8")
    assert "class Corridor" in re.sub("<.*?>", "", (site / "repository/examples/corridor.py.html").read_text())
    external = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://(?!www\.sitemaps)")
    for page in site.rglob("*.html"):
        assert not external.search(page.read_text(encoding="utf-8")), f"{page}: loads something from elsewhere"


def test_the_site_is_searched_from_disk(site: Path, browser: Browser) -> None:
    browser.look()
    browser.open(site / "tutorials/judge.html")
    found = browser.ask("""(async () => {
      document.querySelector("[for=__search]").click();
      const query = document.querySelector(".md-search__input");
      for (let i = 0; i < 100; i++) {
        query.focus();
        query.value = "position bias";
        query.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
        const links = [...document.querySelectorAll(".md-search-result__link")].map((link) => link.href);
        if (links.length) return links;
        await new Promise((done) => setTimeout(done, 100));
      }
      return [];
    })()""")
    assert any("labels.html" in link for link in found), found
    assert all(link.startswith(site.as_uri()) for link in found)
