"""An environment in words, served by OpenEnv, is what it is without it; verifiers plays it, too."""

from __future__ import annotations

import asyncio
import json
import runpy
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer, chat_server

import laurel
from laurel.errors import EnvError
from tiny_project import REPOSITORY

openenv = pytest.importorskip("openenv.core")
EXAMPLE = REPOSITORY / "examples/library/serve_openenv.py"
MOVES = (["left"], ["jump"], ["down"], ["right"])
make = laurel.text_environment("laurel/GridWorld-v0", kwargs={"size": 4, "slip": 0.0})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the example on a free port."""
    import uvicorn

    app = runpy.run_path(str(EXAMPLE), run_name="served")["app"]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_its_client_sees_what_the_environment_says(address: str) -> None:
    alone = make()
    with openenv.GenericEnvClient(base_url=address).sync() as client:
        begun = client.reset(seed=3)
        assert begun.observation["text"] == alone.reset(seed=3)
        earned = 0.0
        for moves in MOVES:
            try:
                said = alone.act(moves)
            except EnvError as error:
                said = str(error)
            result = client.step({"moves": moves})
            earned += result.reward
            assert (result.observation["text"], result.done) == (said, alone.over)
        assert earned == pytest.approx(alone.get_reward())


def test_verifiers_plays_it(address: str) -> None:
    """By its own task set for OpenEnv, with a model that answers with the move to the goal."""
    vf = pytest.importorskip("verifiers.v1")
    from verifiers.v1.harnesses.null import NullHarnessConfig
    from verifiers.v1.tasksets import OpenEnvConfig, OpenEnvEnvConfig
    from verifiers.v1.utils.loaders import load_environment

    alone, earned = make(), 0.0
    for move in ("left", "down", "right", "up"):
        alone.reset(seed=3)  # a square from the goal
        alone.act([move])
        if alone.over:
            earned = alone.get_reward()
            break
    assert earned > 0

    tasks = OpenEnvConfig(id="openenv", base_url=address, resets=[{"seed": 3}])
    player = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig())
    env = load_environment(OpenEnvEnvConfig(taskset=tasks, player=player))

    async def episode(server: ChatServer) -> Any:
        client = vf.EvalClientConfig(base_url=server.url, api_key_var="UNSET_KEY")
        async with env.serving():
            (task,) = env.taskset
            return await env.run_episode(task, vf.ModelContext("tiny", client, vf.SamplingConfig()))

    with chat_server() as server:
        server.behave = lambda request, body: streamed(json.dumps([move]))
        played = asyncio.run(episode(server))
    assert played.ok, played.errors
    assert played.traces[0].rewards["openenv_reward"].score == pytest.approx(earned)


def streamed(text: str) -> web.Response:
    """Return an answer as a server sends it that was asked to stream."""
    of = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    chunks = [{**of, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    events = [*map(json.dumps, chunks), "[DONE]"]
    return web.Response(text="".join(f"data: {event}\n\n" for event in events), content_type="text/event-stream")
