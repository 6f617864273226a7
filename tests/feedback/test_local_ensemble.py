"""An ensemble of models in this process: the labels of each alone, with one in memory at a time."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_llama import make_tiny_llama

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Account, Annotator, Answer, Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators import make_annotator
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.questions.helpful import HelpfulQuestion
from laurel.llm import local_chat
from laurel.params.annotation import AnnotateParams, BudgetParams

QUESTIONS = [Pair(f"You turn. {i}", "You reach the goal.") for i in range(6)]
CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")],
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    first, second = (make_tiny_llama(folder / str(seed), seed, max_position_embeddings=2048) for seed in (1, 2))
    return first, second


def made(adapter: EnvAdapter, store: Path, device: str, *models: Path) -> Annotator:
    members: list[dict[str, Any]] = [{"annotator": "huggingface", "huggingface": {"model": str(m)}} for m in models]
    content = {
        "language_model": {"prompt": "answer_only", "responses": str(store)},
        "huggingface": {"device": device},
    }
    who = members[0] if len(models) == 1 else {"annotator": "ensemble", "ensemble": {"members": members}}
    params = AnnotateParams.model_validate(content)
    return make_annotator(params.overridden(who, "here"), adapter, 0)


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_the_labels_are_the_means_of_each_members_labels(
    models: tuple[Path, Path], door_key: EnvAdapter, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [list(made(door_key, tmp_path / "alone.db", device, model).annotate(QUESTIONS)) for model in models]
    loaded, most = [], 0
    original = local_chat.load_model

    def load(params: Any) -> Any:
        nonlocal most
        local = original(params)
        loaded.append(weakref.ref(local.model))
        most = max(most, sum(reference() is not None for reference in loaded))
        return local

    monkeypatch.setattr(local_chat, "load_model", load)
    annotator = made(door_key, tmp_path / "together.db", device, *models)
    together = list(annotator.annotate(iter(QUESTIONS)))
    assert (len(loaded), most) == (4, 1), "each to see that it is there, then to judge; never two at once"
    for judged, *votes in zip(together, *alone, strict=True):
        assert judged.p_first == pytest.approx(sum(vote.p_first or 0.0 for vote in votes) / 2)
        assert [vote.p_first for _, vote in judged.members] == [vote.p_first for vote in votes]
    assert annotator.usage["calls"] == 4 * len(QUESTIONS)
    del annotator
    if device == "cuda":
        assert torch.cuda.memory_allocated() < 1e6, "models are freed after use"


def test_a_model_whose_answers_are_all_stored_is_not_loaded(
    models: tuple[Path, Path], door_key: EnvAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"huggingface": {"model": str(models[0]), "device": "cpu"}, "annotator": "huggingface"}
    stored = {"language_model": {"responses": str(tmp_path / "responses.db")}}
    kind = kind_of(AnnotateParams.model_validate({**content, **stored}))
    assert isinstance(kind, ChatAnnotator)
    question = HelpfulQuestion(HelpfulQuestion.load_prompt("answer_only"), door_key, None, scored=True)
    items = ["You turn.", "You reach the goal."]

    def answers() -> list[list[Answer[float]]]:
        return list(kind.answers(question, items, "rewards.score", Account(BudgetParams())))

    first = answers()
    monkeypatch.setattr(local_chat, "load_model", None)
    assert [[answer.value for answer in some] for some in answers()] == [
        [answer.value for answer in some] for some in first
    ]
