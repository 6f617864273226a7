"""Which modules of ours a file imports at run time, within functions too."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
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


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imported(file: Path, *, types: bool = False) -> Sequence[str]:
    """Return the modules of ours that a file imports; with `types` also those that only the type checker imports."""
    tree, known = parsed(file), our_modules()
    guarded = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    guarded = [] if types else guarded
    hidden = {id(node) for block in guarded for node in chain.from_iterable(map(ast.walk, block.body))}
    names: list[str] = []
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return [name for name in names if name in known]


@cache
def plugged(file: Path) -> Sequence[str]:
    """Return the names of modules of ours that a file may load as plug-ins: those of each group that it declares, or
    imports from where it is declared."""
    known = our_modules()
    packages = [*_groups(file).values()]
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            there = _groups(known[node.module])
            packages += [there[name.name] for name in node.names if name.name in there]
    return [name for package in packages for name in known if name.startswith(f"{package}.")]


@cache
def named(file: Path) -> Sequence[str]:
    """Return Laurel modules that a file refers to in a string, as in "laurel.agents.dqn:DQN"."""
    constants = [node.value for node in ast.walk(parsed(file)) if isinstance(node, ast.Constant)]
    texts = [text for text in constants if isinstance(text, str) and text.count(":") == 1]
    return [module for text in texts if (module := text.partition(":")[0]) in our_modules()]


@cache
def _groups(file: Path) -> Mapping[str, str]:
    """Return the name of each group of plug-ins that a module declares -> the package of those built in."""
    found = {}
    for node in parsed(file).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func).startswith("Plugins"):
            (name,) = node.targets if isinstance(node, ast.Assign) else [node.target]
            (package,) = [ast.literal_eval(keyword.value) for keyword in value.keywords if keyword.arg == "package"]
            found[ast.unparse(name)] = package
    return found
