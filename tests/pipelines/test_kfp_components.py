"""Components as plain functions, as they are called in a step's process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from move_lists import GRID, SMALL

from laurel.components.annotate import annotate
from laurel.components.caption import caption
from laurel.components.collect import collect
from laurel.components.evaluate import evaluate
from laurel.components.judges import judges
from laurel.components.merge_agents import merge_agents
from laurel.components.plan import plan
from laurel.components.step import step, unpacked, written
from laurel.components.train_agents import train_agents
from laurel.components.train_reward import train_reward
from laurel.data.directory import output_directory
from laurel.data.manifest import digest_directory, read_manifest
from laurel.errors import DataError, RefusedLabelsError
from laurel.params import parse_params
from laurel.params.rewards import METHODS

ENV = {"env": {"id": "FrozenLake-v1", "backend": "gymnasium"}, "tracking": {}}
COLLECT: dict[str, Any] = {
    **ENV,
    "seed": 3,
    "collect": {"steps": 300.0, "n_envs": 4.0, "policies": [{"kind": "random", "share": 1.0}]},  # numbers as KFP sends
    "code_version": "1",
}
AGENT = {"seeds": [0.0, 1.0], "steps": 64.0}
PLAN: dict[str, Any] = {
    **{section: {} for section in ("caption", "annotate", "rewards", "shaping", "evaluate")},
    **COLLECT,
    "arms": ["preference", "random_policy"],
    "agent": AGENT,
    "run": "r",
    "collect_parts": 1,
}


def test_two_components_in_a_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trajectories = dsl.Dataset(uri=str(tmp_path / "collect" / "trajectories"))
    captions = dsl.Dataset(uri=str(tmp_path / "caption" / "captions"))
    collect.python_func(**COLLECT, trajectories=trajectories)
    caption.python_func(**ENV, caption={}, code_version="1", trajectories=trajectories, captions=captions)
    manifest = read_manifest(Path(captions.path), "caption")
    assert manifest["counts"]["transitions"] == 300
    assert captions.metadata == {**manifest["counts"], "digest": manifest["digest"]}
    assert digest_directory(Path(captions.path)) == manifest["digest"]
    assert read_manifest(Path(trajectories.path))["params"]["seed"] == 3
    assert manifest["mlflow_run_id"] is None
    lines = capfd.readouterr().err
    assert "laurel step collect: not tracked (MLFLOW_TRACKING_URI is not set)" in lines
    assert re.search(r"laurel step caption: done \(\d+\.\d s\)\n", lines)


def test_output_of_an_earlier_attempt_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "trajectories"
    place.mkdir()
    (place / "shard-00099.parquet").write_text("half")
    collect.python_func(**COLLECT, trajectories=dsl.Dataset(uri=str(place)))
    assert digest_directory(place) == read_manifest(place)["digest"]


@pytest.mark.parametrize("uri", ["minio://bucket/preferences", "preferences"])
def test_refused_labels_are_kept_where_the_message_says(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        with written(dsl.Dataset(uri=uri)) as output:
            aside = output.with_name("preferences-refused")
            aside.mkdir(parents=True)
            raise RefusedLabelsError("They are bad.", aside)

    monkeypatch.chdir(tmp_path)
    kept = (
        "" if ":" in uri else "\nThe labels are kept: laurel show preferences-refused"
    )  # else, it would not be uploaded
    with pytest.raises(RefusedLabelsError, match=f"^They are bad.{kept}$"):
        refused()
    assert Path("preferences-refused").exists() == bool(kept)


def test_many_files_travel_as_one(tmp_path: Path) -> None:
    def write(name: str) -> dsl.Model:
        artifact = dsl.Model(uri=str(tmp_path / name / "agents"))
        with written(artifact, packed=True) as output, output_directory(output, stage="train-agents", params={}) as out:
            for seed in (1, 0):
                (out.path / "oracle" / f"seed-{seed}").mkdir(parents=True)
                (out.path / "oracle" / f"seed-{seed}" / "curve.parquet").write_text(f"curve {seed}")
            (out.path / "top").write_text("")
        return artifact

    first, second = write("a"), write("b")
    assert sorted(file.name for file in Path(first.path).iterdir()) == [".run.json", "files.zip", "manifest.json"]
    packed = [(Path(artifact.path) / "files.zip").read_bytes() for artifact in (first, second)]
    assert packed[0] == packed[1], "same files, same bytes"
    with unpacked([first, second]) as places:
        for place in places:
            assert read_manifest(place)["digest"] == digest_directory(place)
            assert read_manifest(place)["seconds"] is not None
            assert (place / "oracle" / "seed-1" / "curve.parquet").read_text() == "curve 1"
    assert not places[0].exists()

    empty = dsl.Model(uri=str(tmp_path / "c" / "agents"))  # of an arm that was left out
    with written(empty, packed=True) as output, output_directory(output, stage="train-agents", params={}):
        pass
    with unpacked([empty]) as (place,):
        assert read_manifest(place)["digest"] == digest_directory(place)

    (Path(second.path) / "files.zip").write_bytes(packed[0][:-30])
    with pytest.raises(DataError, match=r"agents: cannot be read \(.*\)\. Run the step"), unpacked([second]):
        pass
    (Path(second.path) / "files.zip").unlink()
    with (
        pytest.raises(DataError, match=r"agents: cannot be read \(.*No such file.*\)\. Run the step"),
        unpacked([second]),
    ):
        pass


@pytest.mark.parametrize("packed", [True, False])
def test_an_artifact_that_cannot_be_written_is_said_in_a_sentence(
    tmp_path: Path, packed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk, or a bucket that the step's service account may not write to."""
    (tmp_path / "bucket").write_text("no folder")
    artifact = dsl.Model(uri=str(tmp_path / "bucket" / "agents"))
    with (
        pytest.raises(SystemExit) as ended,
        step("train-agents", tracking={"enabled": False}),
        written(artifact, packed=packed) as output,
        output_directory(output, stage="train-agents", params={}),
    ):
        pass
    assert ended.value.code == 2
    assert "train-agents: failed" in (said := capsys.readouterr().err)
    assert "bucket/agents: cannot be written (Not a directory)" in said


