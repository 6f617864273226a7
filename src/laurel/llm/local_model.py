"""A causal language model with its tokenizer in this process: loading by transformers, from a directory or the Hugging
Face hub, and identification of its weights.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.data.manifest import MANIFEST
from laurel.device import torch_device
from laurel.errors import ParamsError, first_line
from laurel.llm import smollm2
from laurel.llm.adapter import WEIGHTS as ADAPTER_WEIGHTS
from laurel.llm.adapter import adapter_base, adapter_not_loaded, adapter_place
from laurel.llm.chat import Identity, RefusedError
from laurel.llm.chat_template import undated
from laurel.llm.cpu_types import float32_is_quicker
from laurel.llm.damage import damaged

if TYPE_CHECKING:
    import torch

    from laurel.params.judges import HuggingFaceParams

KEY = "annotate.huggingface"
CONFIG = "config.json"
WEIGHTS = {".safetensors", ".bin"}
DIGESTED = {".json", ".jinja", ".txt", ".model"} | WEIGHTS
WHOLE = 2**20
"""Files up to this many bytes are digested completely; of larger ones, this many bytes in blocks spread over the
file."""
BLOCK = 2**12


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A loaded model with the properties that are needed to run it."""

    model: Any
    tokenizer: Any
    device: torch.device
    identity: Identity
    context: int
    """Maximum total tokens of prompt and answer."""
    stops: frozenset[int]
    """Tokens that end an answer."""
    resumes: bool
    """Whether its cache can be extended by several tokens at once, which a shared prefix needs."""
    trees: bool
    """Whether it accepts a mask and positions, so that several continuations can share a row: no layer derives
    positions from the order of the tokens."""
    picks_logits: bool
    """Whether it can compute logits only at chosen positions."""

    def logits(self, tokens: torch.Tensor, wanted: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Run the model on tokens (B, T) and return its logits (B, W, V) at the wanted positions (B, W).

        Raises:
            RefusedError: a logit is NaN.
        """
        import torch

        tokens, wanted = tokens.to(self.device), wanted.to(self.device)
        keep = {"logits_to_keep": wanted} if self.picks_logits else {}
        with torch.inference_mode():
            logits = self.model(input_ids=tokens, **inputs, **keep).logits
            if not self.picks_logits:
                logits = logits.take_along_dim(wanted[..., None], dim=1)
            if logits.isnan().any():
                raise RefusedError(
                    f'Language model "{self.identity.model}" gives NaN in {self.model.dtype}: '
                    "set its dtype to bfloat16 or float32, or fix its weights."
                )
        return logits

    def conversation(self, messages: list[dict[str, str]], **options: Any) -> str:
        """Return the text of messages in the model's chat template, up to where its answer begins.

        Raises:
            RefusedError: the template does not support such messages.
        """
        from jinja2 import TemplateError

        try:
            return str(
                self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
            )
        except TemplateError as error:
            raise RefusedError(
                f'The chat template of "{self.identity.model}" does not take this conversation: '
                f"{str(error).rstrip('.')}. Change the prompt, or use another model."
            ) from None

    @contextmanager
    def plain_attention(self) -> Iterator[None]:
        """Compute attention by matrix products, which on a CPU are faster for short rows than fused attention.

        They store the weights of all pairs of tokens: long rows would take gigabytes.
        """
        implementation = self.model.config._attn_implementation
        if self.device.type == "cpu":
            self.model.set_attn_implementation("eager")
        try:
            yield
        finally:
            self.model.set_attn_implementation(implementation)


def load_model(params: HuggingFaceParams, *, chats: bool = True) -> LocalModel:
    """Load the model that the params name.

    Args:
        chats: whether it is to read conversations, which needs a chat template; False: a base model is enough.

    Raises:
        RefusedError: there is no such model, it cannot be fetched, it is not a causal language model, it has no chat
            template, or a package or memory is missing.
        ParamsError: a GPU is asked for, but missing.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
    from transformers.utils import logging

    from laurel.llm.local_head import make_precise

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    device = torch_device(params.device, f"{KEY}.device")
    _check(params, device)
    tokenizer, model = _load(params, device, chats=chats)
    make_precise(model)
    config = model.config.get_text_config()
    ends = [tokenizer.eos_token_id, model.generation_config.eos_token_id]
    flat = [token for end in ends for token in (end if isinstance(end, list) else [end])]
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return LocalModel(
        model=model,
        tokenizer=tokenizer,
        device=device,
        identity=Identity(params.model, _revision(params)),
        context=context_of(model.config, tokenizer),
        stops=frozenset(token for token in flat if token is not None),
        resumes=kinds <= {DynamicLayer, DynamicSlidingWindowLayer},
        trees=kinds == {DynamicLayer}
        and "position_ids" in inspect.signature(model.forward).parameters
        and not getattr(config, "alibi", False),
        picks_logits="logits_to_keep" in inspect.signature(model.forward).parameters,
    )


def context_of(config: Any, tokenizer: Any) -> int:
    """Return the maximum total tokens of prompt and answer, from transformers' config and tokenizer of a model."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(limit or tokenizer.model_max_length)


def _check(params: HuggingFaceParams, device: torch.device) -> None:
    """Refuse settings that cannot work before gigabytes are loaded."""
    if params.quantization != "none" and device.type != "cuda":
        raise ParamsError(
            f'{KEY}.quantization is "{params.quantization}", which needs a GPU, but the model is to run on the '
            "CPU. Set it to none, or run where PyTorch finds a GPU."
        )
    check_installed(params)


def check_installed(params: HuggingFaceParams) -> None:
    """Raise if a model's directory or a required package is missing here; the hub is not checked.

    Raises:
        RefusedError: something is missing.
    """
    if params.quantization != "none":
        _need("quantization", params.quantization, "bitsandbytes", "accelerate")
    if params.adapter is not None:
        _need("adapter", params.adapter, "peft")
    for name, config, refuse in (
        (smollm2.path_of(params.model), CONFIG, _not_loaded),
        (params.adapter, f"adapter_{CONFIG}", adapter_not_loaded),
    ):
        if name and name.startswith(("/", ".", "~")):
            if not Path(name).is_dir():
                raise refuse(name, "there is no such directory")
            if not Path(name, config).is_file():
                raise refuse(name, f"it has no {config}")


def _need(key: str, value: str, *packages: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise RefusedError(
            f'{KEY}.{key} is "{value}", which needs {names}: run pip install {" ".join(missing)}, or leave it out.'
        )


def _load(params: HuggingFaceParams, device: torch.device, *, chats: bool) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if params.model == smollm2.NAME:
        smollm2.check()
    name = smollm2.path_of(params.model)
    source: dict[str, Any] = {"revision": params.revision, "trust_remote_code": False}
    kwargs: dict[str, Any] = {"use_safetensors": True}  # other formats can run code
    if params.quantization != "none":
        bits = {f"load_in_{params.quantization}": True, "bnb_4bit_compute_dtype": torch.bfloat16}
        kwargs["quantization_config"] = BitsAndBytesConfig(**bits)  # type: ignore[no-untyped-call]
        kwargs["device_map"] = {"": device}
    try:
        config = AutoConfig.from_pretrained(name, **source)
        written = set(config.architectures or ())
        if not written & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
            kind = ", ".join(sorted(written)) or config.model_type
            raise _not_loaded(params.model, f"it is not a causal language model, but {kind}")
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        tokenizer.chat_template = undated(tokenizer.chat_template)
        if chats and tokenizer.chat_template is None:
            raise _not_loaded(params.model, "its tokenizer has no chat template")
        kwargs["dtype"] = _dtype(params, config, device)
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **source, **kwargs)
        model, report = loaded
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            raise _not_loaded(params.model, f"{type(model).__name__} has no cache of keys and values")
        if report["missing_keys"]:  # transformers would initialise them randomly
            raise _not_loaded(params.model, f"its weights lack {min(report['missing_keys'])}")
        if params.adapter is not None:
            _load_adapter(model, params, params.adapter)
        if params.quantization == "none":
            model = _merged(model).to(device)
    except torch.OutOfMemoryError:
        raise RefusedError(
            f'Language model "{params.model}" does not fit into the memory of the GPU: set its quantization to 8bit '
            "or 4bit, its device to cpu, or use a smaller model."
        ) from None
    except damaged() as error:
        raise _not_loaded(params.model, first_line(error)) from None
    return tokenizer, model.eval()


def _load_adapter(model: Any, params: HuggingFaceParams, name: str) -> None:
    import torch
    from transformers.utils.hub import cached_file

    place = adapter_place(name)
    try:
        if cached_file(place, ADAPTER_WEIGHTS, _raise_exceptions_for_missing_entries=False) is None:
            missing = f"it has no {ADAPTER_WEIGHTS}, and other formats of weights can run code"
            not_found = (
                f"there is no such directory, and the hub has no {ADAPTER_WEIGHTS} of that name or cannot be reached"
            )
            raise adapter_not_loaded(name, missing if Path(place).is_dir() else not_found)
        _check_base(params)
        model.load_adapter(place)
    except damaged() as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise adapter_not_loaded(name, first_line(error)) from None


def _dtype(params: HuggingFaceParams, config: Any, device: torch.device) -> str:
    """Return the dtype of the weights; auto: as saved, or float32 if that is faster on the CPU."""
    import torch

    saved = config.get_text_config().dtype or config.dtype
    half = saved in (torch.bfloat16, torch.float16)
    if params.dtype == "auto" and device.type == "cpu" and half and float32_is_quicker(saved):
        return "float32"
    return params.dtype


def _merged(model: Any) -> Any:
    """Merge an adapter, if there is one, into the weights, which saves two thirds of the calls of an adapted layer."""
    for layer in model.modules():
        if hasattr(layer, "lora_A"):  # peft's name for it; peft need not be installed if there is no adapter
            layer.merge()
    return model


def _check_base(params: HuggingFaceParams) -> None:
    """Refuse an adapter that was tuned on other weights, if these are recorded."""
    base = adapter_base(str(params.adapter))
    if base is not None and base[1] != weights_digest(params):
        raise RefusedError(
            f'The adapter "{params.adapter}" was tuned on {base[0]} with weights of the digest {base[1]}, but '
            f'"{params.model}" has others. Set {KEY}.model to the one that it was tuned on, or {KEY}.adapter to '
            "another adapter."
        )


def _not_loaded(name: str, reason: str) -> RefusedError:
    return RefusedError(
        f'Language model "{name}" cannot be loaded: {reason.rstrip(".: ")}. '
        "Give a directory with a causal language model that has a chat template, or a name on the Hugging Face hub."
    )


def identity_here(params: HuggingFaceParams) -> Identity | None:
    """Return the identity of the model without loading or downloading it; None if its weights are not here."""
    try:
        return Identity(params.model, _revision(params, local_files_only=True))
    except (OSError, RefusedError):
        return None


def _revision(params: HuggingFaceParams, **options: bool) -> str:
    """Describe the weights, and the loading options that affect answers."""
    import torch
    from transformers import AutoConfig
    from transformers.utils.hub import cached_file

    folder = _folder(params, **options)
    on_gpu = params.device != "cpu" and torch.cuda.is_available()
    try:
        read = AutoConfig.from_pretrained(folder)
    except damaged() as error:
        raise _not_loaded(params.model, first_line(error)) from None
    dtype = _dtype(params, read, torch.device("cuda" if on_gpu else "cpu"))
    parts = [weights_revision(folder)]
    if params.adapter is not None:
        adapter = cached_file(adapter_place(params.adapter), f"adapter_{CONFIG}", **options)
        parts.append(f"adapter {weights_revision(Path(str(adapter)).parent)}")
    parts += [value for value in (params.quantization, dtype) if value not in ("none", "auto")]
    return " ".join(parts)


def weights_revision(folder: Path) -> str:
    """Return the commit if the folder is in the hub's cache, otherwise a digest of its config, vocabulary and weights.

    For large files the digest covers name, length and blocks spread over the file: training changes every tensor, so
    this distinguishes such weights without reading gigabytes, but misses a change of a single number.
    """
    from transformers.utils.hub import extract_commit_hash

    commit = extract_commit_hash(str(folder / CONFIG), None)
    return commit or _digest(folder, DIGESTED)


def weights_digest(params: HuggingFaceParams) -> str:
    """Return a digest of only a model's weights, which an adapter belongs to; they must be on this machine."""
    return _digest(_folder(params), WEIGHTS)


def _folder(params: HuggingFaceParams, **options: bool) -> Path:
    """Return the directory of a model, in the hub's cache if it is from there.

    Raises:
        OSError: the hub does not have it, or `options` is local_files_only=True and its cache does not.
        RefusedError: it has no config.
    """
    from transformers.utils.hub import cached_file

    config = cached_file(smollm2.path_of(params.model), CONFIG, revision=params.revision, **options)
    if config is None:
        raise _not_loaded(params.model, f"it has no {CONFIG}")
    return Path(config).parent


def _digest(folder: Path, suffixes: Set[str]) -> str:
    digest = hashlib.sha256()
    # Laurel's own manifest and hidden files say on which machine a model was written, and in which time
    theirs = (path for path in folder.iterdir() if path.name != MANIFEST and not path.name.startswith("."))
    for path in sorted(path for path in theirs if path.suffix in suffixes and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= WHOLE:
                digest.update(file.read())
                continue
            blocks = WHOLE // BLOCK
            for i in range(blocks):
                file.seek(i * (size - BLOCK) // (blocks - 1))
                digest.update(file.read(BLOCK))
    return digest.hexdigest()[:16]
