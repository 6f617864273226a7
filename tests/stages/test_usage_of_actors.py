"""Calls of language models that act, hint and reward are in the usage of the stages that ask them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import gymnasium as gym
import numpy as np
import pytest
from aiohttp import web
from chat_server import chat_server, completion, problem
from stopping import StoppedError, make_task

from laurel.agents.actor import Acted, Actor, View
from laurel.agents.actors import Checked
from laurel.agents.actors.llm_policy import language_model_policy
from laurel.data import usage
from laurel.data.directory import Output
from laurel.data.manifest import read_manifest
from laurel.data.usage import ASKER, UsageNote, of_all
from laurel.envs import adapter_for
from laurel.errors import ActorError, LaurelError
from laurel.evaluation.play import SCORING, Asking, Evaluation, play_agent
from laurel.evaluation.summary import asked_columns
from laurel.params import EnvParams
from laurel.params.algorithms import SubgoalParams
from laurel.params.annotation import AnnotateParams
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.methods.llm_hints import LikelyActions
from laurel.stages.accounts import asked
from laurel.training.checkpoint import used_by
from laurel.training.loop import train
from tiny_project import UNTRACKED, Project


def test_a_server_counts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(body: dict[str, Any]) -> tuple[str, list[str], str]:
        return str(len(server.bodies)), [], "down"

    hints = {"actor": "llm_policy", "options": {"judge": "main"}}
    changes = {
        **UNTRACKED,
        "env.id": "FrozenLake-v1",
        "env.kwargs": {"map_name": "8x8"},
        "evaluate.animation_steps": 40,
        "evaluate.episodes": 1,
        "arms": {
            "hinted": {"reward": None, "agent": {"ppo": {"hints": hints}}},
            "bonus": {"reward": "llm_hints"},
            "llm_policy": {"reward": None, "agent": {"actor": "llm_policy", "options": {"goal": "Go down."}}},
        },
        "rewards": {"llm_hints": {"options": {"judge": "main"}}},
    }
    with chat_server() as server:
        server.plan = chosen
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        project = Project.create(tmp_path / "p", {**changes, **asking})
        monkeypatch.chdir(project.path)
        project.run("collect", "caption", "annotate", "train-reward")
        before = len(server.bodies)
        project.change({"annotate.budget": {"max_calls": 6}})
        with pytest.raises(LaurelError, match="budget"):
            project.run("train-agents")
        assert len(server.bodies) - before == 6, "of hints and of rewards together"
        project.change({"annotate.budget": {}})
        project.run("train-agents")
        usage = read_manifest(project.output("train-agents"))["usage"]
        assert usage["calls"] == len(server.bodies) - before > 0, "those of the stopped run count"
        assert usage["input_tokens"] == 5 * usage["calls"]

        # stopped while it films and compares rewards, at the third question after the episodes
        place, before, asked_later = project.output("evaluate"), sum(server.answered.values()), itertools.count(1)

        def no_money(*_: Any) -> web.Response | None:
            over = any(place.parent.glob(f".{place.name}.*.partial/results.parquet"))
            return problem(402, "no money") if over and next(asked_later) == 3 else None

        server.behave = no_money
        with pytest.raises(LaurelError, match="402"):
            project.run("evaluate")
        server.behave = lambda *_: None
        project.run("evaluate")
        usage = read_manifest(place)["usage"]
        assert usage["calls"] == sum(server.answered.values()) - before
        assert usage["input_tokens"] == 5 * usage["calls"]

        # the agents of several arms share the limit, although each plays in a process of its own
        before = len(server.bodies)
        for goal in ("Go up.", "Go left."):
            agent = {"actor": "llm_policy", "options": {"goal": goal}}
            project.change({f"arms.{goal[3:-1]}": {"reward": None, "agent": agent}})
        project.change({"annotate.budget": {"max_calls": 6}})
        with pytest.raises(LaurelError, match="budget"):
            project.run("evaluate")
        assert len(server.bodies) - before == 6
        project.change({"annotate.budget": {}})

        # a process that is stopped while its agent plays, and another one that plays on
        project.change({"arms.llm_policy.agent.options.goal": "Go somewhere else."})
        params, before = project.params, len(server.bodies)
        inputs = {name: place for name, place in project.inputs("evaluate").items() if name != "agents"}
        played = params.evaluate.model_copy(update={"episodes": 20})
        evaluation = Evaluation(7, RewardContext.of(params), played, Inputs(**inputs), None)
        agent = params.resolved_arms["llm_policy"], 0, None
        table = tmp_path / "llm_policy-0.parquet"

        def stop(ended: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            play_agent(evaluation, *agent, table, stop)
        stopped = len(server.bodies) - before
        play_agent(evaluation, *agent, table, lambda _: None)
        out = Output(tmp_path)
        asked([agent], tmp_path, out)
        assert 0 < stopped < len(server.bodies) - before == out.usage["calls"]
        assert out.usage["cached"] == 0, "the answers that the stopped process was paid for count once"
        note = f"took {out.usage['calls']} calls of tiny and 0 answers from the store."
        assert out.run_notes == [f"The arm llm_policy {note}"]


@pytest.mark.parametrize("asks", ["hints", "reward", "subgoals", "evaluation"])
def test_each_answer_is_noted_when_it_comes(asks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses no more than what it was told since the last note, however long an update takes."""
    monkeypatch.setattr(usage, "NOTED_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    name = "MiniGrid-Empty-5x5-v0" if asks == "subgoals" else "FrozenLake-v1"
    adapter, agent, noted = adapter_for(EnvParams(id=name)), tmp_path / "agent", []
    note = UsageNote(tmp_path / "note.json")

    def choose(_: Any, body: dict[str, Any]) -> web.Response:
        so_far = note.read() if asks == "evaluation" else used_by(agent)
        noted.append(of_all([so_far]).get("calls") or 0)
        choices = body["response_format"]["json_schema"]["schema"]["properties"]["choice"]["enum"]
        return web.json_response(completion(json.dumps({"analysis": "", "choice": choices[0]})))

    def stop(steps: int) -> None:
        if steps:
            raise StoppedError

    with chat_server() as server:
        server.behave = choose
        openai = {"model": "tiny", "base_url": server.url, "max_in_flight": 1}
        annotate = AnnotateParams.model_validate({"annotator": "openai", "openai": openai})
        policy = language_model_policy(adapter, annotate=annotate)
        task = make_task(name, annotate=annotate, ppo={"hints": {}} if asks == "hints" else {})
        if asks == "evaluation":
            with Asking(note) as asking:
                asking.add(policy, reward=LikelyActions(policy, adapter))
                policy.act(View(adapter, np.arange(4)[:, None]), np.random.default_rng(0))
        else:
            if asks == "subgoals":
                task = replace(
                    task, settings=SubgoalParams(n_envs=3, n_steps=16, batch_size=16, options={"patience": 3})
                )
            with pytest.raises(StoppedError):
                train(task, adapter, LikelyActions(policy, adapter) if asks == "reward" else None, agent, stop)
    assert len(noted) >= 3
    assert all(calls >= sent - 1 for sent, calls in enumerate(noted)), "before the first update has ended"


class Paying(Actor):
    """An actor of another package, which pays for its actions."""

    def __init__(self, account: Any) -> None:
        self._account = account

    def act(self, view: View, rng: np.random.Generator) -> Acted:
        return Acted(np.zeros(len(view), np.int64))

    @property
    def account(self) -> Any:
        return self._account


def paying(account: Any) -> Checked:
    return Checked(Paying(account), "paying", gym.spaces.Discrete(2))


def test_what_another_packages_actor_pays_is_counted(tmp_path: Path) -> None:
    account = paying({"calls": np.int64(3), "cost_usd": 0.5, "input_tokens": float("nan")}).account
    assert account["model"] == "paying"
    arm: Any = SimpleNamespace(name="theirs")
    for seed in (0, 1):
        facts = {**account, ASKER: str(seed)}
        (tmp_path / f"theirs-{seed}.json").write_text(json.dumps({**facts, SCORING: []}, allow_nan=False))
    out = Output(tmp_path)
    of_arm = asked([(arm, 0, None), (arm, 1, None)], tmp_path, out)["theirs"]
    assert out.usage == {"calls": 6, "cost_usd": 1.0, "input_tokens": None}
    assert out.run_notes == ["The arm theirs took 6 calls of paying and 0 answers from the store."]
    assert out.notes == [], "states were not counted"
    metrics = {"order": ["theirs"], "arms": {"theirs": {"asked": of_arm}}}
    assert asked_columns(metrics) == (ANY, [["theirs", "paying", "-", "-", "-", "-"]])
    assert paying({}).account == {}


@pytest.mark.parametrize("account", [None, [1], {"calls": "3"}, {"cost_usd": -1.0}, {"states": float("inf")}])
def test_an_account_that_cannot_be_counted_is_named(account: Any) -> None:
    with pytest.raises(ActorError, match=r'The actor "paying" has the account .*, but it must map each of states, ans'):
        _ = paying(account).account
