"""LoRA weights for a language model in this process, fitted to questions whose answer is known (Hu et al. 2021,
arXiv 2106.09685).

The loss is the cross-entropy of one logit, that of the first choice minus that of the second, at the answer token. A
batch has questions with a common prefix, which is computed once, with its gradient; a step adds up the gradients of
several batches. The base's weights are frozen; the added ones are trained in single precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import DynamicCache

from laurel.errors import AnnotationError
from laurel.llm.adapter import WEIGHTS as ADAPTER_WEIGHTS
from laurel.llm.chat import ChatRequest, Failure
from laurel.llm.judge_tuning import Tuning
from laurel.llm.local_head import some_logits
from laurel.llm.local_model import LocalModel
from laurel.llm.local_prompts import Prompt, PromptReader
from laurel.llm.local_scoring import common_beginning
from laurel.llm.lora import with_lora
from laurel.seeding import derive_seed, generator

CHECKPOINT = ".checkpoint.safetensors"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""Names of the attention projections in most architectures."""


WARM_UP = 10
"""Steps in which the learning rate rises."""
LARGEST, PRECISION = 32, 0.02
"""How many logits are compared with products of embeddings, and the relative difference that rounding may make."""


class Item(NamedTuple):
    """Questions that belong together, such as a pair in both orders."""

    group: str
    """Items of a group have a common prefix: the texts of one environment."""
    requests: tuple[ChatRequest, ...]
    """Requests with two choices each."""
    targets: tuple[float, ...]
    """For each request, the probability that its first choice is right."""


class Row(NamedTuple):
    """A question as tokens."""

    tokens: list[int]
    target: float


