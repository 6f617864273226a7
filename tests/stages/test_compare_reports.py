"""Two reports side by side: what differs, tests between arms of one name, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from laurel.cli.app import main
from laurel.data.directory import output_directory
from laurel.data.json_file import write_json
from laurel.errors import DataError
from laurel.evaluation.statistics import summarise
from laurel.evaluation.summary import SCHEMA
from laurel.params.arm_infos import ArmInfo
from laurel.stages.compare_reports import compare

SEEDS = range(6)
PARAMS: dict[str, Any] = {
    "env": {"id": "FrozenLake-v1", "kwargs": {}, "max_episode_steps": None},
    "agent": {"steps": 1000},
    "shaping": {"beta": 3.0},
    "evaluate": {"kwargs": {}},
    "arms": {
        "preference": {"name": "preference", "reward": {"preference": 1.0}, "extrinsic": None, "shaping": {}},
        "mixed": {"name": "mixed", "reward": {"preference": 1.0, "oracle": 0.5}, "extrinsic": None, "shaping": {}},
    },
}


def report(
    place: Path,
    returns: dict[str, float],
    *,
    note: str = "",
    own_files: dict[str, str] | None = None,
    steps: int = 1000,
    fewer: dict[str, int] | None = None,
    draws_tasks: bool = False,
    pairs: int = 40,
    simulated: dict[str, str] | None = None,
    **changes: Any,
) -> Path:
    """Write what evaluate does of a report: each arm's seeds return about as much."""
    results = pd.DataFrame(
        [
            {"arm": arm, "seed": s, "episode": 0, "return": mean + s / 100, "success": None, "shaped_reward": 0.0}
            for arm, mean in returns.items()
            for s in SEEDS
        ]
    )
    curves = pd.DataFrame(
        [
            {
                "arm": arm,
                "seed": s,
                "env_steps": {arm: steps, **(fewer or {})}[arm],
                "window": 100,
                "return_mean": mean,
                "success_rate": np.nan,
            }
            for arm, mean in returns.items()
            for s in SEEDS
        ]
    )
    infos = [ArmInfo(arm, "method", arm, ("preference",), draws_tasks=draws_tasks) for arm in returns]
    summary = summarise(results, curves, infos, success_threshold=0.9, reward_threshold=None, draws=100, seed=0)
    with output_directory(place, stage="evaluate", params={**PARAMS, **changes}) as out:
        results.to_parquet(out.path / "results.parquet")
        curves.to_csv(out.path / "curves.csv", index=False)
        metrics = {"schema": SCHEMA, "annotator": "embedding", "annotation": {"pairs": pairs}, **summary}
        metrics |= {"simulated": simulated} if simulated else {}
        write_json(out.path / "metrics.json", metrics)
        out.notes += [note] if note else []
        out.own_files = own_files or {}
    return place


