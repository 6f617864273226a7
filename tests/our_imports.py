"""Which modules of ours a file imports at run time, within functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

from tiny_project import REPOSITORY

FOLDERS = {"laurel": "src/laurel", "laurel.components": "components", "laurel.pipelines": "pipelines"}


@cache
def our_modules() -> Mapping[str, Path]:
    """Return the name of every module and package -> its file."""
    found = {}
    for package, folder in FOLDERS.items():
        root = REPOSITORY / folder
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = file
    return found


def imported(file: Path, *, types: bool = False) -> Iterator[str]:
    """Yield the names of modules of ours that a file imports; with `types` also what the type checker alone imports."""
    tree, known = ast.parse(file.read_text(encoding="utf-8")), our_modules()
    guarded = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    guarded = [] if types else guarded
    hidden = {id(node) for block in guarded for node in chain.from_iterable(map(ast.walk, block.body))}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        yield from (name for name in names if name in known)


def plugged(file: Path) -> Iterator[str]:
    """Yield the names of modules of ours that a file may load as plug-ins: those of each group that it declares, or
    imports from where it is declared."""
    known, tree = our_modules(), ast.parse(file.read_text(encoding="utf-8"))
    packages = [*_groups(tree).values()]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            there = _groups(ast.parse(known[node.module].read_text(encoding="utf-8")))
            packages += [there[name.name] for name in node.names if name.name in there]
    yield from (name for package in packages for name in known if name.startswith(f"{package}."))


def named(file: Path) -> Iterator[str]:
    """Yield Laurel modules that a file refers to in a string, as in "laurel.agents.dqn:DQN"."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(":") == 1:
            module = node.value.partition(":")[0]
            if module in our_modules():
                yield module


def _groups(tree: ast.Module) -> dict[str, str]:
    """Return the name of each group of plug-ins that a module declares -> the package of those built in."""
    found = {}
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func).startswith("Plugins"):
            (name,) = node.targets if isinstance(node, ast.Assign) else [node.target]
            (package,) = [ast.literal_eval(one.value) for one in value.keywords if one.arg == "package"]
            found[ast.unparse(name)] = package
    return found
