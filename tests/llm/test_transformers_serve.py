"""The client against a server that others wrote: `transformers serve`, with a tiny model that is made on the spot."""

from __future__ import annotations

import importlib.util
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laurel.llm.chat import ChatRequest, Message, RefusedError, Reply, Sampling
from laurel.llm.openai_chat import OpenAIChat
from laurel.params.judges import OpenAIParams

MISSING = [name for name in ("fastapi", "uvicorn", "accelerate") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"transformers[serving] is not whole: without {', '.join(MISSING)}"),
]


def make_model(path: Path) -> None:
    """Save a Llama of 32 dimensions with random weights, a tokenizer of bytes and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    fast.save_pretrained(path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(path)


def free_port() -> int:
    """Return a free port outside the ephemeral range, so that it stays free."""
    while True:
        port = random.randint(20_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield address and name of the model."""
    folder = tmp_path_factory.mktemp("served")
    make_model(folder / "tiny")
    port = free_port()
    command = [str(Path(sys.executable).parent / "transformers"), "serve", str(folder / "tiny")]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    log = (folder / "log").open("w")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with log, subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment) as process:
        try:
            for _ in range(3000):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if process.poll() is not None:
                    pytest.fail((folder / "log").read_text())
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1", str(folder / "tiny")
        finally:
            process.terminate()


def model(served: tuple[str, str], name: str | None = None) -> OpenAIChat:
    return OpenAIChat(OpenAIParams(model=name or served[1], base_url=served[0], max_in_flight=4))


def test_it_answers_and_the_same_question_gets_the_same_answer(served: tuple[str, str]) -> None:
    sampling = Sampling(max_tokens=8)
    requests = [ChatRequest((Message("system", "s"), Message("user", text)), sampling) for text in "abcaabc"]
    answers = dict(model(served).ask(requests))
    assert sorted(answers) == list(range(7))
    assert all(isinstance(answer, Reply) for answer in answers.values()), answers
    replies = [answer for _, answer in sorted(answers.items()) if isinstance(answer, Reply)]
    assert replies[0].text == replies[3].text == replies[4].text != ""
    assert all(0 < (reply.output_tokens or 0) <= 8 for reply in replies)
    assert all((reply.input_tokens or 0) > 5 for reply in replies)


def test_scores_and_schemas_that_it_does_not_know_do_not_get_in_the_way(served: tuple[str, str]) -> None:
    message = (Message("user", "A or B?"),)
    requests = [
        ChatRequest(message, Sampling(max_tokens=4), schema='{"type": "object"}'),
        ChatRequest(message, Sampling(max_tokens=4), choices=("A", "B")),
    ]
    answers = [answer for _, answer in model(served).ask(requests)]
    assert all(isinstance(answer, Reply) and answer.logprobs is None for answer in answers), answers


def test_a_wrong_address_is_reported(served: tuple[str, str]) -> None:
    url = served[0].removesuffix("/v1") + "/nowhere"
    with pytest.raises(RefusedError, match=r"status 404.*annotate\.openai\.base_url"):
        list(model((url, "tiny")).ask([ChatRequest((Message("user", "a"),))]))
