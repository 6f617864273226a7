"""A cache of texts' embeddings on this machine: files of up to SHARE vectors, indexed by digests of texts.

Texts themselves are not stored. Each file is written as soon as its texts are encoded, so that a killed run can be
resumed.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from laurel.arrays import FloatArray
from laurel.data.digests import digest_directory
from laurel.errors import DataError
from laurel.llm.encoder import CHARACTERS, PACKAGED, load_encoder
from laurel.workspace import cache_directory

if TYPE_CHECKING:
    import torch

SHARE = 4096
"""Maximum number of texts per file."""
KEY_BYTES = 16


def encode_cached(
    model: str,
    texts: Sequence[str],
    advance: Callable[[int], object] = int,
    cache: Path | None = None,
    device: torch.device | None = None,
) -> FloatArray:
    """Return embeddings (N, E) of distinct texts; the sentence encoder is loaded only if some are not cached.

    Args:
        model: as in `laurel.llm.encoder.load_encoder`.
        texts: N distinct ones.
        advance: called with the number of finished texts.
        cache: the folder; None: in LAUREL_CACHE, or the user's cache.
        device: of the encoder; None: the CPU. Each kind of device has its own vectors, which differ.

    Raises:
        AnnotationError: there is no such model.
        DataError: the cache cannot be written.
    """
    from safetensors.numpy import save_file

    identity = _identity(model, device)
    folder = (cache or cache_directory() / "embeddings") / hashlib.sha256(identity.encode()).hexdigest()[:16]
    keys = [hashlib.sha256(text.encode()).digest()[:KEY_BYTES] for text in texts]
    wanted = {key: number for number, key in enumerate(keys)}
    vectors, known = _stored(folder, wanted, len(texts))
    missing = np.flatnonzero(~known).tolist()
    if not missing:
        advance(len(texts))
        return vectors

    encoder = load_encoder(model, device)
    if not Path(model).is_dir() and _identity(model, device) != identity:  # loading has fetched a revision from the hub
        return encode_cached(model, texts, advance, cache, device)
    advance(len(texts) - len(missing))
    missing.sort(key=lambda number: len(texts[number]))  # so that batches have texts of similar length
    for start in range(0, len(missing), SHARE):
        numbers = missing[start : start + SHARE]
        encoded = encoder.encode([texts[number] for number in numbers])
        if not vectors.shape[1]:
            vectors = np.zeros((len(texts), encoded.shape[1]), dtype=np.float32)
        vectors[numbers] = encoded
        raw = np.frombuffer(b"".join(keys[number] for number in numbers), dtype=np.uint8).reshape(-1, KEY_BYTES)
        name = hashlib.sha256(raw.tobytes()).hexdigest()[:32]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f".{name}.{uuid.uuid4().hex}.partial"  # another process may write the same file
            save_file({"keys": raw, "vectors": encoded}, partial)
            partial.replace(folder / f"{name}.safetensors")
        except OSError as error:
            raise DataError(f"{folder}: cannot be written ({error.strerror}). Set LAUREL_CACHE.") from None
        advance(len(numbers))
    return vectors


def _stored(folder: Path, wanted: dict[bytes, int], size: int) -> tuple[FloatArray, np.ndarray]:
    """Return embeddings (N, E) and which of them are cached; a damaged file is removed and counts as missing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    vectors, known = np.zeros((size, 0), dtype=np.float32), np.zeros(size, dtype=np.bool_)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            part = load_file(file)
            raw, stored = part["keys"].tobytes(), part["vectors"]
        except (OSError, SafetensorError, KeyError):
            file.unlink(missing_ok=True)
            continue
        numbers = np.array([wanted.get(raw[start : start + KEY_BYTES], -1) for start in range(0, len(raw), KEY_BYTES)])
        rows = np.flatnonzero(numbers >= 0)
        if len(rows):
            if not vectors.shape[1]:
                vectors = np.zeros((size, stored.shape[1]), dtype=np.float32)
            places = numbers[rows]
            vectors[places] = stored if len(rows) == len(stored) else stored[rows]  # a whole file without a copy
            known[places] = True
    return vectors, known


def _identity(model: str, device: torch.device | None) -> str:
    """Return the identity of an encoder: the content of a directory's files, or a name with the hub's commit."""
    identity = model
    if Path(model).is_dir():
        identity = digest_directory(Path(model), ())
    elif model not in (PACKAGED, CHARACTERS) and (commit := _commit(model)):
        identity = f"{model}@{commit}"
    return identity if device is None or device.type == "cpu" else f"{identity} on {device.type}"


def _commit(name: str) -> str | None:
    """Return the commit of a model in the hub's cache on this machine; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    try:
        file = try_to_load_from_cache(name, "config.json")
    except ValueError:  # it cannot be a name on the hub
        return None
    return Path(file).parent.name if isinstance(file, str) else None