def test_tracking_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with step("x", **ENV) as given:
        assert not given["tracking"].enabled
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with step("x", **ENV) as given:
        assert given["tracking"].enabled
    with step("x", **{**ENV, "tracking": {"enabled": False}}) as given:
        assert not given["tracking"].enabled


def test_secrets_are_fetched_first(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LAUREL_SECRET_MLFLOW_TRACKING_TOKEN", "hunter2")  # a secret where a reference should be
    with pytest.raises(SystemExit), step("x", **ENV):
        raise AssertionError("the step began")
    said = capfd.readouterr().err
    assert "failed (LAUREL_SECRET_MLFLOW_TRACKING_TOKEN: must be projects/" in said
    assert "hunter2" not in said


def test_the_plan(capfd: pytest.CaptureFixture[str]) -> None:
    assert plan.python_func(**PLAN, seeds_per_step=0) == [{"arm": "preference", "seeds": [0, 1]}]
    assert plan.python_func(**PLAN, seeds_per_step=1) == [
        {"arm": "preference", "seeds": [0]},
        {"arm": "preference", "seeds": [1]},
    ]
    with pytest.raises(SystemExit) as end:
        plan.python_func(**{**PLAN, "collect_parts": 2}, seeds_per_step=0)
    assert end.value.code == 2
    assert "collect.parts is 1, but the pipeline was compiled with 2. Compile it again." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"env": {"id": "Pendulum-v1"}, "agent": {**AGENT, "algorithm": "dqn"}}, "agent.algorithm is dqn, which"),
        (
            {"annotate": {"annotator": "openai", "openai": {"model": "m"}, "language_model": {"prompt": "mine.jinja"}}},
            "mine.jinja: no such file.",
        ),
        (
            {"annotate": {"annotator": "huggingface", "huggingface": {"quantization": "4bit", "mode": "generate"}}},
            "needs bitsandbytes",
        ),
        ({"annotate": {"embedding": {"model": "./encoder"}}}, "there is no such directory"),
        ({"collect": {"steps": 9, "policies": [{"kind": "checkpoint", "path": "agent"}]}}, "agent: "),
        ({"annotate": {"gold": "gold.jsonl"}}, "gold.jsonl"),
    ],
    ids=["agents", "prompt", "package", "encoder", "policy", "gold"],
)
def test_the_plan_refuses_what_a_later_step_would_refuse(
    changes: dict[str, Any], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        plan.python_func(**{**PLAN, **changes}, seeds_per_step=0)
    assert end.value.code == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("laurel step plan: failed (")
    assert sentence in said


PPO = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "hidden": [8]}


