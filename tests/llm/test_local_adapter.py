"""LoRA weights on top of a local model: they change the answers and the model's identity."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from local_asking import DIGITS, SHARED, scores

from laurel.envs import adapter_for
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm.chat import RefusedError
from laurel.llm.local_chat import LocalChat, load_local
from laurel.llm.local_model import identity_here
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import HuggingFaceParams, LanguageModelParams


@pytest.fixture(scope="module")
def trained(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An adapter of the tiny model as training leaves it, and the model that it makes, written out whole."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(tiny_llama)
    lora = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(base, lora)
    folder = tmp_path_factory.mktemp("lora")
    model.save_pretrained(folder / "adapter")
    model.merge_and_unload().save_pretrained(folder / "merged")
    AutoTokenizer.from_pretrained(tiny_llama).save_pretrained(folder / "merged")
    return folder / "adapter", folder / "merged"


def test_an_adapter_changes_answers_as_training_did(
    tiny_llama: Path, trained: tuple[Path, Path], chat: LocalChat
) -> None:
    adapter, merged = trained
    adapted = load_local(HuggingFaceParams(model=str(tiny_llama), adapter=str(adapter), device="cpu"))
    whole = load_local(HuggingFaceParams(model=str(merged), device="cpu"))
    found, expected, without = (
        [logprobs[DIGITS[0]] for logprobs in scores(model, SHARED)] for model in (adapted, whole, chat)
    )
    assert found == pytest.approx(expected, abs=1e-4)
    assert found != pytest.approx(without, abs=1e-2)


def test_its_answers_are_not_taken_for_those_of_the_model_alone(tiny_llama: Path, trained: tuple[Path, Path]) -> None:
    adapter, _ = trained
    alone = identity_here(HuggingFaceParams(model=str(tiny_llama)))
    adapted = identity_here(HuggingFaceParams(model=str(tiny_llama), adapter=str(adapter)))
    assert alone is not None
    assert adapted is not None
    assert adapted.revision.startswith(f"{alone.revision} adapter ")


@pytest.mark.parametrize("adapted", [False, True])
def test_labels_say_which_of_the_two_judged(
    adapted: bool, tiny_llama: Path, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    adapter = str(trained[0]) if adapted else None
    judge = AnnotateParams(
        annotator="huggingface",
        huggingface=HuggingFaceParams(model=str(tiny_llama), adapter=adapter, device="cpu"),
        language_model=LanguageModelParams(prompt="concise", responses=tmp_path / "responses"),
    )
    kind, door_key = kind_of(judge), adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
    expected = f"{tiny_llama} with adapter {adapter}" if adapted else str(tiny_llama)
    assert isinstance(kind, ChatAnnotator)
    question = PairQuestion(load_prompt("concise"), door_key)
    named = [kind.asker(question).name, kind.estimate_of(question, [Pair("a", "b")]).annotator]
    assert named == [f"{expected} (prompt concise {question.prompt.digest[:8]})"] * 2


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_model.safetensors", b"\xff" * 100),
        ("adapter_config.json", b"{}"),
        ("quality.json", b"{"),
        ("quality.json", b"{}"),
    ],
)
def test_a_damaged_adapter_is_named_not_its_base(
    tiny_llama: Path, trained: tuple[Path, Path], tmp_path: Path, file: str, content: bytes
) -> None:
    adapter = shutil.copytree(trained[0], tmp_path / "adapter")
    (adapter / file).write_bytes(content)
    with pytest.raises(RefusedError, match=f'The adapter "{adapter}" cannot be loaded'):
        load_local(HuggingFaceParams(model=str(tiny_llama), adapter=str(adapter), device="cpu"))


def test_an_adapter_that_is_nowhere(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.utils.hub.cached_file", lambda *_, **__: None)
    with pytest.raises(RefusedError, match=r"there is no such directory, and the hub has no adapter_model\.safeten"):
        load_local(HuggingFaceParams(model=str(tiny_llama), adapter="judges/nowhere", device="cpu"))


def test_an_adapter_that_is_a_pickle_is_not_opened(
    tiny_llama: Path, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    adapter, _ = trained
    (tmp_path / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    (tmp_path / "adapter_model.bin").write_bytes(b"a pickle")
    with pytest.raises(RefusedError, match=r"has no adapter_model\.safetensors"):
        load_local(HuggingFaceParams(model=str(tiny_llama), adapter=str(tmp_path), device="cpu"))
