"""A curriculum: the averages against a plain loop, probabilities by progress and interest, resumption to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sayings import rollout_of
from stopping import FILES, content, make_task, run

from laurel.envs import adapter_for
from laurel.envs.tasks import TasksAdapter, tasks_of
from laurel.envs.vector import make_vector
from laurel.errors import AnnotationError, EnvError, ParamsError
from laurel.params import EnvParams, parse_params
from laurel.params.annotation import AnnotateParams
from laurel.params.training import CurriculumParams
from laurel.stages.preflight import check_fit, check_run
from laurel.training.curriculum import FILE, Curriculum, bored, task_probabilities
from minimal_params import MINIMAL

TASKS = ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0", "MiniGrid-DoorKey-5x5-v0"]
ENV = EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": TASKS})


PARAMS = CurriculumParams(rate=0.5, mastered=0.7, boring=0.01)


@pytest.fixture(scope="module")
def adapter() -> TasksAdapter:
    return tasks_of(adapter_for(ENV), "here")


def test_averages_are_those_of_a_plain_loop(adapter: TasksAdapter) -> None:
    envs = make_vector(ENV, adapter, 2, 0)
    curriculum = Curriculum(PARAMS, adapter, envs, np.array([[False, True, False]] + [[False] * 3] * 2))
    rollout = rollout_of(
        [[0, 0]] * 4, terminated=[[1, 0], [0, 0], [1, 0], [0, 1]], valid=[[1, 1], [0, 1], [1, 1], [1, 1]]
    )
    rollout.observation = np.zeros((5, 2, adapter.observation_size), dtype=np.uint8)
    rollout.observation[1:, 0, -1] = 2
    rollout.extrinsic[:] = [
        [0.9, 0.0],
        [9.9, 0.0],
        [0.0, 0.0],
        [0.0, 0.7],
    ]  # the second of the first environment is a reset
    curriculum.follow(rollout)
    rows = {row["task"]: row for row in curriculum.table.to_pylist()}
    # Empty-5x5 is won twice, DoorKey lost once: fast .5, .75 and slow .25, .5
    assert [rows[task]["episodes"] for task in TASKS] == [2, 0, 1]
    assert {row["env_steps"] for row in rows.values()} == {8}
    assert [rows[task]["success"] for task in TASKS] == [0.75, 0.0, 0.0]

    def spread(p: float) -> float:
        return 0.9 * p / (p + 0.1 * (1 - 2 * p))

    assert rows[TASKS[0]]["progress"] == pytest.approx(spread(0.75) - spread(0.5))
    assert rows[TASKS[0]]["chance"] == max(row["chance"] for row in rows.values())
    assert [rows[task]["boring"] for task in TASKS] == [False, True, False], "next to Empty-5x5, which is mastered"
    assert rows[TASKS[1]]["chance"] == pytest.approx(0.01 * rows[TASKS[2]]["chance"]), "both without progress"
    drawn = envs._singles[0].unwrapped.chances
    assert drawn.tolist() == [rows[task]["chance"] for task in TASKS]
    envs.close()


def test_boring_tasks_are_rarely_drawn() -> None:
    same = np.array([[False, True, False], [True, False, False], [False, False, False]])
    assert bored(np.array([0.6, 0.9, 0.0]), same, 0.5).tolist() == [True, False, False]
    assert not bored(np.array([0.4, 0.4, 0.0]), same, 0.5).any(), "nothing is done well yet"
    assert not bored(np.array([1.0, 1.0, 1.0]), None, 0.5).any()
    chain = np.array([[False, True, False], [False, False, True], [False, False, False]])
    assert bored(np.array([0.9, 0.8, 0.7]), chain, 0.5).tolist() == [False, True, False], (
        "a boring one makes none boring"
    )
    back = np.array([[False, False], [True, False]])
    assert not bored(np.array([0.9, 0.8]), back, 0.5).any(), "a better one is visited first, and stays interesting"
    found = task_probabilities(np.zeros(3), np.array([0.001, 1.0, 1.0]))
    assert found.sum() == pytest.approx(1)
    assert found[0] < 0.001
    assert found[1] == found[2]


def test_a_resumed_run_with_a_curriculum_is_the_run_that_it_would_have_been(
    adapter: TasksAdapter, tmp_path: Path
) -> None:
    task = replace(
        make_task(ppo={"n_envs": 4, "n_steps": 32, "batch_size": 64}),
        env=ENV,
        steps=8 * 128,
        checkpoint_steps=2 * 128,
        annotate=AnnotateParams.model_validate({"annotator": "scripted"}),
        curriculum=CurriculumParams(interest="main", mastered=0.05),
    )
    run(task, adapter, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    assert expected["files"] == sorted(FILES | {FILE})
    for updates in (3, 2):
        run(task, adapter, tmp_path / "stopped", updates=updates)
    run(task, adapter, tmp_path / "stopped")
    assert content(tmp_path / "stopped") == expected
    tables = [pq.read_table(tmp_path / name / FILE) for name in ("whole", "stopped")]
    assert tables[0].equals(tables[1])
    assert any(row["episodes"] for row in tables[0].to_pylist())
    run(replace(task, curriculum=None), adapter, tmp_path / "turns")
    assert content(tmp_path / "turns")["model"] != expected["model"], "tasks are drawn otherwise"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"agent": {"curriculum": {}}}, EnvError, r"agent\.curriculum: CartPole-v1 is a single task"),
        (
            {"env": ENV.model_dump(), "agent": {"curriculum": {"interest": "large"}}},
            ParamsError,
            r"agent\.curriculum\.interest is large, but must be one of main",
        ),
        (
            {"agent": {"curriculum": {}, "engine": "sb3"}},
            ParamsError,
            "has a curriculum, which only Laurel's own algorithms follow",
        ),
    ],
)
def test_unsupported_curricula_are_refused_before_training(
    changes: dict[str, dict[str, object]], error: type[Exception], message: str
) -> None:
    agent = {**MINIMAL["agent"], **changes.get("agent", {})}
    content = {**MINIMAL, "arms": ["extrinsic"], **changes, "agent": agent}
    with pytest.raises(error, match=message):
        _check(content)


def test_the_model_that_judges_a_curriculum_is_needed_only_where_agents_are_trained() -> None:
    judged = {"annotator": "huggingface", "huggingface": {"model": "/no/such/model"}}
    agent = {**MINIMAL["agent"], "curriculum": {"interest": "main"}}
    content = {**MINIMAL, "arms": ["extrinsic"], "env": ENV.model_dump(), "agent": agent, "annotate": judged}
    _check(content)
    with pytest.raises(AnnotationError, match='"/no/such/model" cannot be loaded: there is no such directory'):
        check_run(parse_params(content, "params.yaml"))


def _check(content: dict[str, object]) -> None:
    params = parse_params(content, "params.yaml")
    check_fit(params, adapter_for(params.env))


def test_a_mastered_task_that_is_interesting_stays_so() -> None:
    """The second finds the first one boring; but that one is visited before, by its success."""
    boring = np.array([[False, False], [True, False]])
    assert bored(np.array([0.8, 0.7]), boring, 0.5).tolist() == [False, False]
    assert bored(np.array([0.7, 0.8]), boring, 0.5).tolist() == [True, False]
