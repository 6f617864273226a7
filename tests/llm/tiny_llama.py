"""A causal language model with random weights and a chat template, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
SENTENCES = [
    "You open the door with the key.",
    "You bump into a wall, and turn around.",
    "Which of the two is better for someone who wants to reach the goal?",
    "Answer with 1 or 2, and nothing else. Say first, second or neither.",
    "0 1 2 3 4 5 6 7 8 9",
]


def make_tiny_llama(path: Path, seed: int = 0, **config: Any) -> Path:
    """Save a Llama as transformers does; its weights are large enough for every token to matter."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    defaults: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    LlamaForCausalLM(LlamaConfig(**{**defaults, **config})).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def make_tokenizer() -> Any:
    """Train a byte-level BPE on a few sentences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    )
