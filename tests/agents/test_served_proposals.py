"""Proposals that a server samples: a stand-in for vLLM that really draws from the model; no vLLM and no GPU here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from move_lists import GRID, SMALL
from pydantic import ValidationError

from laurel.agents.algorithms import initial_policy, make_learner
from laurel.agents.language_model.learner import LanguageModelLearner
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.envs import adapter_for
from laurel.envs.vector import make_vector
from laurel.errors import ParamsError
from laurel.llm import served
from laurel.llm.causal import load_causal, tokens_of, trained, written_prompt
from laurel.llm.chat import RefusedError
from laurel.llm.lora import with_lora
from laurel.llm.sampling import log_probs
from laurel.llm.served_sampling import ServedModel, servers
from laurel.params import parse_params
from laurel.params.language_actor import LanguageActorParams
from laurel.pipelines.images import needed
from laurel.pipelines.machines import idle, uses_all
from laurel.stages.preflight import check_run
from laurel.stages.training_notes import _notes_on_servers
from minimal_params import MINIMAL
from ports import free_port
from tiny_project import REPOSITORY

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = """#!{python}
import sys
sys.path[:0] = ["{tests}"]
from vllm_stand_in import serve
serve(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a model whose vocabulary is the words of the grid."""
    folder = tmp_path_factory.mktemp("model")
    tiny = initial_policy(adapter_for(GRID), LanguageActorParams(), 0, 0)
    assert isinstance(tiny, LanguageModelPolicy)
    tiny.write_beside(folder)
    return str(folder / "language_model")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "vllm"
    script.write_text(PROGRAM.format(python=sys.executable, tests=TESTS / "llm"))
    script.chmod(0o755)
    monkeypatch.setenv(served.PROGRAM, str(script))
    return script


def address() -> str:
    return f"http://127.0.0.1:{free_port()}/v1"


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    """Return the address of a server that the first test to ask it starts."""
    place = address()
    yield place
    served.stop(place)


def settings(model: str, base_url: str, **serve: Any) -> LanguageActorParams:
    changes = {"n_envs": 96, "learning_rate": 4e-3, "lora_rank": 8, "serve": {"base_url": base_url, **serve}}
    return LanguageActorParams.model_validate({**SMALL, **changes, "model": model})


def test_answers_are_drawn_from_the_weights_of_the_moment(
    model: str, program: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.llm.served_sampling.AT_ONCE", 20)
    local = with_lora(load_causal(model), 8)
    server = ServedModel(settings(model, shared))
    asked = [tokens_of(local, written_prompt(local, text)) for text in ("You are here.", "You are there.")] * 40
    known = []
    for _ in range(2):
        server.take(local)
        with torch.no_grad():
            for name, weight in trained(local.model):
                weight += 0.1 * torch.randn_like(weight) * ("lora_B" in name)
        drawn = server.sample(asked, np.random.default_rng(0), max_tokens=4, temperature=0.7, regex=None)
        expected = log_probs(local, asked, drawn.whole, 0.7)
        np.testing.assert_allclose(drawn.log_prob, expected, atol=1e-3)
        assert len({tuple(tokens) for tokens in drawn.tokens}) > 40
        assert all(drawn.whole)
        assert drawn.tokens[:40:2] != drawn.tokens[40::2], "each request has its own seed"
        known.append(served.models_at(shared))
        assert len([*Path(server._folder.name).iterdir()]) == 1
    held = server.sample(asked, np.random.default_rng(0), max_tokens=9, temperature=1.0, regex=r"a\.b(?:c|d){0,3}")
    assert known[0] != known[1] == served.models_at(shared), "new weights have a new name"
    assert len(known[0]) == len(known[1]), "and old ones are unloaded"
    texts = [local.tokenizer.decode(tokens) for tokens in held.tokens]
    assert all(held.ended)
    assert {len(text) for text in texts} == {3, 4, 5, 6}
    assert all(text.startswith("a.b") for text in texts)
    (started,) = program.with_name("started").read_text().splitlines()
    assert "--enable-lora --max-lora-rank 8 --dtype float32" in started


def test_rounds_learn_from_what_a_server_samples(model: str, program: Path, shared: str) -> None:
    adapter = adapter_for(GRID)
    strategy = {"strategy": "menu", "strategies": ("go down first", "go right first")}
    params = settings(model, shared).model_copy(update=strategy)
    learner = make_learner(initial_policy(adapter, params, 0, 0), params, np.random.default_rng(0))
    assert isinstance(learner, LanguageModelLearner)
    envs = make_vector(GRID, adapter, params.n_envs, 0)
    rollout, figures = learner.rollout(envs), []
    for _ in range(4):
        learner.collect(envs, envs.reset(), rollout)
        figures.append((float(rollout.extrinsic.mean()), learner.learn(rollout)))
    assert served.models_at(shared)[0] == model
    assert all(found["parse_rate"] == 1 for _, found in figures[1:])  # the first is random
    assert figures[-1][0] > figures[1][0] + 0.1


def test_arms_share_a_server_that_ends_with_the_stage(model: str, program: Path) -> None:
    params = settings(model, address(), copies=2, gpus=2)
    with servers([params, params.model_copy(update={"loss": "dpo"})]):
        assert params.serve
        assert served.models_at(params.serve.base_url) == [model]
    assert not served.models_at(params.serve.base_url)
    (started,) = program.with_name("started").read_text().splitlines()
    for option in ("--tensor-parallel-size 2", "--data-parallel-size 2 --api-server-count 1"):
        assert option in started


def test_arms_with_different_servers_at_one_address_are_refused_beforehand(model: str) -> None:
    def checked(**others: Any) -> None:
        base = {"model": model, "serve": {}}
        agents = {"a": base, "b": {**base, "loss": "dpo"}, "c": {**base, **others}}
        arms = {
            name: {"reward": None, "agent": {"algorithm": "language_model", "language_model": changes}}
            for name, changes in agents.items()
        }
        check_run(
            parse_params({**MINIMAL, "env": {"id": GRID.id, "kwargs": GRID.kwargs}, "arms": arms}, "a test"),
            "train-agents",
        )

    checked()
    checked(lora_rank=4, serve={"base_url": "http://127.0.0.1:8001/v1"})
    with pytest.raises(ParamsError, match=r"arms a and c need different servers at http://127\.0\.0\.1:8000"):
        checked(lora_rank=4)


def test_a_report_and_a_pipeline_know_of_the_server(model: str) -> None:
    agent = {"algorithm": "language_model", "language_model": {"model": model, "serve": {}}}
    arms = {"lm": {"reward": None, "agent": agent}, "other": {"reward": None}}
    params = parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}, "arms": arms}, "a test")
    (note,) = _notes_on_servers(list(params.resolved_arms.values()))
    assert note.startswith("Proposals of lm were sampled by a server")
    for step in ("train-agents", "try-candidate"):
        assert idle(params, step) is None, "agent.device is cpu, but the server is on the GPUs"
        assert uses_all(params, step)
    assert not uses_all(params, "evaluate")
    spec = yaml.safe_load((REPOSITORY / "pipelines/pipeline.yaml").read_text())
    assert any("vllm" in needs.packages for needs in needed(spec, params).values())


def test_models_that_cannot_be_served_are_refused(model: str, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, why in (
        ({"model": "tiny"}, "a model other than tiny"),
        ({"lora_rank": 0}, "set lora_rank, e.g. to 16"),
        ({"lora_rank": 1024}, "ranks up to 512"),
        ({"serve": {"base_url": "http://192.0.2.1:8000/v1"}}, "of this machine"),
    ):
        with pytest.raises(ValidationError, match=why):
            LanguageActorParams.model_validate({"model": model, "serve": {}, **wrong})
    params = settings(model, address())
    assert params.serve
    port = params.serve.base_url.split(":")[-1].removesuffix("/v1")
    without = [sys.executable, str(program), "serve", model, "--host", "127.0.0.1", "--port", port, "--enable-lora"]
    process = subprocess.Popen(without)
    until = time.monotonic() + 60
    while not served.models_at(params.serve.base_url):
        assert time.monotonic() < until
        time.sleep(0.05)
    server, local = ServedModel(params), with_lora(load_causal(model), 8)
    server.take(local)
    with pytest.raises(RefusedError, match=r"404 .*needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
        server.sample([[1]], np.random.default_rng(0), max_tokens=2, temperature=1.0, regex=None)
    process.terminate()
    process.wait()
    monkeypatch.setenv(served.PROGRAM, "no-such-command")
    server.take(local)
    with pytest.raises(RefusedError, match=r"agent\.language_model\.serve starts vLLM"):
        server.sample([[1]], np.random.default_rng(0), max_tokens=2, temperature=1.0, regex=None)
