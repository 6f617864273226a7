"""Stands in for `vllm serve` in tests: samples from the model, with the LoRA weights that it is handed, on the CPU.

It knows what Laurel uses of vLLM's API, and refuses what vLLM does: new weights without leave, unknown names, too high
a rank. That it agrees with vLLM in all this is read from vLLM's source, not tried.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from laurel.llm.local_model import LocalModel

MOST_ANSWERS = 64
WHOLE = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""The settings of draws from the whole distribution, the only ones here; vLLM takes a model's own where they lack."""


class RefusalError(Exception):
    """A status and why."""


class Engine:
    """The model that is served, and its adapters by name."""

    def __init__(self, model: str, options: dict[str, str]) -> None:
        self.model, self.options = model, options
        self.adapters: dict[str, LocalModel] = {}
        self.lock = Lock()
        self.models = [model]

    def load(self, asked: dict[str, Any]) -> str:
        if os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") != "True" or "--enable-lora" not in self.options:
            raise RefusalError(404, "Not Found")
        name, place = asked["lora_name"], Path(asked["lora_path"])
        rank = json.loads((place / "adapter_config.json").read_text())["r"]
        if rank > int(self.options["--max-lora-rank"]):
            raise RefusalError(400, f"LoRA rank {rank} is greater than max_lora_rank")
        if name in self.adapters:
            raise RefusalError(400, f"The lora adapter '{name}' has already been loaded")
        from laurel.llm.causal import load_causal

        self.adapters[name] = load_causal(self.model, adapter=str(place))
        self.models.append(name)
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, asked: dict[str, Any]) -> str:
        del self.adapters[asked["lora_name"]]
        self.models.remove(asked["lora_name"])
        return "Success"

    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["model"] not in self.adapters:
            raise RefusalError(404, f"The model `{asked['model']}` does not exist.")
        if asked["n"] > MOST_ANSWERS:
            raise RefusalError(400, f"n must be at most {MOST_ANSWERS}")
        if not WHOLE.items() <= asked.items():
            raise RefusalError(400, f"draws must have {WHOLE}")
        form = (asked.get("structured_outputs") or {}).get("regex")
        found = draw(self.adapters[asked["model"]], asked, form)
        choices = [
            {"index": i, "token_ids": tokens, "logprobs": {"token_logprobs": logs}, "finish_reason": "stop", "text": ""}
            for i, (tokens, logs) in enumerate(found)
        ]
        return {"id": "cmpl-1", "object": "text_completion", "model": asked["model"], "choices": choices[::-1]}


@cache
def shut(form: str, text: str, pieces: tuple[str, ...], stops: tuple[int, ...]) -> torch.Tensor:
    """Return which tokens cannot follow a text that is to match in the end."""
    import regex
    import torch

    found = torch.tensor([not regex.fullmatch(form, text + piece, partial=True) for piece in pieces])
    found[list(stops)] = regex.fullmatch(form, text) is None
    return found


def draw(local: LocalModel, asked: dict[str, Any], form: str | None) -> list[tuple[list[int], list[float]]]:
    """Draw answers to a prompt, each token among those after which the answer can still come to match."""
    import torch

    torch.set_num_threads(1)
    pieces = tuple(local.tokenizer.batch_decode([[token] for token in range(local.model.config.vocab_size)]))
    stops = tuple(asked["stop_token_ids"])
    drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in range(asked["n"])]
    generator = torch.Generator().manual_seed(asked["seed"])
    going, ids = list(range(asked["n"])), torch.tensor([asked["prompt"]] * asked["n"])
    for _ in range(asked["max_tokens"]):
        with torch.no_grad():
            logits = local.model(ids).logits[:, -1].float() / asked["temperature"]
        if form is not None:
            texts = ["".join(pieces[token] for token in drawn[row][0]) for row in going]
            logits = logits.masked_fill(torch.stack([shut(form, text, pieces, stops) for text in texts]), -torch.inf)
        logs = logits.log_softmax(dim=-1)
        taken = torch.multinomial(logs.exp(), 1, generator=generator)
        for row, token, log in zip(going, taken[:, 0].tolist(), logs.gather(1, taken)[:, 0].tolist(), strict=True):
            drawn[row][0].append(token)
            drawn[row][1].append(log)
        on = [i for i, token in enumerate(taken[:, 0].tolist()) if token not in stops]
        going, ids = [going[i] for i in on], torch.cat([ids, taken], dim=1)[on]
        if not going:
            break
    return drawn


def serve(arguments: list[str]) -> None:
    """Serve until the process ends; what it was started with is written beside the program."""
    _, model, *rest = arguments
    options = {name: rest[i + 1] if i + 1 < len(rest) else "" for i, name in enumerate(rest) if name.startswith("--")}
    with Path(sys.argv[0]).with_name("started").open("a") as file:
        file.write(" ".join(arguments) + "\n")
    engine = Engine(model, options)
    does = {"load_lora_adapter": engine.load, "unload_lora_adapter": engine.unload, "completions": engine.complete}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def reply(self, status: int, content: Any) -> None:
            body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.reply(200, {"data": [{"id": name} for name in engine.models]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                with engine.lock:
                    self.reply(200, does[self.path.removeprefix("/v1/")](asked))
            except RefusalError as error:
                status, why = error.args
                self.reply(status, {"error": {"message": why}})

    ThreadingHTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
