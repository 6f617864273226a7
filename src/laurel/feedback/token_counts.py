"""How many tokens questions have: by the model's tokenizer where that is on this machine, estimated where it is not.

Fetches nothing. Knows nothing about what tokens cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from laurel.llm.chat import ChatRequest
from laurel.llm.chat_wire import BYTES_PER_TOKEN, input_tokens_of
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import HuggingFaceParams


def count_tokens(params: AnnotateParams, requests: Sequence[ChatRequest]) -> tuple[float, str]:
    """Return the tokens of requests, and how they were counted."""
    if params.annotator == "huggingface":
        counted = _by_tokenizer(params.huggingface, requests)
        if counted is not None:
            return counted, "by the model's tokenizer"
    return sum(map(input_tokens_of, requests)), f"estimated as bytes / {BYTES_PER_TOKEN}"


def _by_tokenizer(params: HuggingFaceParams, requests: Sequence[ChatRequest]) -> int | None:
    """Count tokens as the model does; None where its tokenizer is not on this machine, or has no chat template."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            params.model, revision=params.revision, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        return None
    if tokenizer.chat_template is None:
        return None
    total = 0
    for request in requests:
        turns = [{"role": message.role, "content": message.content} for message in request.messages]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        total += len(tokenizer(text, add_special_tokens=False)["input_ids"])
    return total
