"""LoRA adapters: where one lies, and what `laurel annotate tune` recorded of it beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laurel.llm.chat import RefusedError

WEIGHTS = "adapter_model.safetensors"
PACKAGED = Path(__file__).with_name("adapters")
QUALITY = "quality.json"
"""File beside an adapter from `laurel annotate tune`: its purpose and quality."""


def adapter_place(name: str) -> str:
    """Return the directory of an adapter: in this package if it has one of that name, otherwise as in the params."""
    packaged = PACKAGED / name
    return str(packaged) if name.isidentifier() and packaged.is_dir() else name


def adapter_base(name: str) -> tuple[str, str] | None:
    """Return the model that an adapter was tuned on and the digest of its weights; None if that is not recorded.

    Raises:
        RefusedError: the record is damaged.
    """
    return _recorded(name, "base", "model", "weights")


def adapter_prompt(name: str) -> tuple[str, str] | None:
    """Return the name and digest of the prompt that an adapter was tuned with; errors and None as `adapter_base`."""
    return _recorded(name, "prompt", "name", "digest")


def _recorded(name: str, entry: str, *keys: str) -> Any:
    if not (quality := Path(adapter_place(name), QUALITY)).is_file():
        return None
    try:
        recorded = json.loads(quality.read_text(encoding="utf-8"))[entry]
        return tuple(recorded[key] for key in keys)
    except (ValueError, LookupError, TypeError):
        raise adapter_not_loaded(name, f"its {QUALITY} is damaged") from None


def adapter_not_loaded(name: str, reason: str) -> RefusedError:
    """Return the error for an adapter that cannot be loaded."""
    return RefusedError(
        f'The adapter "{name}" cannot be loaded: {reason.rstrip(".: ")}. Give a directory with LoRA weights, as laurel '
        "annotate tune and peft write them, or a name on the Hugging Face hub."
    )
