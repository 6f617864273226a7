"""An untrained language model: a Llama of a few layers with random weights, and a tokenizer learned from texts.

For tests, examples, and tasks with a small vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PAD, END = "<|pad|>", "<|end|>"
RECURS = 3
"""Minimum number of occurrences for a phrase to become a token."""
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tiny_model(
    folder: Path,
    texts: Iterable[str],
    *,
    width: int = 128,
    heads: int = 4,
    context: int = 512,
    vocabulary: int = 600,
    seed: int = 0,
) -> Path:
    """Write the model in transformers' format; any text can be tokenised, and `texts` need few tokens.

    Args:
        texts: training data of the tokenizer, a byte-level BPE.
        width: of its hidden states; its feed-forward layers have twice that.
        context: maximum total tokens of prompt and answer.
        vocabulary: maximum number of tokens, including the bytes.

    Returns:
        The folder.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    learned = Tokenizer(models.BPE())
    # not split at spaces first: recurring phrases become tokens, so that a small model reads few
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    learned.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=RECURS,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learned.train_from_iterator(list(texts), trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=learned, eos_token=END, pad_token=PAD, chat_template=TEMPLATE
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        initializer_range=width**-0.5,  # learns several times as fast as with transformers' default of 0.02
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