def tune(
    local: LocalModel, items: Sequence[Item], tuning: Tuning, seed: int, folder: Path, advance: Callable[[int], None]
) -> list[float]:
    """Train an adapter and write it into a folder; a stopped run resumes after its last epoch.

    CHECKPOINT stays in the folder; the caller removes it when finished.

    Args:
        local: the base model, which has the adapter afterwards.
        items: of one epoch.
        folder: for the adapter as peft writes it.
        advance: called with the number of further items done.

    Returns:
        The mean loss of each epoch.

    Raises:
        MissingPackageError: peft is not installed.
        AnnotationError: the model has none of PROJECTIONS, or a question does not fit into it.
    """
    groups, answers = _rows(local, items)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "lora"))
        adapted = with_lora(local, tuning.rank, PROJECTIONS).model
    weights = {name: weight for name, weight in adapted.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=tuning.learning_rate, weight_decay=0.0)
    logit = _Logit(local, answers, next((rows[0][0].tokens for _, rows in groups), [0]))
    of_step = min(tuning.batches, max(1, len(groups)))
    per_pass = -(-sum(-(-len(rows) // tuning.batch) for _, rows in groups) // of_step)
    total = tuning.passes * per_pass
    losses = _resume(folder / CHECKPOINT, weights, optimizer)
    step = per_pass * len(losses)
    advance(len(items) * len(losses))
    adapted.train()
    for number in range(len(losses), tuning.passes):
        sums = 0.0
        for batches in _steps(groups, tuning.batch, of_step, generator(seed, "order", number)):
            for group in optimizer.param_groups:
                group["lr"] = tuning.learning_rate * min(1.0, (step + 1) / WARM_UP, 2 * (1 - step / total))
            optimizer.zero_grad()
            count = sum(len(batch) for _, batch in batches)
            for shared, batch in batches:
                with local.plain_attention():  # its gradient is faster, too
                    loss = _loss(local, shared, [row for rows in batch for row in rows], logit)
                (loss * len(batch) / count).backward()  # type: ignore[no-untyped-call]
                sums += loss.item() * len(batch)
                advance(len(batch))
            torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
            optimizer.step()
            step += 1
        losses.append(sums / len(items))
        _save(folder / CHECKPOINT, weights, optimizer, losses)
    adapted.eval()
    adapted.save_pretrained(folder, save_embedding_layers=False)
    _in_half(folder / ADAPTER_WEIGHTS)
    as_anywhere(folder / "adapter_config.json", local.identity.model)
    return losses


def _rows(local: LocalModel, items: Sequence[Item]) -> tuple[list[tuple[int, list[list[Row]]]], tuple[int, int]]:
    """Return each group's shared tokens and its items as rows, and the tokens of both choices."""
    reader, grouped, answers = PromptReader(local), dict[str, list[list[Prompt]]](), set[tuple[int, ...]]()
    targets: dict[str, list[tuple[float, ...]]] = {}
    for item in items:
        prompts = [reader.read(0, request) for request in item.requests]
        for prompt in prompts:
            if isinstance(prompt, Failure):
                raise AnnotationError(f"A question cannot be asked to {local.identity.model}: {prompt.reason}.")
            if any(len(tokens) > 1 for tokens in prompt.answers.values()):
                raise AnnotationError(
                    f"{local.identity.model} cannot be tuned: it writes one of the answers "
                    f"{', '.join(prompt.answers)} in several tokens."
                )
            answers.add(tuple(tokens[0] for tokens in prompt.answers.values()))
        grouped.setdefault(item.group, []).append([prompt for prompt in prompts if isinstance(prompt, Prompt)])
        targets.setdefault(item.group, []).append(item.targets)
    (tokens,) = answers or {(0, 0)}
    groups = []
    for name, prompts_of in grouped.items():
        shared = common_beginning([prompt for prompts in prompts_of for prompt in prompts])
        rows = [
            [Row(prompt.tokens, target) for prompt, target in zip(prompts, of_item, strict=True)]
            for prompts, of_item in zip(prompts_of, targets[name], strict=True)
        ]
        groups.append((shared, rows))
    return groups, (tokens[0], tokens[1])


def _steps(
    groups: Sequence[tuple[int, list[list[Row]]]], size: int, of_step: int, rng: np.random.Generator
) -> Iterator[list[tuple[int, list[list[Row]]]]]:
    """Yield the batches of each step, of one group each, in a random order: all items once."""
    batches = []
    for shared, items in groups:
        order = rng.permutation(len(items)).tolist()
        parts = (order[start : start + size] for start in range(0, len(items), size))
        batches += [(shared, [items[i] for i in part]) for part in parts]
    order = rng.permutation(len(batches)).tolist()
    for start in range(0, len(batches), of_step):
        yield [batches[i] for i in order[start : start + of_step]]


class _Logit:
    """The logit of the first answer minus that of the second, at the last tokens of some rows.

    In most models it is a product of the hidden state with a difference of two embeddings. Others scale, limit or shift
    their logits (Granite, Cohere, Gemma 2, Phi), so they are run as a whole: what is learned must be what is scored.
    """

    def __init__(self, local: LocalModel, answers: tuple[int, int], tokens: Sequence[int]) -> None:
        self._model, self._answers = local.model, torch.tensor(answers, device=local.device)
        self._embedding = local.model.get_output_embeddings().weight
        first, second = (self._embedding[answer].float().detach() for answer in answers)
        self._direction = first - second
        self._plain = self._is_plain(torch.tensor([list(tokens)], device=local.device))

    def _is_plain(self, tokens: torch.Tensor) -> bool:
        """Tell whether logits are products with embeddings, by the largest ones after these tokens (1, T)."""
        with torch.inference_mode():
            logits = self._model(input_ids=tokens).logits[0, -1].float()
            largest = torch.cat([logits.abs().topk(min(LARGEST, len(logits))).indices, self._answers])
            hidden = self._model.base_model(input_ids=tokens).last_hidden_state[0, -1].float()
            products = self._embedding[largest].float() @ hidden
        return bool((products - logits[largest]).abs().max() <= PRECISION * products.abs().max())

    def __call__(self, tokens: torch.Tensor, ends: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Return it (B,) for tokens (B, W) with these last positions (B,)."""
        rows, inputs = torch.arange(len(ends)), {"input_ids": tokens, "past_key_values": cache, "use_cache": True}
        if self._plain:
            hidden: torch.Tensor = self._model.base_model(**inputs).last_hidden_state
            return hidden[rows, ends].float() @ self._direction
        with some_logits(self._model, self._answers):
            logits: torch.Tensor = self._model(**inputs).logits[rows, ends].float()
        return logits[:, 0] - logits[:, 1]


def _loss(local: LocalModel, shared: int, rows: Sequence[Row], logit: _Logit) -> torch.Tensor:
    """Return the mean cross-entropy of rows that share their first tokens.

    Padding is on the right, where no earlier token attends to it.
    """
    backbone, device = local.model.base_model, local.device
    cache = DynamicCache(config=local.model.config)
    if shared:
        backbone(
            input_ids=torch.tensor([rows[0].tokens[:shared]], device=device), past_key_values=cache, use_cache=True
        )
        for layer in cache.layers:
            layer.keys, layer.values = (part.expand(len(rows), -1, -1, -1) for part in (layer.keys, layer.values))  # type: ignore[union-attr]
    suffixes = [row.tokens[shared:] for row in rows]
    width = max(map(len, suffixes))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in suffixes], device=device)
    logits = logit(tokens, torch.tensor([len(row) - 1 for row in suffixes]), cache)
    targets = torch.tensor([row.target for row in rows], device=device)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


def _save(
    file: Path, weights: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer, losses: list[float]
) -> None:
    """Write the state for the next epoch, atomically."""
    from safetensors.torch import save_file

    tensors = {name: weight.detach() for name, weight in weights.items()}
    for name, weight in weights.items():
        for key, value in optimizer.state[weight].items():
            tensors[f"{key}:{name}"] = value
    partial = file.with_name(f"{file.name}.partial")
    save_file(tensors, partial, {"losses": json.dumps(losses)})
    partial.replace(file)


def _resume(file: Path, weights: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> list[float]:
    """Load the state of a stopped run, if any; return the losses of its epochs."""
    from safetensors import safe_open

    if not file.exists():
        return []
    with safe_open(file, "pt") as stored:
        for name, weight in weights.items():
            weight.data.copy_(stored.get_tensor(name))
        for key in stored.keys():  # noqa: SIM118 - it is not a dictionary
            kind, colon, name = key.partition(":")
            if colon:
                optimizer.state[weights[name]][kind] = stored.get_tensor(key)
        return list(json.loads(stored.metadata()["losses"]))


def _in_half(file: Path) -> None:
    """Convert an adapter's weights to bfloat16, which halves its size."""
    from safetensors.torch import load_file, save_file

    save_file({name: weight.to(torch.bfloat16) for name, weight in load_file(file).items()}, file, {"format": "pt"})


def as_anywhere(file: Path, base: str) -> None:
    """Name the base as in the params, not by its path on this machine, and sort peft's sets."""
    config = json.loads(file.read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": base, "target_modules": sorted(config["target_modules"])}
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def settings_of(tuning: Tuning) -> dict[str, Any]:
    """Return the settings as a record."""
    return {**asdict(tuning), "projections": list(PROJECTIONS), "warm_up": WARM_UP}