def metrics_of_components(place: Path, **sections: Any) -> dict[str, Any]:
    """Call all components one after the other, an arm a branch, with a simulated annotator; return metrics.json."""
    given: dict[str, Any] = {
        "seed": 0,
        "collect": {"steps": 600, "n_envs": 4},
        "caption": {},
        "annotate": {"annotator": "scripted", "n_pairs": 60, "scripted": {"error_rate": 0.1}},
        "rewards": {},
        "shaping": {},
        "agent": {"seeds": [0], "steps": 256, "ppo": PPO},
        "evaluate": {"episodes": 2, "n_envs": 2, "bootstrap": 20, "animation_steps": 0},
        "tracking": {"enabled": False},
    }
    params = parse_params({**given, **sections}, "params")

    def call(component: Any, **others: Any) -> Any:
        given = {name: value for name, value in params.dump().items() if name in component.component_spec.inputs}
        return component.python_func(**given, code_version="1", **others)

    def made(name: str) -> dsl.Artifact:
        return dsl.Artifact(uri=str(place / name))

    trajectories, captions, preferences, model = (made(name) for name in ("t", "c", "p", "m"))
    branches = call(plan, run="r", collect_parts=1, seeds_per_step=0)
    assert [branch["arm"] for branch in branches] == [arm.name for arm in params.arms if arm.trained]
    call(collect, trajectories=trajectories)
    call(caption, trajectories=trajectories, captions=captions)
    asked = call(judges, shards=1)
    call(annotate, judges=asked, share={}, captions=captions, preferences=preferences)
    inputs = {"captions": captions, "preferences": preferences, "model": model}
    call(train_reward, trajectories=trajectories, **inputs)
    shards = [made(f"shards/{branch['arm']}/agents") for branch in branches]
    for branch, agents in zip(branches, shards, strict=True):
        call(train_agents, branch=branch, **inputs, agents=agents)
    call(merge_agents, shards=shards, **inputs, agents=made("agents"))
    shown = {
        "metrics": dsl.Metrics(uri=str(place / "metrics")),
        **{name: made(name) for name in ("report", "table")},
    }
    call(evaluate, trajectories=trajectories, **inputs, agents=made("agents"), reports=made("reports"), **shown)
    metrics: dict[str, Any] = json.loads((place / "reports" / "metrics.json").read_text())
    return metrics


def networks(place: Path) -> list[bytes]:
    """Return the network of each arm."""
    with unpacked([dsl.Model(uri=str(place / "agents"))]) as (agents,):
        return [file.read_bytes() for file in sorted(agents.glob("*/seed-0/model.safetensors"))]


@pytest.mark.slow
def test_every_kind_of_reward_is_an_arm_by_params_alone(tmp_path: Path) -> None:
    """An arm that cannot be trained here is left out, as in a whole stage; all others are paid, and each otherwise."""
    arms: dict[str, Any] = {
        **{kind: {"reward": kind} for kind in ("text", "score", "goals", "code", "outcome", "online")},
        "sum": {"reward": {"text": 0.5, "score": 0.5}},
        "potential": {"reward": "score", "shaping": {"form": "potential"}},
        "extrinsic": {"reward": None},
    }
    rewards: dict[str, Any] = {
        "score": {"size": 3, "n_groups": 6},
        "goals": {"form": "closed"},
        "code": {"rounds": 1, "samples": 2, "trial": {"steps": 256, "seeds": 1, "ppo": PPO}},
        "online": {"questions": 20, "every": 64},
    }
    pole = tmp_path / "pole"
    metrics = metrics_of_components(pole, env={"id": "CartPole-v1"}, arms=arms, rewards=rewards)
    assert set(metrics["order"]) == {*arms} - {"outcome"}
    left_out = "The arm outcome was left out: CartPole-v1 has no captions of success, so the true answer is unknown."
    assert left_out in read_manifest(pole / "agents")["notes"]
    assert len(set(networks(pole))) == len(metrics["order"])

    kinds = {*METHODS.builtin()} - {*arms, "llm_hints"} | {"outcome"}  # llm_hints asks a chat model while it pays
    arms = {
        **{kind: {"reward": kind} for kind in sorted(kinds)},
        "supervised": {"reward": "supervised"},
        "stored": {"reward": "stored", "shaping": {"quantile": 0.0}},
        "extrinsic": {"reward": None},
    }
    rewards = {
        "supervised": {"kind": "outcome", "judge": "supervised", "labels": 10},
        "preference": {"ensemble": 2, "hidden": [8], "max_epochs": 3},
        "stored": {"path": str(pole / "m"), "name": "text"},
    }
    game = tmp_path / "game"
    metrics = metrics_of_components(game, env={"id": "laurel/Ultimatum-v0"}, arms=arms, rewards=rewards)
    assert set(metrics["order"]) == set(arms)
    assert len(set(networks(game))) == len(arms)


