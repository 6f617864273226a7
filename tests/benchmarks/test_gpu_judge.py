"""The benchmark of a large judge on a GPU, with stand-ins: no GPU and no vLLM here."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from served_judge import stand_in

from laurel.llm import served

VLLM = '''"""Stands in for vLLM: answers at once, and writes what it was asked."""
import json, sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
__version__ = "0.0"
parameters = ModuleType("vllm.sampling_params")
parameters.StructuredOutputsParams = lambda json: {"json": json}
sys.modules["vllm.sampling_params"] = parameters
SamplingParams = SimpleNamespace
class LLM:
    def __init__(self, model, **how):
        self.asked, self.how = [], {"model": model, **how}
    def chat(self, messages, sampling, use_tqdm):
        self.asked += [[message, vars(one)] for message, one in zip(messages, sampling, strict=True)]
        Path("FOLDER/offline.json").write_text(json.dumps([self.how, self.asked]))
        return messages
'''


@pytest.fixture
def gpu_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(importlib.import_module("record"), "RESULTS", tmp_path / "results")
    monkeypatch.setattr(
        sys, "argv", ["benchmarks/gpu_judge.py", "--model", "m", "--pairs", "3", "--written-pairs", "2"]
    )
    return importlib.import_module("gpu_judge")


def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a stand-in for a GPU")


def test_without_a_gpu_or_vllm_nothing_is_measured(
    gpu_judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(served.PROGRAM, "no-such-command")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for lacking in ("needs a GPU", "needs the command vllm"):
        with pytest.raises(SystemExit) as exit_:
            gpu_judge.main()
        assert exit_.value.code == 2
        assert lacking in capsys.readouterr().err
        with_gpu(monkeypatch)
    assert not (tmp_path / "results").exists()


def test_server_and_limit_are_asked_the_same(
    gpu_judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_gpu(monkeypatch)
    monkeypatch.setenv(served.PROGRAM, str(stand_in(tmp_path)))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "vllm.py").write_text(VLLM.replace("FOLDER", str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "package"), prepend=":")
    gpu_judge.main()
    assert len((tmp_path / "started").read_text().splitlines()) == 1, "one server for both kinds of answer"
    record = json.loads((tmp_path / "results" / "gpu_judge.json").read_text())
    assert record == json.loads(capsys.readouterr().out)
    limits, shares = record["peer_value"]
    assert all(value > 0 for value in (*record["value"], *limits))
    assert shares == pytest.approx([a / b for a, b in zip(record["value"], limits, strict=True)], abs=0.01)
    assert record["met"] == (min(shares) >= 0.5)
    assert record["answered"]["written"] == 1.0
    assert record["versions"]["vllm"] == "0.0"
    how, asked = json.loads((tmp_path / "offline.json").read_text())
    assert how == {"model": "m", "tensor_parallel_size": 1, "max_model_len": 4096, "seed": 0}
    sent = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    written = [body for body in sent if "response_format" in body]
    measured = [message for message, sampling in asked if sampling["structured_outputs"]]
    assert len(written) == 2 + 2 * 2, "the first pair starts the server, the others are measured"
    assert sorted(json.dumps(body["messages"]) for body in written[2:]) == sorted(map(json.dumps, measured[4:]))
    tokens = [sampling for _, sampling in asked if not sampling["structured_outputs"]]
    assert len(tokens) == 2 * 3 * 2, "some are asked beforehand"
    assert {(sampling["temperature"], sampling["max_tokens"], sampling["logprobs"]) for sampling in tokens} == {
        (body["temperature"], body["max_tokens"], body["top_logprobs"]) for body in sent if "logprobs" in body
    }
