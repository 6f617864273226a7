"""The packaged sentence encoder, MiniLM, without transformers, whose import takes two processor seconds.

A BERT (Devlin et al. 2019, arXiv 1810.04805) is a sum of embeddings before a `torch.nn.TransformerEncoder`. After the
rounding of `laurel.llm.encoder`, its vectors equal those of transformers' model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_PARTS = {
    "self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip
"""Torch's names of the parts of a layer -> transformers'."""


class MiniLM:
    """Tokenizer and network of a folder.

    Args:
        folder: of a BERT in transformers' format, with `tokenizer.json` and `model.safetensors`.
        device: None: the CPU, in double precision.

    Raises:
        OSError: a file is missing.
        SafetensorError: the weights are damaged.
    """

    def __init__(self, folder: Path, device: torch.device | None = None) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.width: int = config["hidden_size"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.longest: int = config["max_position_embeddings"]
        self._tokenizer.enable_truncation(self.longest)
        self._tokenizer.enable_padding(pad_id=config["pad_token_id"])
        self._device = device or torch.device("cpu")
        dtype = torch.float64 if self._device.type == "cpu" else torch.float32
        made_of: dict[str, Any] = {"device": self._device, "dtype": dtype}
        weights = load_file(folder / "model.safetensors", str(self._device))
        self._words, places, segments = (
            weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        self._places = places.to(dtype) + segments[0].to(dtype)
        eps = config["layer_norm_eps"]
        self._norm = nn.LayerNorm(self.width, eps, **made_of)
        self._norm.load_state_dict({name: weights[f"embeddings.LayerNorm.{name}"] for name in ("weight", "bias")})
        heads, inner = config["num_attention_heads"], config["intermediate_size"]
        layer = nn.TransformerEncoderLayer(
            self.width, heads, inner, 0.0, "gelu", layer_norm_eps=eps, batch_first=True, **made_of
        )
        self._layers = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False).eval()
        for number, module in enumerate(self._layers.layers):
            module.load_state_dict(_of_layer(weights, f"encoder.layer.{number}"))

    def __call__(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Return the last layer's output per token (B, T, E), and the mask of tokens (B, T)."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = torch.tensor([encoding.ids for encoding in encoded], device=self._device)
        mask = torch.tensor([encoding.attention_mask for encoding in encoded], device=self._device)
        embedded = self._norm(self._words[ids] + self._places[: ids.shape[1]])
        return self._layers(embedded, src_key_padding_mask=mask == 0), mask


def _of_layer(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return a layer's weights by torch's names, where one matrix projects queries, keys and values."""
    renamed = {}
    for kind in ("weight", "bias"):
        projections = [weights[f"{prefix}.attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
        renamed[f"self_attn.in_proj_{kind}"] = torch.cat(projections)
        renamed |= {f"{ours}.{kind}": weights[f"{prefix}.{theirs}.{kind}"] for ours, theirs in _PARTS.items()}
    return renamed