def test_a_judge_that_made_no_labels_is_not_said_to_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have been asked about actions, outcomes or code."""
    places = [report(tmp_path / name, {"preference": 0.1}, pairs=n) for name, n in (("a", 40), ("b", 0))]
    assert main(["compare", *map(str, places), "-o", str(tmp_path / "compare.html")]) == 0
    said = capsys.readouterr().out
    assert f"A: {places[0]}, labels by embedding." in said
    assert f"B: {places[1]}, answers by embedding." in said


def test_arms_of_one_name_are_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = report(tmp_path / "a/reports", {"preference": 0.1, "mixed": 0.5})
    b = report(
        tmp_path / "b/reports",
        {"preference": 0.9, "other": 0.5},
        note="The labels are simulated: <b>nobody</b> judged.",
        shaping={"beta": 1.0},
    )
    found = compare(a.parent, b)  # a project, or its report
    assert found.params == (["parameter", "A", "B"], [["shaping.beta", "3.0", "1.0"]])
    heads, rows = found.arms
    by_arm = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    assert list(by_arm) == ["preference", "mixed", "other"]
    assert by_arm["preference"]["P(B higher) in the end"].startswith("1.00 [")
    assert by_arm["preference"]["p in the end"] == f"{2 * 2 / 924:.3f}", "12 choose 6 splits, two tests"
    assert found.tests == 2
    assert {by_arm["mixed"][head] for head in heads if head.endswith("end")} == {"-"}
    assert main(["compare", str(a), str(b), "-o", str(tmp_path / "page.html")]) == 0
    page, said = (tmp_path / "page.html").read_text(), capsys.readouterr().out
    assert "shaping.beta" in said
    assert "B: The labels are simulated" in said
    assert "&lt;b&gt;nobody" in page, "text is data"
    assert page.count("<tr>") == 2 + 4


def test_an_arm_whose_name_pandas_takes_for_a_missing_value_is_tested_in_both_measures(tmp_path: Path) -> None:
    names = ("None", "NA", "nan")
    a, b = (report(tmp_path / folder, dict.fromkeys(names, mean)) for folder, mean in (("a", 0.1), ("b", 0.9)))
    assert compare(a, b).tests == 2 * len(names)


def test_while_training_an_arm_with_a_curriculum_is_not_tested(tmp_path: Path) -> None:
    a, b = report(tmp_path / "a", {"preference": 0.2}), report(tmp_path / "b", {"preference": 0.9}, draws_tasks=True)
    for found in (compare(a, b), compare(b, a)):
        (row,) = found.arms[1]
        assert row[-2:] == ["-", "-"], "its returns are over the tasks that it drew"
        assert row[-4] != "-"
        assert found.tests == 1


def test_settings_of_an_arm_that_differ_are_listed(tmp_path: Path) -> None:
    """Of an arm that only one report has, its name says enough."""
    preference, mixed = PARAMS["arms"].values()
    changed = {**preference, "extrinsic": 0.0, "shaping": {"beta": 0}}
    a = report(tmp_path / "a", {"preference": 0.1, "mixed": 0.1})
    b = report(tmp_path / "b", {"preference": 0.1, "other": 0.1}, arms={"preference": changed, "other": mixed})
    assert compare(a, b).params[1] == [
        ["arms.mixed", "mixed", "-"],
        ["arms.other", "-", "other"],
        ["arms.preference.extrinsic", "null", "0.0"],
        ["arms.preference.shaping", "{}", "-"],
        ["arms.preference.shaping.beta", "-", "0"],
    ]


def test_what_is_not_comparable_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = report(tmp_path / "a", {"preference": 0.1})
    others: dict[str, dict[str, Any]] = {
        "environment: env.id: FrozenLake-v1 in the first, env.id: Taxi-v4": {"env": {"id": "Taxi-v4", "kwargs": {}}},
        "arguments": {"env": {**PARAMS["env"], "kwargs": {"is_slippery": False}}},
        "arguments in evaluation": {"evaluate": {"kwargs": {"map_name": "8x8"}}},
        "steps of each training run: agent.steps: 1000 in the first, agent.steps: 2000": {
            "agent": {"steps": 2000},
            "steps": 2048,
        },
    }
    for says, changes in others.items():
        other = report(tmp_path / "b", {"preference": 0.9}, **changes)
        with pytest.raises(DataError, match=says):
            compare(a, other)
    slippery, dry = (
        report(tmp_path / str(value), {"preference": 0.1}, env={**PARAMS["env"], "kwargs": {"is_slippery": value}})
        for value in (True, False)
    )
    with pytest.raises(DataError, match=r"env.kwargs.is_slippery: true in the first, env.kwargs.is_slippery: false"):
        compare(slippery, dry)
    compare(a, report(tmp_path / "b", {"preference": 0.9}, agent={"steps": 900}))  # both were trained for 1,000 steps
    assert main(["compare", str(a), str(tmp_path)]) == 2
    assert main(["compare", str(a), str(a), "-o", str(tmp_path / "none/page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_arm_that_was_trained_for_other_steps_is_named(tmp_path: Path) -> None:
    """Reports are refused only if their longest trainings differ."""
    returns = {"preference": 0.1, "mixed": 0.1}
    a, b = report(tmp_path / "a", returns), report(tmp_path / "b", returns, fewer={"mixed": 512})
    assert not [note for note in compare(a, a).notes if "trained for" in note]
    (note,) = (note for note in compare(a, b).notes if "trained for" in note)
    assert note == "mixed: its agents were trained for 1,000 steps in A and 512 in B."


def test_an_environment_with_and_without_its_module_is_the_same(tmp_path: Path) -> None:
    """Gymnasium's `module:id`; two different modules may register different environments by one id."""
    a, b, c = (
        report(tmp_path / str(number), {"preference": 0.1}, env={**PARAMS["env"], "id": env_id})
        for number, env_id in enumerate(("FrozenLake-v1", "one:FrozenLake-v1", "two:FrozenLake-v1"))
    )
    assert compare(a, b).params[1] == [["env.id", "FrozenLake-v1", "one:FrozenLake-v1"]]
    with pytest.raises(DataError, match="differ in the environment"):
        compare(b, c)


def test_what_is_simulated_is_said_once_for_each_report(tmp_path: Path) -> None:
    note, made_by = "The reward outcome is simulated: it was made by scripted.", {"outcome": "scripted"}
    a, b = (report(tmp_path / name, {"preference": 0.5}, note=note, simulated=made_by) for name in "ab")
    assert [said for said in compare(a, b).notes if "outcome" in said] == [f"A: {note}", f"B: {note}"]


def test_without_a_test_no_correction_is_named(tmp_path: Path) -> None:
    a, b = (report(tmp_path / name, {name: 0.1}) for name in "ab")
    assert any("p: none, since no arm has several seeds in both" in note for note in compare(a, b).notes)
    assert any("correction for 2 tests" in note for note in compare(a, a).notes)


def test_a_module_of_ones_own_that_differs_is_named(tmp_path: Path) -> None:
    """The parameters are the same, and the environment is another one."""
    first, second = ({"corridor.py": digest, "prompt.jinja": "p"} for digest in ("a", "b"))
    a = report(tmp_path / "a", {"preference": 0.1}, own_files=first)
    b = report(tmp_path / "b", {"preference": 0.1}, own_files=second)
    assert "The reports were made with different content of corridor.py." in compare(a, b).notes
    assert not any("different content" in note for note in compare(a, a).notes)
