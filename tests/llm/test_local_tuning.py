"""LoRA weights fitted to known answers: learned, the same whether or not a run was stopped, and tied to their base."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from laurel.errors import AnnotationError
from laurel.llm import local_tuning
from laurel.llm.adapter import WEIGHTS
from laurel.llm.chat import ChatRequest, Message, RefusedError, Reply
from laurel.llm.judge_tuning import Tuning
from laurel.llm.local_chat import load_local
from laurel.llm.local_model import load_model
from laurel.llm.local_tuning import PROJECTIONS, Item, tune
from laurel.params.judges import HuggingFaceParams

GOOD, BAD = "You open the door.", "You bump into a wall."
TUNING = Tuning(rank=4, learning_rate=2e-2, passes=8, batch=2)


def asked(first: str, second: str) -> ChatRequest:
    turn = Message("user", f"Which of the two is better?\n1: {first}\n2: {second}")
    return ChatRequest((turn,), choices=("1", "2"))


def items() -> list[Item]:
    places = [("with the key", "turn around"), ("to reach the goal", "and nothing else"), ("the first", "a wall")]
    return [
        Item(f"group {i % 2}", (asked(f"{GOOD} {a}", f"{BAD} {b}"), asked(f"{BAD} {b}", f"{GOOD} {a}")), (1.0, 0.0))
        for i, (a, b) in enumerate(places * 2)
    ]


def params(model: Path, adapter: Path | None = None) -> HuggingFaceParams:
    return HuggingFaceParams(model=str(model), adapter=None if adapter is None else str(adapter), device="cpu")


def fitted(model: Path, folder: Path) -> list[float]:
    folder.mkdir(exist_ok=True)
    return tune(load_model(params(model)), items(), TUNING, 0, folder, lambda n: None)


@pytest.fixture(scope="module")
def adapter(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "adapter"
    losses = fitted(tiny_llama, folder)
    assert losses[-1] < losses[0] / 2
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(PROJECTIONS), "a set has another order in each process"
    assert {weight.dtype for weight in load_file(folder / WEIGHTS).values()} == {torch.bfloat16}
    return folder


def test_what_was_learned_answers_where_the_params_name_the_adapter(tiny_llama: Path, adapter: Path) -> None:
    questions = [request for item in items() for request in item.requests]
    right = [target for item in items() for target in item.targets]
    replies = dict(load_local(params(tiny_llama, adapter)).ask(questions))
    for number, target in enumerate(right):
        reply = replies[number]
        assert isinstance(reply, Reply)
        assert reply.logprobs is not None
        assert (exp(reply.logprobs["1"]) > 0.5) == (target > 0.5)


def test_a_run_that_was_stopped_ends_with_the_same_adapter(
    tiny_llama: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, passes = local_tuning._save, []

    def save_and_stop(*arguments: object) -> None:
        save(*arguments)  # type: ignore[arg-type]
        passes.append(1)
        if len(passes) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(local_tuning, "_save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        fitted(tiny_llama, tmp_path / "stopped")
    monkeypatch.setattr(local_tuning, "_save", save)
    assert len(fitted(tiny_llama, tmp_path / "stopped")) == TUNING.passes
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "stopped" / file).read_bytes() == (adapter / file).read_bytes()


def test_a_step_of_several_batches_is_that_of_one_with_all_their_items(tiny_llama: Path, tmp_path: Path) -> None:
    settings = HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="float32")

    def trained(name: str, batch: int, batches: int, groups: int = 2) -> dict[str, torch.Tensor]:
        of_groups = [item._replace(group=f"group {i % groups}") for i, item in enumerate(items())]
        how = Tuning(rank=4, learning_rate=1e-3, passes=2, batch=batch, batches=batches)
        (tmp_path / name).mkdir()
        tune(load_model(settings), of_groups, how, 0, tmp_path / name, lambda n: None)
        return load_file(tmp_path / name / local_tuning.CHECKPOINT)

    def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
        return all(torch.allclose(a[name], b[name], rtol=1e-3, atol=1e-6) for name in a)

    whole = trained("whole", 6, 1, groups=1)
    assert same(whole, trained("parts", 3, 2))
    assert not same(whole, trained("apart", 3, 1))
    assert same(trained("alone", 3, 1, groups=1), trained("still alone", 3, 2, groups=1)), "of one group"


def test_steps_follow_the_schedule_and_losses_are_of_an_item(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, norms, done, step = list[float](), list[float](), list[int](), torch.optim.AdamW.step

    def seen(self: torch.optim.AdamW, *arguments: Any) -> Any:
        (group,) = self.param_groups
        rates.append(group["lr"])
        norms.append(float(torch.stack([weight.grad.norm() for weight in group["params"]]).norm()))
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", seen)
    how = Tuning(rank=4, learning_rate=1e-2, passes=12, batch=3, batches=2)
    settings = HuggingFaceParams(model=str(tiny_llama), device="cpu", dtype="float32")
    losses = tune(load_model(settings), items(), how, 0, tmp_path, done.append)
    assert rates == pytest.approx([1e-2 * min(1, (n + 1) / 10, 2 * (1 - n / 12)) for n in range(12)])
    assert max(norms) == pytest.approx(1, abs=1e-3), "clipped"
    assert (sum(done), len(losses)) == (12 * 6, 12)
    before = dict(load_local(settings).ask([request for item in items() for request in item.requests]))
    logs = [reply.logprobs[str(1 + n % 2)] for n, reply in sorted(before.items()) if isinstance(reply, Reply)]
    assert losses[0] == pytest.approx(-sum(logs) / 12, rel=1e-3), "of the base model"


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("llama", {}),
        ("granite", {"logits_scaling": 0.1}),
        ("cohere", {"logit_scale": 9.0}),
        ("gemma2", {"final_logit_softcapping": 0.5, "head_dim": 16}),
    ],
)
def test_what_is_learned_is_what_is_scored(tiny_llama: Path, tmp_path: Path, kind: str, own: dict[str, Any]) -> None:
    """Also in models that scale or limit the logits of their output layer."""
    shutil.copytree(tiny_llama, tmp_path / "model")
    sizes = AutoConfig.from_pretrained(tiny_llama).to_dict()
    for name in ("model_type", "architectures", "rope_parameters", "head_dim", "transformers_version"):
        sizes.pop(name, None)
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, "initializer_range": 0.5, **own}))
    made.save_pretrained(tmp_path / "model")
    settings = HuggingFaceParams(model=str(tmp_path / "model"), device="cpu", dtype="float32")
    requests = [request for item in items() for request in item.requests]
    targets = [target for item in items() for target in item.targets]
    replies, expected = dict(load_local(settings).ask(requests)), 0.0
    for number, target in enumerate(targets):
        reply = replies[number]
        assert isinstance(reply, Reply)
        assert reply.logprobs is not None
        expected -= reply.logprobs["1" if target else "2"] / len(targets)
    still = replace(TUNING, learning_rate=0.0, passes=1)
    assert tune(load_model(settings), items(), still, 0, tmp_path, lambda n: None) == pytest.approx([expected], 1e-3)


def test_answers_of_several_tokens_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    long = Item("group", (replace(asked(GOOD, BAD), choices=("1", "the second of the two")),), (1.0,))
    with pytest.raises(AnnotationError, match="writes one of the answers 1, the second of the two in several tokens"):
        tune(load_model(params(tiny_llama)), [long], TUNING, 0, tmp_path, lambda n: None)


def test_an_adapter_is_not_put_on_other_weights(tiny_llama: Path, adapter: Path, tmp_path: Path) -> None:
    for file in adapter.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "quality.json").write_text('{"base": {"model": "another", "weights": "0123"}}')
    with pytest.raises(RefusedError, match=r"was tuned on another with weights of the digest 0123, but"):
        load_local(params(tiny_llama, tmp_path))
