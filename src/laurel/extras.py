"""Which extra of the distribution a missing package belongs to."""

from __future__ import annotations

import importlib.util

from laurel.errors import MissingPackageError

DISTRIBUTION = "laurel-rl"
EXTRAS = {
    "openai": ("openai", "aiohttp", "aiolimiter"),
    "tune": ("optuna",),
    "code": ("pydantic_monty",),
    "cloud": ("google", "kfp", "kfp_server_api"),
    "local": ("dvc",),
    "inspect": ("inspect_ai",),
    "minari": ("minari", "h5py"),
    "sb3": ("stable_baselines3", "sb3_contrib"),
    "language-model": ("gguf", "peft"),
    "trl": ("datasets", "trl"),
}
"""Extra -> modules that only this extra installs."""


def need(package: str, subject: str = "This") -> None:
    """Raise MissingPackageError where a package is not installed.

    Args:
        subject: what needs it, as the subject of a sentence.
    """
    if importlib.util.find_spec(package) is None:
        error = ModuleNotFoundError(name=package)
        raise missing(error, subject) or error


def missing(error: ModuleNotFoundError, subject: str = "This") -> MissingPackageError | None:
    """Return a message that names the extra with the missing package; None where no extra has it."""
    package = (error.name or "").partition(".")[0]
    extra = next((name for name, packages in EXTRAS.items() if package in packages), None)
    if extra is None:
        return None
    return MissingPackageError(
        f"{subject} needs the package {package}, which is not installed: pip install '{DISTRIBUTION}[{extra}]'"
    )
