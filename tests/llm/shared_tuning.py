"""Tunes a small model by every loss and saves its weights: one of the processes that share this, or one alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from laurel.llm.causal import load_causal, put_weights, weights_of, written_prompt
from laurel.llm.local_model import LocalModel
from laurel.llm.lora import with_lora
from laurel.llm.shared_batches import place
from laurel.llm.trl_tuning import Group, Pair, Tuning
from laurel.llm.tuning_process import tune

ANSWERS = ("left", "forward, left", "left, forward", "forward, forward, left, left")
"""Of different lengths: a mean over tokens must be over those of all processes."""
HOW = Tuning(learning_rate=2e-3, batch_size=8, epochs=2, beta=0.5, imitation=0.5)
ROWS = 22
"""Whose last batch has fewer rows."""
GROUPS = 17
"""In steps of eight, by one process or two, which leave one out."""


def tune_by_each(local: LocalModel, folder: Path) -> None:
    """Tune from the same weights by each loss; the first process writes the results."""
    prompts = [written_prompt(local, f"You are in row {number % 5}.") for number in range(ROWS)]
    turns = [(prompt, ANSWERS[number % 3]) for number, prompt in enumerate(prompts)]
    pairs = [Pair(prompt, ANSWERS[n % 3], ANSWERS[(n + 1 + n % 2) % 4]) for n, prompt in enumerate(prompts)]
    groups = [  # several of the same prompt, whose scores differ
        Group(prompt, ANSWERS[n % 2 :] + ANSWERS[: n % 2], tuple(float((n * n + k * k) % 7) for k in range(4)))
        for n, prompt in enumerate(prompts[:GROUPS])
    ]
    first = weights_of(local.model)
    work = {"imitate": (turns, HOW), **dict.fromkeys(("simpo", "dpo", "kto"), (pairs, HOW))}
    for_groups = {"infonce": HOW, "grpo": replace(HOW, batch_size=32), "rloo": replace(HOW, batch_size=32)}
    work |= {loss: (groups, how) for loss, how in for_groups.items()}
    for loss, (rows, how) in work.items():
        put_weights(local.model, first)
        found = tune(local, loss, rows, how, seed=3)
        if place().rank == 0:
            save_file(weights_of(local.model), folder / f"{loss}.safetensors", metadata={"loss": repr(found)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tune_by_each(with_lora(load_causal(sys.argv[1]), 4), Path(sys.argv[2]))
