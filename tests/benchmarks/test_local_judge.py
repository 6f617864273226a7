"""The speed of a small judge and of its peers is measured alike."""

from __future__ import annotations

import importlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from laurel.llm.chat import ChatRequest
from laurel.llm.local_prompts import Prompt


def test_each_side_has_the_best_of_as_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that noise favours no side."""
    script: Any = importlib.import_module("local_judge")
    asked: Counter[str] = Counter()

    def run(side: str) -> float:
        asked[side] += 1
        return 10.0 + asked[side]

    layers = SimpleNamespace(parameters=lambda: [torch.zeros(3)])
    model = SimpleNamespace(model=SimpleNamespace(layers=layers))
    prompt = Prompt(0, ChatRequest(()), "a question", [1, 2], {})
    fakes = {
        "_requests": lambda _: ["a question"],
        "load_model": lambda judge: SimpleNamespace(dtype=judge.dtype, model=model),
        "LocalChat": lambda local, _: SimpleNamespace(ask=lambda _: [], dtype=local.dtype),
        "PromptReader": lambda _: SimpleNamespace(read=lambda *_: prompt),
        "_asked": lambda chat, _: (run(chat.dtype), [0.5, 0.5]),
        "_llama_cpp": lambda _: {"seconds": 1 / run("llama.cpp"), "version": "1"},
        "_products": lambda: 1.0,
        "_same": lambda *_: 1.0,
        "_profile": lambda *_: {"products with weights": 1.0},
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(script, name, fake)
    records: list[dict[str, Any]] = []
    monkeypatch.setattr(script, "write", lambda _, found, __: records.append(found))
    monkeypatch.setattr(script, "about", lambda *_, **__: {})
    script.speed()
    assert asked == dict.fromkeys(("bfloat16", "float32", "llama.cpp"), 2 * script.RUNS), (
        "with two lengths of questions"
    )
    (found,) = records
    assert found["value"] == found["peer_value"][0] == [10.0 + script.RUNS, 10.0 + 2 * script.RUNS]
    assert found["peer_value"][1] == [script.CORES * rate for rate in found["value"]]
