"""Notes of train-agents for readers of the report, from what agents leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stopping import make_task, run

from laurel.agents.actor import Advisor, View
from laurel.arrays import FloatArray
from laurel.data import usage
from laurel.data.json_file import write_json
from laurel.data.manifest import RUN
from laurel.envs import adapter_for
from laurel.params.resolved_arms import Arm
from laurel.params.training import AgentParams, ShapingParams
from laurel.stages.training_notes import notes_on_questions, notes_on_training
from laurel.training.checkpoint import STATE, read_run
from laurel.training.curve import CURVE, CURVE_SCHEMA

ARM = Arm("a", "method", {"outcome": 1.0}, ShapingParams(), AgentParams(seeds=(0, 1), steps=1), None, {})


def left(
    place: Path,
    episodes: int,
    approx_kl: Sequence[float | None] = (0.003,),
    share_paid: Sequence[float | None] = (0.5,),
    **state: int,
) -> Path:
    place.mkdir()
    figures = ({"approx_kl": moved, "share_paid": paid} for moved, paid in zip_longest(approx_kl, share_paid))
    rows = [dict.fromkeys(CURVE_SCHEMA.names, 0) | {"episodes": episodes} | each for each in figures]
    pq.write_table(pa.Table.from_pylist(rows, schema=CURVE_SCHEMA), place / CURVE)
    write_json(place / STATE, {"env_steps": 1000, "unseen": 0, **state})
    return place


def test_outcomes_without_an_answer_are_not_called_scored(tmp_path: Path) -> None:
    places = [(ARM, 0, left(tmp_path / "0", 10, unpaid=2)), (ARM, 1, left(tmp_path / "1", 10))]
    (note,) = notes_on_training(places)
    assert note.startswith("Agents of a met up to 2 outcomes without an answer, since collection")
    assert "scored during" in notes_on_training([(ARM, 0, left(tmp_path / "2", 10, unseen=2))])[0]


def test_many_steps_that_begin_an_episode_are_noted(tmp_path: Path) -> None:
    """Stable-Baselines3 does not count them."""
    theirs = replace(ARM, name="theirs", agent=AgentParams(seeds=(0,), steps=1000, engine="sb3"))
    places = [(ARM, n, left(tmp_path / str(n), episodes)) for n, episodes in enumerate((99, 500))]
    (note,) = notes_on_training([*places, (theirs, 0, left(tmp_path / "theirs", 500))])
    assert "count as environment steps: up to 50% of those of a." in note
    assert notes_on_training(places[:1]) == []


def test_policies_that_did_not_change_are_noted(tmp_path: Path) -> None:
    """With rewards of ten thousands a step, clipping PPO's gradient left nothing of the policy's part."""
    places = [(ARM, 0, left(tmp_path / "0", 10, [2e-8, 4e-7, None])), (ARM, 1, left(tmp_path / "1", 10, [3e-3, 1e-9]))]
    (note,) = notes_on_training(places)
    assert note.startswith(
        "The policies of a seed 0 did not change while they were trained (approx_kl is 4e-07 at most)."
    )
    assert "shaping.extrinsic" in note
    assert notes_on_training(places[1:]) == []
    other = replace(ARM, agent=AgentParams(seeds=(0,), steps=1000, algorithm="a2c"))
    assert notes_on_training([(other, 0, left(tmp_path / "2", 10, [None]))]) == []


def test_rewards_that_paid_nothing_are_noted(tmp_path: Path) -> None:
    """As of a judge that names the same position in every question: all captions have the same score."""
    flat = replace(ARM, name="flat")
    places = [(flat, seed, left(tmp_path / f"flat{seed}", 10, share_paid=(0.0, None, 0.0))) for seed in (0, 1)]
    places += [
        (ARM, 0, left(tmp_path / "0", 10, share_paid=(0.0, 0.01))),
        (ARM, 1, left(tmp_path / "1", 10, (), (0.0,))),
    ]
    alone = replace(ARM, name="alone", reward={})
    places += [(alone, 0, left(tmp_path / "alone", 10, share_paid=(None,)))]
    (note,) = notes_on_training(places)
    assert note.startswith("The arm's reward paid nothing in any training step of flat, a seed 1, so these agents")
    assert "shaping.quantile" in note


def test_of_an_online_judge_its_answers_are_named(tmp_path: Path) -> None:
    """What such a reward learned is beside each agent: `laurel show data/reward` shows nothing of it."""
    online = replace(ARM, name="online")
    place = left(tmp_path / "online", 10, share_paid=(0.0,))
    labels = place / "reward/mine/labels.parquet"
    labels.parent.mkdir(parents=True)
    labels.touch()
    (note,) = notes_on_training([(online, 0, place)])
    assert note.startswith("The arm's reward paid nothing in any training step of online, so these agents")
    assert "labels.parquet in each agent's folder (reward/NAME)" in note
    assert "data/reward" not in note


class Unreadable(Advisor):
    """A model none of whose answers can be read."""

    def __init__(self) -> None:
        super().__init__(4)
        self.asker, self.asked = usage.new_asker(), 0

    def advise(self, view: View) -> FloatArray:
        self.asked += len(view)
        return np.full((len(view), 4), -np.log(4), dtype=np.float32)

    @property
    def account(self) -> dict[str, Any]:
        counts = dict.fromkeys(("states", "unread", "calls"), self.asked)
        return {"model": "tiny", **counts, "cached": 0, usage.ASKER: self.asker}


@pytest.mark.parametrize("stopped", [3, 6])
def test_a_resumed_process_that_asks_less_hides_no_answer_that_could_not_be_read(
    stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints end after half of the eight updates; the last process may have asked nothing."""
    monkeypatch.setattr("laurel.agents.hints.make_advisor", lambda *_: Unreadable())
    task = make_task("FrozenLake-v1", ppo={"hints": {"share": 0.5}})
    adapter, place = adapter_for(task.env), tmp_path / "agent"
    for updates in (stopped, None):
        run(task, adapter, place, updates=updates)
    account = read_run(place)["accounts"]["hints"]
    assert account["states"] == account["unread"] == 11, "all but the states that end episodes"
    (note,) = notes_on_questions([(ARM, 1, place)])
    assert "about 11 distinct states" in note


