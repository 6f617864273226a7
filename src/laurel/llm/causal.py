"""A trainable causal language model: loaded from a directory, the hub, or `smollm2`, with LoRA weights (Hu et al. 2021,
arXiv 2106.09685) or all weights trainable; saved in peft's or transformers' format.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from laurel.errors import PromptError
from laurel.llm.local_model import LocalModel, load_model
from laurel.params.judges import HuggingFaceParams

if TYPE_CHECKING:
    from torch import Tensor, nn

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def load_causal(
    model: str,
    *,
    adapter: str | None = None,
    device: Literal["auto", "cpu", "cuda"] = "cpu",
    dtype: Dtype = "float32",
    chats: bool = True,
) -> LocalModel:
    """Load a model for training or generation.

    Args:
        model: a directory, `smollm2`, or a name on the Hugging Face hub.
        chats: whether it is to read conversations, which needs a chat template; False: a base model is enough.
        adapter: LoRA weights on top, a directory or a name on the hub.
        dtype: of its weights; for training, float32 or, if the machine supports it efficiently, bfloat16.

    Raises:
        RefusedError: it cannot be loaded.
        ParamsError: a GPU is requested, but missing.
    """
    return load_model(HuggingFaceParams(model=model, adapter=adapter, device=device, dtype=dtype), chats=chats)


def trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the trainable weights by name: LoRA's if there are any, otherwise all."""
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of the trainable weights."""
    return {name: weight.detach().clone() for name, weight in trained(model)}


def put_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load `weights_of` a model of the same kind into this one.

    Raises:
        KeyError: a weight is missing.
        RuntimeError: one has another shape.
    """
    import torch

    with torch.no_grad():
        for name, weight in trained(model):
            weight.copy_(weights[name])


def save_causal(local: LocalModel, folder: Path) -> None:
    """Write the trained weights: an adapter in peft's format, or the whole model with its tokenizer."""
    if is_adapted(local):
        from laurel.llm.local_tuning import as_anywhere  # imports torch

        local.model.save_pretrained(folder, save_embedding_layers=False)
        as_anywhere(folder / "adapter_config.json", local.identity.model)
    else:
        local.model.save_pretrained(folder)
        local.tokenizer.save_pretrained(folder)


def is_adapted(local: LocalModel) -> bool:
    """Whether the model has LoRA weights, and only they are trained."""
    return hasattr(local.model, "peft_config")


def written_prompt(local: LocalModel, user: str, system: str | None = None) -> str:
    """Return the prompt that a model reads: messages in its chat template.

    Raises:
        RefusedError: the chat template does not support such messages.
    """
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": user})
    return local.conversation(messages)


def tokens_of(local: LocalModel, text: str) -> list[int]:
    """Return the tokens of a text that already includes its special tokens, such as a chat template's output."""
    tokens: list[int] = local.tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


def texts_of(local: LocalModel, answers: Sequence[Sequence[int]]) -> list[str]:
    """Return answers, given as tokens, as texts without special tokens; equal ones are decoded once."""
    rows = list(map(tuple, answers))
    distinct = list(dict.fromkeys(rows))
    decoded = (local.tokenizer.decode(list(row), skip_special_tokens=True) for row in distinct)
    text = dict(zip(distinct, decoded, strict=True))
    return [text[row] for row in rows]


def plain_tokenizer(local: LocalModel) -> Any:
    """Return a copy of the tokenizer that, when called, splits texts as `tokens_of` does, for TRL's trainers.

    Many tokenizers, such as those of Llama, would put a BOS token before a text by themselves, and TRL's SimPO adds one
    where there is a `bos_token`; answers are sampled after prompts without it. A missing padding token is added. The
    copy cannot be pickled.
    """

    class Plain(type(local.tokenizer)):  # type: ignore[misc]
        def __call__(self, *args: Any, add_special_tokens: bool = False, **given: Any) -> Any:
            return super().__call__(*args, add_special_tokens=add_special_tokens, **given)

    tokenizer = copy.deepcopy(local.tokenizer)
    tokenizer.__class__ = Plain
    tokenizer.bos_token = None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_room(local: LocalModel, prompts: Sequence[Sequence[int]], room: int) -> None:
    """Refuse prompts, as tokens, that leave no room for an answer: their ends would be cut off in training.

    Raises:
        PromptError: a prompt is too long for the model.
    """
    longest = max(map(len, prompts), default=0)
    if longest + room > local.context:
        raise PromptError(
            f"A prompt has {longest:,} tokens and an answer up to {room:,}, but {local.identity.model} takes "
            f"{local.context:,} in all. Use a shorter prompt or another model."
        )
