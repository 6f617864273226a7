"""Loading a language model: one sentence per error, and the identity of the model."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from local_asking import DIGITS, SHARED, request, scores
from tiny_llama import make_tiny_llama, make_tokenizer

from laurel.errors import LaurelError, ParamsError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators.huggingface import HuggingFaceKind
from laurel.llm import cpu_types, local_model
from laurel.llm.chat import RefusedError
from laurel.llm.local_chat import LocalChat, load_local
from laurel.llm.local_model import identity_here, load_model, weights_revision
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import HuggingFaceParams


def refusal(kind: type[LaurelError] = RefusedError, **params: Any) -> str:
    with pytest.raises(kind) as caught:
        load_local(HuggingFaceParams(**{"device": "cpu", **params}))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return sentence


def test_a_directory_that_is_not_there() -> None:
    assert refusal(model="/no/such/model") == (
        'Language model "/no/such/model" cannot be loaded: there is no such directory. Give a directory with a causal '
        "language model that has a chat template, or a name on the Hugging Face hub."
    )


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "it has no config.json"),
        ("{", "not a valid JSON"),
        ('{"hidden_size": 4}', "Unrecognized model"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "hidden_size"),
        ('{"model_type": "llama", "num_attention_heads": 0}', "zero"),
        ("[]", "Unrecognized model"),
    ],
)
def test_a_directory_without_a_models_config(config: str | None, reason: str, tmp_path: Path) -> None:
    """Also if its identity is looked up before it is loaded, as for an estimate."""
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert identity_here(HuggingFaceParams(model=str(tmp_path))) is None
    kind = kind_of(AnnotateParams.model_validate({"annotator": "huggingface", "huggingface": {"model": str(tmp_path)}}))
    assert isinstance(kind, HuggingFaceKind)
    assert kind.count_tokens([request("a")])[1].startswith("estimated")
    assert reason in refusal(model=str(tmp_path))


def test_a_directory_without_an_adapter(tiny_llama: Path, tmp_path: Path) -> None:
    assert refusal(model=str(tiny_llama), adapter=str(tmp_path)) == (
        f'The adapter "{tmp_path}" cannot be loaded: it has no adapter_config.json. Give a directory with LoRA '
        "weights, as laurel annotate tune and peft write them, or a name on the Hugging Face hub."
    )


def test_a_name_that_the_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no hub may be contacted
    assert 'Language model "nobody/has-this-model" cannot be loaded: ' in refusal(model="nobody/has-this-model")


def test_a_tokenizer_that_is_not_there(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    assert "cannot be loaded: " in refusal(model=str(copied))


def test_a_model_without_chat_template(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    assert "its tokenizer has no chat template" in refusal(model=str(copied))


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_a_model_that_writes_nothing(kind: str, tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    getattr(transformers, kind)(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert f"it is not a causal language model, but {kind}." in refusal(model=str(tmp_path))


def test_a_model_that_cannot_continue_from_a_key_value_cache(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    MambaForCausalLM(MambaConfig(vocab_size=400, hidden_size=16, num_hidden_layers=1)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert "MambaForCausalLM has no cache of keys and values." in refusal(model=str(tmp_path))


def test_weights_that_are_not_there(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    assert "its weights lack model.norm.weight." in refusal(model=str(copied))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100])
def test_damaged_files(copied: Path, file: str, content: bytes) -> None:
    (copied / file).write_bytes(content)
    assert "cannot be loaded: " in refusal(model=str(copied))


def test_quantization_on_the_cpu(tiny_llama: Path) -> None:
    assert refusal(ParamsError, model=str(tiny_llama), quantization="4bit") == (
        'annotate.huggingface.quantization is "4bit", which needs a GPU, but the model is to run on the CPU. '
        "Set it to none, or run where PyTorch finds a GPU."
    )


def test_packages_that_are_not_there(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)
    assert refusal(model=str(tiny_llama), adapter="some/adapter") == (
        'annotate.huggingface.adapter is "some/adapter", which needs peft: run pip install peft, or leave it out.'
    )
    monkeypatch.setattr(local_model, "torch_device", lambda name, key: torch.device("cuda"))
    assert refusal(model=str(tiny_llama), quantization="8bit") == (
        'annotate.huggingface.quantization is "8bit", which needs bitsandbytes and accelerate: '
        "run pip install bitsandbytes accelerate, or leave it out."
    )


def test_a_model_too_large_for_memory(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlamaForCausalLM

    def refuse(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LlamaForCausalLM, "to", refuse)
    assert "does not fit into the memory of the GPU: set its quantization" in refusal(model=str(tiny_llama))


@pytest.mark.parametrize(("slow", "dtype"), [(3.0, torch.float32), (1.1, torch.bfloat16), (0.4, torch.bfloat16)])
def test_auto_takes_float32_where_the_cpu_is_clearly_quicker_with_it(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float, dtype: torch.dtype
) -> None:
    """Its answers are kept apart from those in the type that was saved."""
    half = load_model(HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="bfloat16"))
    half.model.save_pretrained(tmp_path)
    half.tokenizer.save_pretrained(tmp_path)
    cpu_types.float32_is_quicker.cache_clear()
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_types, "seconds", lambda dtype: slow if dtype == torch.bfloat16 else 1.0)
    params = HuggingFaceParams(model=str(tmp_path), device="cpu")
    local = load_model(params)
    cpu_types.float32_is_quicker.cache_clear()
    monkeypatch.setattr(cpu_types, "seconds", lambda dtype: 1.0 if dtype == torch.bfloat16 else slow)
    assert load_model(params).identity == local.identity, "a busy moment later changes nothing"
    (tmp_path / "cache" / "cpu_types.json").write_text("damaged")
    cpu_types.float32_is_quicker.cache_clear()
    assert load_model(params).identity == load_model(params).identity
    cpu_types.float32_is_quicker.cache_clear()
    assert local.model.dtype == dtype
    assert local.identity.revision.endswith(" float32") == (dtype == torch.float32)
    assert load_model(params.model_copy(update={"dtype": "bfloat16"})).model.dtype == torch.bfloat16


def test_products_are_timed() -> None:
    assert 0 < cpu_types.seconds(torch.float32) < 10


def test_dtype(tiny_llama: Path, chat: LocalChat) -> None:
    assert chat._local.model.dtype == torch.float32
    half = load_local(HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="bfloat16"))
    assert half._local.model.dtype == torch.bfloat16
    assert half.identity.revision == f"{chat.identity.revision} bfloat16"
    for score, full_score in zip(scores(half, SHARED), scores(chat, SHARED), strict=True):
        assert score == pytest.approx(full_score, abs=0.2)


@pytest.mark.parametrize("choices", [DIGITS, ()])
def test_logits_that_are_no_numbers(copied: Path, choices: tuple[str, ...]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    weights["model.norm.weight"][0] = math.nan
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    chat = load_local(HuggingFaceParams(model=str(copied), device="cpu"))
    with pytest.raises(RefusedError, match=r"gives NaN in torch.float32: set its dtype"):
        list(chat.ask([request("x", choices), request("y", choices)]))


# -- who answers ------------------------------------------------------------------------------------------------
def test_the_revision_is_a_digest_of_the_weights(chat: LocalChat, copied: Path, tmp_path: Path) -> None:
    assert chat.identity.endpoint == ""
    assert Path(chat.identity.model).name == "llama"
    assert chat.identity.revision == weights_revision(copied)
    assert weights_revision(make_tiny_llama(tmp_path / "other", seed=1)) != weights_revision(copied)
    for about_the_run in ("manifest.json", ".run.json", ".seconds.json"):  # the last is in MLflow's registry
        (copied / about_the_run).write_text("{}")
    assert weights_revision(copied) == chat.identity.revision
    (copied / "chat_template.jinja").write_text("another")
    assert weights_revision(copied) != chat.identity.revision


def test_the_digest_of_large_files_sees_any_tensor_change(tmp_path: Path) -> None:
    import numpy as np

    size = 5 * local_model.WHOLE + 3
    content = np.zeros(size, dtype=np.uint8)
    seen = set()
    for part in range(20):
        changed = content.copy()
        changed[part * size // 20 : (part + 1) * size // 20] = 1
        (tmp_path / "model.safetensors").write_bytes(changed.tobytes())
        seen.add(weights_revision(tmp_path))
    last = content.copy()
    last[-1] = 1
    (tmp_path / "model.safetensors").write_bytes(last.tobytes())
    seen.add(weights_revision(tmp_path))
    assert len(seen) == 21


def test_the_revision_is_the_commit_in_the_cache_of_the_hub(tiny_llama: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--some--model" / "snapshots" / commit
    shutil.copytree(tiny_llama, folder)
    assert load_local(HuggingFaceParams(model=str(folder), device="cpu")).identity.revision == commit


def test_stops_are_those_of_model_and_tokenizer(copied: Path) -> None:
    file = copied / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [1, 7]}))
    assert load_local(HuggingFaceParams(model=str(copied), device="cpu"))._local.stops == {1, 7}


@pytest.mark.parametrize("several", [False, True])
def test_the_day_of_asking_is_not_in_a_prompt(several: bool, tmp_path: Path) -> None:
    """The clock as in Llama's template, and as in gpt-oss'."""
    clock = (
        "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = "
        "strftime_now(\"%d %b %Y\") %}{%- endif %}{%- endif %}{{ date_string + ', ' + strftime_now('%Y-%m-%d') }}"
    )
    make_tiny_llama(tmp_path)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = {"default": clock, "tool_use": clock} if several else clock
    tokenizer.save_pretrained(tmp_path)
    local = load_model(HuggingFaceParams(model=str(tmp_path), device="cpu"))
    assert local.conversation([{"role": "user", "content": "1 or 2?"}]) == "26 Jul 2024, 2024-07-26"