def test_agents_of_one_process_share_its_latest_account(tmp_path: Path) -> None:
    """Also where the store had all answers, so that it made no call."""
    places = []
    for seed, states in enumerate((3, 5, 4)):
        places.append((ARM, seed, left(tmp_path / str(seed), 10)))
        account = {"model": "tiny", "states": states, "unread": 0, "calls": 0, "cached": states, usage.ASKER: "one"}
        write_json(places[-1][2] / RUN, {"accounts": {"hints": account}})
    (note,) = notes_on_questions(places)
    assert "about 5 distinct states: 0 calls, 5 answers from the store" in note


def test_answers_that_a_stopped_process_was_paid_for_are_calls(tmp_path: Path) -> None:
    place = left(tmp_path / "0", 10)
    account = {"model": "tiny", "states": 60, "unread": 0, "calls": 8, "cached": 52, usage.ASKER: "b"}
    noted = usage.resumed_usage({"a": {"calls": 47, "failures": 1, "cached": 0}}, usage.by_asker([account]))
    write_json(place / RUN, {"accounts": {"hints": account}, usage.USAGE: noted})
    (note,) = notes_on_questions([(ARM, 0, place)])
    assert "about 60 distinct states: 54 calls, 6 answers from the store" in note


@pytest.mark.parametrize(("about", "one"), [({}, "state"), ({"about": "pairs of tasks"}, "pair of tasks")])
def test_one_is_not_written_with_a_plural(about: dict[str, str], one: str, tmp_path: Path) -> None:
    place = left(tmp_path / "0", 10)
    account = {"model": "tiny", "states": 1, "unread": 1, "calls": 1, "cached": 1, **about}
    write_json(place / RUN, {"accounts": {"hints": account}})
    (note,) = notes_on_questions([(ARM, 0, place)])
    assert f"about 1 distinct {one}: 1 call, 1 answer from the store. 1 {one} had no answer" in note
