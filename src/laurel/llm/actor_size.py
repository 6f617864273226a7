"""Estimates the cost of training a language model as an actor from its config: weights, memory, hours.

The model is built on PyTorch's meta device, where weights have shapes and take no memory.
"""

from __future__ import annotations

from typing import NamedTuple

from laurel.errors import LaurelError, first_line
from laurel.llm.damage import damaged
from laurel.llm.smollm2 import path_of
from laurel.params.language_actor import GROUPED, TINY, GLAMParams, LanguageActorParams

PROMPT, ANSWER = 200, 20
"""Assumed number of tokens of a prompt, and of an answer."""
SHARE = 0.3
"""Assumed share of a GPU's operations per second that training reaches."""
ACTIVATIONS = 34
"""Bytes for each token, hidden unit and layer at 16 bits (Korthikanti et al. 2022, arXiv 2205.05198, section 4.1)."""
REFERENCED = ("dpo", "kto", *GROUPED)
"""Losses that compare with the model before the round: its reference, or the sampler of the groups' answers."""


class GPU(NamedTuple):
    """A kind of accelerator."""

    memory: int
    """In GB."""
    bfloat16: float
    """Peak operations per second of dense products of matrices, by its data sheet."""
    float32: float
    """The same in single precision, without TF32."""

    def rate(self, dtype: str) -> float:
        """Return the operations per second that training is assumed to reach."""
        return SHARE * (self.bfloat16 if dtype == "bfloat16" else self.float32)


GPUS = {
    "L4": GPU(24, 121e12, 30e12),
    "A100": GPU(40, 312e12, 19.5e12),
    "A100_80GB": GPU(80, 312e12, 19.5e12),
    "H100": GPU(80, 989e12, 67e12),
    "H200": GPU(141, 989e12, 67e12),
}
"""Accelerator -> its capacity, in the order of memory."""


class Size(NamedTuple):
    """The size of a model."""

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
        one of `damaged`: the config cannot be read, or transformers does not know the kind of model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path_of(model), local_files_only=True)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    weights = sum(weight.numel() for weight in empty.parameters())
    head = empty.get_output_embeddings()
    lora = sum(
        rank * (part.in_features + part.out_features)
        for part in empty.modules()
        if isinstance(part, torch.nn.Linear) and part is not head
    )
    text = config.get_text_config()
    return Size(weights, lora if rank else weights, text.num_hidden_layers, text.hidden_size, text.vocab_size)


def gigabytes_of(size: Size, settings: LanguageActorParams | GLAMParams) -> float:
    """Return the peak memory of tuning in GB: weights, copies, Adam, activations.

    Among several processes, the first GPU needs most: it also has the model that proposes.
    """
    wide = 2 if settings.dtype == "bfloat16" else 4
    answers, processes, copies = 1, 1, 1
    if isinstance(settings, LanguageActorParams):
        grouped = settings.loss in GROUPED
        answers = settings.proposals if settings.loss == "infonce" else 1 if grouped else 2
        processes = settings.processes
        copies += (settings.loss in REFERENCED) + (grouped and bool(settings.beta))  # a reference beside the sampler
    trained_wide = 4 if settings.rank else wide  # LoRA weights are always float32
    kept = size.weights * wide + size.trained * (trained_wide * copies + trained_wide + 2 * trained_wide)
    if processes > 1:
        kept += size.weights * wide + size.trained * trained_wide
    tokens = (PROMPT + ANSWER) * settings.batch_size / processes * answers
    passed = tokens * (size.layers * size.width * ACTIVATIONS * wide / 2 + size.vocabulary * 8)
    return (kept + passed) / 1e9


def operations_of(size: Size, settings: LanguageActorParams | GLAMParams, steps: int) -> float:
    """Return about how many operations training takes: 2 per weight and token forward, 2 or 4 backward.

    Assumes a pair in every group, although their number decreases during training.
    """
    if isinstance(settings, GLAMParams):
        return size.weights * steps * (PROMPT + ANSWER) * (2.0 + settings.n_epochs * (4 if settings.rank else 6))
    written = steps * ANSWER * 2.0
    shown = steps if settings.loss in ("infonce", *GROUPED) else 2 * steps / settings.proposals
    passes = (4 if settings.rank else 6) + (2 if settings.loss in REFERENCED else 0)
    return size.weights * (written + shown * settings.n_epochs * (PROMPT + ANSWER) * passes)


def described(name: str, settings: LanguageActorParams | GLAMParams, steps: int) -> str:
    """Describe the size of an arm's agent: its weights, memory and hours."""
    if settings.model == TINY:
        return f"{name}: the model tiny has under a million weights, and a CPU is enough"
    try:
        size = size_of(settings.model, settings.rank)
    except damaged(LaurelError) as error:
        return f"{name}: the size of {settings.model} is unknown here ({first_line(error)})"
    memory = gigabytes_of(size, settings)
    processes = settings.processes if isinstance(settings, LanguageActorParams) else 1
    device = f" on the first of {processes} GPUs" if processes > 1 else ""
    extent = f"LoRA of rank {settings.rank}" if settings.rank else "all of them"
    head = (
        f"{name}: {settings.model} has {size.weights / 1e9:.2f} billion weights, of which {size.trained / 1e6:,.0f} "
        f"million are trained ({extent}), in {settings.dtype}: about {memory:,.0f} GB of memory{device}"
    )
    fitting = [kind for kind, gpu in GPUS.items() if memory < 0.9 * gpu.memory]
    if not fitting:
        return f"{head} (more than a GPU has: lower batch_size)"
    needed = operations_of(size, settings, steps)
    note = " on one" if processes > 1 else ""
    hours = "; ".join(
        f"{kind} {max(needed / GPUS[kind].rate(settings.dtype) / 3600, 0.1):,.1f} at "
        f"{GPUS[kind].rate(settings.dtype) / 1e12:,.0f} TFLOP/s"
        for kind in fitting
    )
    return (
        f"{head} (a GPU such as {fitting[0]}) and about these hours per agent{note}: {hours}. Assumed are {SHARE:.0%} "
        f"of a GPU's peak, {PROMPT} tokens of a prompt and {ANSWER} of an answer"
    )
