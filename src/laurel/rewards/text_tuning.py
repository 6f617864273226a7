"""Tuning a whole model with a scalar head on pairs of texts, by TRL's RewardTrainer.

Any model that transformers loads for sequence classification: causal language models and encoders. Texts are tokenized
here, in the same way for training and scoring: with the token that ends a text, cut at `max_length`. Where a causal
model pads with that token, transformers reads the head at the token before it. A fifth of the texts is held out for the
quality, and with them their pairs. Ties teach nothing here and are left out.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laurel.arrays import BoolArray, FloatArray
from laurel.errors import AnnotationError, DataError, first_line
from laurel.extras import need
from laurel.llm.damage import damaged

if TYPE_CHECKING:
    from laurel.rewards.text_pairs import TextPairs

BATCH = 32
"""Texts that are scored at once."""


@dataclass(frozen=True)
class Tuning:
    """How a model is tuned."""

    epochs: int = 1
    learning_rate: float = 1e-4
    batch_size: int = 16
    max_length: int = 512


@dataclass
class Tuned:
    """A model with a scalar head and its tokenizer."""

    model: Any
    tokenizer: Any
    max_length: int

    @classmethod
    def load(cls, source: Path | str, max_length: int, *, new_head: bool = False) -> Tuned:
        """Load a model; `new_head`: it was not trained for this, and gets a new scalar head.

        Raises:
            AnnotationError: there is no such model, or it cannot be fetched.
        """
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        from transformers.utils import logging

        from laurel.llm import encoder, smollm2
        from laurel.llm.quiet import errors_alone

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        name = str(source)
        place = str(encoder.packaged_path()) if name == encoder.PACKAGED else smollm2.path_of(name)
        extra: dict[str, Any] = {"num_labels": 1} if new_head else {}
        try:
            with errors_alone():  # transformers would warn that the head is new
                tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
                model = AutoModelForSequenceClassification.from_pretrained(
                    place, trust_remote_code=False, use_safetensors=True, dtype=torch.float32, **extra
                )
        except damaged() as error:
            reason = first_line(error)
            raise AnnotationError(
                f'Model "{name}" cannot be loaded with a scalar head: {reason}. Give a directory with a transformers '
                "model, or a name on the Hugging Face hub."
            ) from None
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
        limit = getattr(model.config, "max_position_embeddings", max_length)
        return cls(model.eval(), tokenizer, min(max_length, limit))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts; of a longer one the beginning is read."""
        tokens: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        ends = self.tokenizer.eos_token_id
        if ends is None or self.tokenizer.sep_token_id is not None:
            return tokens
        return [row if row and row[-1] == ends else [*row[: self.max_length - 1], ends] for row in tokens]

    def score(self, texts: Sequence[str]) -> FloatArray:
        """Return the head's answers (N,)."""
        import torch

        ids = self.ids(texts)
        scores = np.zeros(len(ids), dtype=np.float32)
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            padded = self.tokenizer.pad(
                {"input_ids": [ids[i] for i in rows]}, padding_side="right", return_tensors="pt"
            )
            with torch.inference_mode():
                logits = self.model(**padded.to(self.model.device)).logits[:, 0]
            scores[rows] = logits.float().cpu().numpy()
        return scores


def require_trl() -> None:
    """Raise MissingPackageError where TRL is not installed."""
    need("trl", "Tuning a whole model (train: all)")


def tune(name: str, pairs: TextPairs, tuning: Tuning, seed: int, place: Path) -> tuple[Tuned, FloatArray, BoolArray]:
    """Tune a model and write it into a directory.

    Returns:
        The model, its logits (P,) of p(first better), and which pairs it did not see.

    Raises:
        MissingPackageError: TRL is not installed.
        DataError: too few pairs are left to train on.
        AnnotationError: there is no such model.
    """
    require_trl()
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback, set_seed
    from trl import RewardConfig, RewardTrainer

    disable_progress_bars()
    set_seed(seed % 2**32)
    tuned = Tuned.load(name, tuning.max_length, new_head=True)
    fold = pairs.folds(seed)
    held_out = (fold[pairs.first] == 0) | (fold[pairs.second] == 0)
    taught = np.flatnonzero(~held_out & (pairs.p_first != 0.5))
    if not len(taught):
        raise DataError(f"Of {len(pairs.first)} pairs, all have a text that is held out: nothing is left to train on.")
    ids = tuned.ids(pairs.texts)
    better = pairs.p_first > 0.5
    sides = [(ids[pairs.first[i]], ids[pairs.second[i]]) for i in taught]
    rows = [
        dict(zip(("chosen_ids", "rejected_ids"), side if better[i] else side[::-1], strict=True))
        for i, side in zip(taught, sides, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="laurel-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about names that TRL uses and transformers will drop
        args = RewardConfig(
            output_dir=scratch,
            num_train_epochs=tuning.epochs,
            learning_rate=tuning.learning_rate,
            per_device_train_batch_size=tuning.batch_size,
            max_length=None,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=seed % 2**32,
        )
        trainer = RewardTrainer(
            model=tuned.model, args=args, processing_class=tuned.tokenizer, train_dataset=Dataset.from_list(rows)
        )
        trainer.remove_callback(PrinterCallback)  # it would write to standard output
        trainer.train()
    tuned = Tuned(trainer.model.eval(), tuned.tokenizer, tuned.max_length)
    place.mkdir(parents=True)
    tuned.model.save_pretrained(place)
    tuned.tokenizer.save_pretrained(place)
    scores = tuned.score(pairs.texts)
    return tuned, scores[pairs.first] - scores[pairs.second], held_out
