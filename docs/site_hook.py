"""What the site has besides docs/: README as its first page, the reference, and the repository's files that pages link.

MkDocs calls the functions `on_...` (https://www.mkdocs.org/user-guide/configuration/#hooks). A link from a page to a
file outside docs/ leads to a page with that file's text, so that the site needs no other host.
"""

from __future__ import annotations

import argparse
import ast
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")
INTERVAL = re.compile(r"(\[[\d.]+k?), (?=[\w.]+\])")
"""The first half of an interval in a table, which is not to be broken."""
CODE = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".jinja": "jinja",
    ".txt": "text",
    "": "text",
}
"""Suffix of a file that is shown as a page -> its language; others are copied."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    add(files, config, "index.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    add(files, config, "reference/commands.md", commands())
    add(files, config, "reference/params.md", params())
    waiting = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md"]
    waiting += sorted((ROOT / "docs").rglob("*.md"))
    known = set()
    while waiting:
        source = waiting.pop()
        if source in known:
            continue
        known.add(source)
        address = address_of(source)
        if files.get_file_from_path(address) is None:
            if source.suffix in CODE or source.suffix == ".md" or source.is_dir():
                add(files, config, address, text_of(source))
            else:
                files.append(File.generated(config, address, abs_src_path=str(source)))
        if source.suffix == ".md" or source.is_dir():
            waiting += linked(source)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that lead out of docs/ lead to the pages that stand for files."""
    source = source_of(page.file.src_uri)
    if source is None:
        return markdown
    folder = source if source.is_dir() else source.parent

    def replaced(match: re.Match[str]) -> str:
        target = inside(folder, match[1])
        here = posixpath.dirname(page.file.src_uri)
        return posixpath.relpath(address_of(target), here) if target.exists() else match[1]

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [LINK.sub(replaced, part) for part in parts[::2]]
    whole = re.sub(r"(?m)^\| .*\|$", lambda row: INTERVAL.sub("\\1,\u00a0", row[0]), "".join(parts))
    return re.sub(r"(<!-- results: .*? -->\n)", r"\1\n", whole)


def add(files: Files, config: Any, address: str, text: str) -> None:
    """Add a page to the site."""
    files.append(File.generated(config, address, content=text))


def address_of(source: Path) -> str:
    """Return where a file of the repository is on the site."""
    path = source.relative_to(ROOT)
    if path == Path("README.md"):
        return "index.md"
    if path.parts[:1] == ("docs",):
        return path.relative_to("docs").as_posix()
    if source.is_dir():
        return f"repository/{path.as_posix()}/index.md"
    return f"repository/{path.as_posix()}{'.md' if source.suffix in CODE else ''}"


def source_of(address: str) -> Path | None:
    """Return the repository's file of a page; None of a page that is made."""
    if address == "index.md":
        return ROOT / "README.md"
    if not address.startswith("repository/"):
        return ROOT / "docs" / address
    path = ROOT / address.removeprefix("repository/")
    places = (path, path.with_suffix(""), path.parent)
    return next((place for place in places if place.exists()), None)


def inside(folder: Path, link: str) -> Path:
    """Return where a link leads; links of the file system are not followed, since they are called otherwise."""
    return Path(os.path.normpath(folder / link))


def linked(source: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links."""
    for name in LINK.findall(text_of(source)):
        target = inside(source if source.is_dir() else source.parent, name)
        if target.is_relative_to(ROOT) and target.exists():
            yield target


def text_of(source: Path) -> str:
    """Return a file as Markdown; of a folder its files, each with what it says of itself."""
    path = source.relative_to(ROOT).as_posix()
    if source.is_dir():
        rows = [
            f"- [{file.name}]({file.name}): {about(file)}"
            for file in sorted(source.iterdir())
            if file.suffix in (".py", ".yaml", ".md") and not file.name.startswith("_")
        ]
        return "\n".join([f"# {path}/\n", *rows]) + "\n"
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n````{CODE[source.suffix]}\n{text.rstrip()}\n````\n"


def about(file: Path) -> str:
    """Return the first line of a file's docstring, comment or text."""
    text = file.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) if file.suffix == ".py" else text.lstrip("# ")
    return (said or "").partition("\n")[0]


def params() -> str:
    """Return every parameter, as `laurel params` lists them."""
    from laurel.params.listing import listed

    sections: dict[str, list[str]] = {}
    for one in listed():
        said = f"{one.sentence}<br><em>{one.allowed}, {one.default}</em>".replace("|", "\\|")
        sections.setdefault(re.split(r"[.\[]", one.name)[0], []).append(f"| `{one.name}` | {said} |")
    parts = [f"## {name}\n\n| parameter | |\n|---|---|\n" + "\n".join(rows) for name, rows in sections.items()]
    return "# Parameters\n\nEvery key of params.yaml; `laurel params SECTION` prints the same.\n\n" + "\n\n".join(parts)


def commands() -> str:
    """Return what every command says of itself with `--help`."""
    from laurel.cli.app import _parser

    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        parts = [f"## {parser.prog}\n\n```text\n{parser.format_help()}```" for parser in parsers(_parser())]
    return "# Commands\n\nWhat each command prints with `--help`.\n\n" + "\n\n".join(parts)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)
