"""How many functions a chat model writes in several rounds: as told before, and never the same ones again."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import chat_server

from laurel.envs import adapter_for
from laurel.errors import AnnotationError
from laurel.params import EnvParams
from laurel.stages.description import described
from laurel.stages.project import places
from tiny_project import UNTRACKED, Project

ADAPTER = adapter_for(EnvParams(id="CartPole-v1"))
FAILS = "def reward(observation, action, next_observation):\n    return 1 / 0\n"


def test_rounds_end_where_a_model_would_be_shown_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        **UNTRACKED,
        "env": {"id": "CartPole-v1"},
        "arms": {"code": {"reward": "code"}},
        "rewards": {"code": {"rounds": 1, "samples": 2, "select": "agreement"}},
        "collect.steps": 600,
    }
    project = Project.create(tmp_path / "p", content)
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = lambda body: (body["messages"][-1]["content"], [], f"```python\n{FAILS}```")
        project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}})
        project.run("collect", "caption", "annotate")
        with pytest.raises(AnnotationError, match=r"none of the 2 functions .* raise rounds or samples\."):
            project.run("train-reward")
        assert len(server.bodies) == 2
        project.change({"rewards.code.rounds": 5})
        plan = described(project.params, ADAPTER, places(project.path))
        assert "5 rounds of 2 functions: 8 calls at most" in plan, "the answers of the first round alone are kept"
        capsys.readouterr()
        with pytest.raises(AnnotationError, match=r"none of the 4 functions that tiny wrote .* or raise samples\."):
            project.run("train-reward")
        assert len(server.bodies) == 4, "the third round would show what the second one showed"
        told = capsys.readouterr().err
        assert "round 3 of 5" not in told
        assert "the search ends after 2 of 5 rounds, since the next one would show tiny the same" in told
