"""New LoRA weights for a causal language model (Hu et al. 2021, arXiv 2106.09685)."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

from laurel.errors import AnnotationError
from laurel.extras import need
from laurel.llm.local_model import LocalModel


def with_lora(local: LocalModel, rank: int, layers: Sequence[str] = ()) -> LocalModel:
    """Return the model with new LoRA weights; everything else is frozen.

    They are drawn from torch's global generator, and do not change the model's output before training.

    Args:
        layers: ends of the names of the layers that get weights; (): all linear layers but the last.

    Raises:
        AnnotationError: there are no such layers.
        MissingPackageError: peft is not installed.
    """
    need("peft", "LoRA")
    from peft import LoraConfig, get_peft_model

    targets = list(layers) or "all-linear"
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses deprecated parts of transformers
            return dataclasses.replace(local, model=get_peft_model(local.model, config))
    except ValueError as error:
        reason = f"it has none of the layers {', '.join(layers)}" if layers else str(error)
        raise AnnotationError(f"{type(local.model).__name__} does not support LoRA weights: {reason}.") from None
