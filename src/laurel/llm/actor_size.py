"""Estimates what training a language model as an actor takes, from its config alone: weights, memory, hours.

The model is built on PyTorch's meta device, where weights have shapes and take no memory.
"""

from __future__ import annotations

from typing import NamedTuple

from laurel.errors import LaurelError, first_line
from laurel.llm.smollm2 import path_of
from laurel.params.language_actor import TINY, GLAMParams, LanguageActorParams

PROMPT, ANSWER = 200, 20
"""Assumed number of tokens of a prompt, and of an answer."""
GPU_FLOPS = 1e14
"""Assumed operations per second of a GPU: a tenth to a third of what recent ones can do in bfloat16."""
GPUS = {24: "L4", 40: "A100", 80: "A100_80GB or H100", 141: "H200"}
"""GB of memory -> accelerator."""
ACTIVATIONS = 34
"""Bytes for each token, hidden unit and layer at 16 bits (Korthikanti et al. 2022, arXiv 2205.05198, section 4.1)."""
REFERENCED = ("dpo", "kto")
"""Losses with a reference model: the model as it was before the round."""


class Size(NamedTuple):
    """How large a model is."""

    weights: int
    trained: int
    layers: int
    width: int
    vocabulary: int


def size_of(model: str, rank: int) -> Size:
    """Return the size of a model: a directory, `smollm2` or a name on the hub; only its config is read.

    Args:
        rank: of its LoRA weights; 0: all are trained.

    Raises:
        RefusedError: smollm2 is not on this machine.
        OSError: the config cannot be read.
        ValueError: transformers does not know the kind of model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path_of(model), local_files_only=True)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    weights = sum(weight.numel() for weight in made.parameters())
    head = made.get_output_embeddings()
    lora = sum(
        rank * (part.in_features + part.out_features)
        for part in made.modules()
        if isinstance(part, torch.nn.Linear) and part is not head
    )
    text = config.get_text_config()
    return Size(weights, lora if rank else weights, text.num_hidden_layers, text.hidden_size, text.vocab_size)


def gigabytes_of(size: Size, settings: LanguageActorParams | GLAMParams) -> float:
    """Return the memory in GB that tuning takes at its highest: weights, copies, Adam, activations."""
    wide = 2 if settings.dtype == "bfloat16" else 4
    loss, answers = "", 1
    if isinstance(settings, LanguageActorParams):
        loss, answers = settings.loss, settings.proposals if settings.loss == "infonce" else 2
    copies = 2 if loss in REFERENCED else 1
    own = 4 if settings.rank else wide  # LoRA's weights are always of 32 bits
    kept = size.weights * wide + size.trained * (own * copies + own + 2 * own)
    tokens = (PROMPT + ANSWER) * settings.batch_size * answers
    passed = tokens * (size.layers * size.width * ACTIVATIONS * wide / 2 + size.vocabulary * 8)
    return (kept + passed) / 1e9


def operations_of(size: Size, settings: LanguageActorParams | GLAMParams, steps: int) -> float:
    """Return the most operations that training takes: 2 per weight and token forward, 2 or 4 backward."""
    if isinstance(settings, GLAMParams):
        return size.weights * steps * (PROMPT + ANSWER) * (2.0 + settings.n_epochs * (4 if settings.rank else 6))
    written = steps * ANSWER * 2.0
    shown = steps if settings.loss in ("infonce", "grpo", "rloo") else 2 * steps / settings.proposals
    passes = (4 if settings.rank else 6) + (2 if settings.loss in REFERENCED else 0)
    return size.weights * (written + shown * settings.n_epochs * (PROMPT + ANSWER) * passes)


def described(name: str, settings: LanguageActorParams | GLAMParams, steps: int) -> str:
    """Describe the size of an arm's agent: its weights, memory and hours."""
    if settings.model == TINY:
        return f"{name}: the model tiny has under a million weights, and a CPU is enough"
    try:
        size = size_of(settings.model, settings.rank)
    except (LaurelError, OSError, ValueError) as error:
        return f"{name}: the size of {settings.model} is not known here ({first_line(error)})"
    memory = gigabytes_of(size, settings)
    gpu = next(
        (f"a GPU such as {kind}" for least, kind in GPUS.items() if memory < 0.9 * least),
        "more than a GPU has: lower batch_size",
    )
    how = f"LoRA of rank {settings.rank}" if settings.rank else "all of them"
    hours = max(operations_of(size, settings, steps) / GPU_FLOPS / 3600, 0.1)
    return (
        f"{name}: {settings.model} has {size.weights / 1e9:.2f} billion weights, of which {size.trained / 1e6:,.0f} "
        f"million are trained ({how}), in {settings.dtype}: about {memory:,.0f} GB of memory ({gpu}) and at most "
        f"{hours:,.1f} hours an agent, at 100 TFLOP/s, {PROMPT} tokens "
        f"of a prompt and {ANSWER} of an answer"
    )