@pytest.mark.slow
def test_a_language_model_is_trained_to_act_beside_others(tmp_path: Path) -> None:
    metrics = metrics_of_components(
        tmp_path,
        env=GRID.model_dump(),
        arms={
            "trained": {"reward": None, "agent": {"algorithm": "language_model"}},
            "base_model": {"reward": None, "agent": {"actor": "language_model"}},
            "ppo": {"reward": None},
        },
        agent={"seeds": [0], "steps": 256, "ppo": PPO, "language_model": {**SMALL, "n_envs": 128}},
    )
    found = {name: arm.get("asked", {}).get("model") for name, arm in metrics["arms"].items()}
    assert found == {"trained": "tiny", "base_model": "tiny", "ppo": None}
    assert metrics["arms"]["trained"]["env_steps"] == 256


def test_evaluate_hands_on_sections_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: dict[str, Any] = {}

    def stop(env: Any, **rest: Any) -> None:
        handed.update(rest, env=env.id)
        raise DataError("seen.")

    monkeypatch.setattr("laurel.stages.evaluate.run", stop)
    monkeypatch.setattr("laurel.components.step.unpacked", lambda _: nullcontext([tmp_path / "unpacked"]))
    names = ("trajectories", "captions", "preferences", "model", "agents", "reports", "metrics", "report", "table")
    artifacts = {name: dsl.Dataset(uri=str(tmp_path / name)) for name in names}
    sections = {key: value for key, value in PLAN.items() if key not in ("collect_parts", "run")}
    with pytest.raises(SystemExit):
        evaluate.python_func(**sections, **artifacts)
    expected = {"trajectories": "trajectories", "captions": "captions", "preferences": "preferences"}
    expected |= {"reward": "model", "agents": "unpacked"}
    assert {name: handed[name].name for name in expected} == expected
    assert handed["env"] == "FrozenLake-v1"


def test_errors_that_the_user_can_fix_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = dsl.Dataset(uri=str(tmp_path / "trajectories"))
    with pytest.raises(SystemExit) as end:
        collect.python_func(**{**COLLECT, "env": {"id": "Nowhere-v0", "idd": 1}}, trajectories=made)
    assert end.value.code == 2
    (_, failed) = capfd.readouterr().err.splitlines()
    assert failed.startswith("laurel step collect: failed (params: env.idd is unknown.")
    with pytest.raises(SystemExit):
        collect.python_func(**{**COLLECT, "env": {"id": "Nowhere-v0"}}, trajectories=made)
    assert "Nowhere-v0" in capfd.readouterr().err
    assert not (tmp_path / "trajectories").exists()


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), step("x", **ENV):
        raise ZeroDivisionError


def test_help_is_quick(tmp_path: Path) -> None:
    code = (
        "import sys, json\nfrom laurel.cli.app import main\n"
        "try:\n    main(['pipeline', 'run', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "--runner {process,docker}" in done.stdout
    assert not {"kfp", "numpy", "torch", "mlflow", "pydantic"} & set(json.loads(done.stderr))


def test_steps_import_neither_the_sdk_nor_its_dependencies(tmp_path: Path) -> None:
    """An image has kfp without its dependencies."""
    code = (
        "import sys, json\nimport laurel.components.step\nfrom kfp.dsl import executor_main\n"
        "print(json.dumps(sorted({name for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "_KFP_RUNTIME": "true"},
    )
    loaded = json.loads(done.stdout)
    assert "kfp.dsl.executor" in loaded
    assert not {"google.protobuf", "kubernetes", "docker", "kfp.pipeline_spec", "kfp.compiler"} & set(loaded)


def test_every_package_is_installed() -> None:
    import tomllib

    from tiny_project import REPOSITORY

    setup = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {
        ".".join(file.parent.relative_to(REPOSITORY / "src").parts)
        for file in (REPOSITORY / "src").rglob("__init__.py")
    }
    assert set(setup["packages"]) == found | {"laurel.components", "laurel.pipelines"}
