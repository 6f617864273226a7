from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from laurel.data.captions import read_vocabulary
from laurel.data.directory import Output
from laurel.data.json_file import write_json
from laurel.errors import DataError, ParamsError
from laurel.params import parse_params
from laurel.rewards.method import QUALITY
from laurel.rewards.model import RewardModel
from laurel.rewards.stored import StoredRewards
from laurel.stages import train_reward
from laurel.stages.preflight import check_run
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A project with preferences, from which a reward is still to be learned."""
    return finished.copy(tmp_path / "p", UNTRACKED, without=["train-reward"])


def manifest(project: Project) -> dict[str, Any]:
    return read_json(project.output("train-reward") / "manifest.json")


def test_the_artefact_is_whole(project: Project) -> None:
    project.run("train-reward")
    out = project.output("train-reward")
    model = RewardModel.load(out / "preference")
    vocabulary = read_vocabulary(project.output("caption"))
    assert list(model.texts) == list(vocabulary.texts)
    assert abs(model.rewards.mean()) < 1e-5, "normalised over distinct captions"
    assert abs(model.rewards.std() - 1) < 1e-4
    np.testing.assert_allclose(model.score(model.embeddings), model.rewards, atol=1e-5)
    quality = read_json(out / "preference/quality.json")
    assert 0 <= quality["heldout_agreement"] <= 1
    assert set(quality["baselines"]) == {"majority", "bag_of_words", "environment_reward"}
    annotated = read_json(project.output("annotate") / "manifest.json")["counts"]
    assert manifest(project)["counts"] == {"rewards": 1, "pairs": annotated["ok"] + annotated["tie"]}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "preference"}, "embedding"),
        ({"kind": "preference", "judge": "teacher"}, "scripted"),
        ({"kind": "code", "writer": "teacher"}, "scripted"),
        ({"kind": "score"}, "embedding"),
        ({"kind": "outcome", "judge": "truth"}, None),
        ({"kind": "text", "path": "elsewhere"}, None),
    ],
)
def test_a_registered_reward_names_the_annotator_that_was_asked_for_it(
    settings: dict[str, Any], named: str | None, tmp_path: Path
) -> None:
    content = {**MINIMAL, "annotate": {"judges": {"teacher": {"annotator": "scripted"}}}}
    params = parse_params({**content, "rewards": {"own": settings}, "arms": {"own": {"reward": "own"}}}, "params.yaml")
    StoredRewards.write(tmp_path, {"own": (params.rewards["own"], None, 1)})
    (tmp_path / "own").mkdir()
    write_json(tmp_path / "own" / QUALITY, {})
    registered: list[dict[str, str]] = []
    run: Any = SimpleNamespace(
        log_metrics=lambda _: None,
        log_model=lambda *_, **__: "models:/own",
        register=lambda name, source, tags, alias: registered.append(tags),
    )
    train_reward.track(run, dict(params), Output(tmp_path))
    assert [tags.get("annotator") for tags in registered] == [named]


def test_rewards_without_a_measured_quality_are_registered_too(tmp_path: Path) -> None:
    """So that the best agent's reward has its alias; not those that are made for each seed or learned in training."""
    rewards = {name: {"kind": name} for name in ("similarity", "random_reward", "online")}
    arms = {name: {"reward": name} for name in rewards}
    params = parse_params({**MINIMAL, "rewards": rewards, "arms": arms}, "params.yaml")
    seeds = {"random_reward": (0, 1)}
    made = {name: (params.rewards[name], seeds.get(name), 1) for name in rewards}
    StoredRewards.write(tmp_path, made)
    registered: list[tuple[str, str | None]] = []
    run: Any = SimpleNamespace(
        log_metrics=lambda _: None,
        log_model=lambda *_, **__: "models:/own",
        register=lambda name, source, tags, alias: registered.append((tags["reward"], alias)),
    )
    train_reward.track(run, dict(params), Output(tmp_path))
    assert registered == [("similarity", "similarity")]


def test_observations_instead_of_captions(project: Project) -> None:
    project.change({"rewards.preference.input": "observation", "rewards.preference.observations_per_caption": 4})
    project.run("train-reward")
    model = RewardModel.load(project.output("train-reward") / "preference")
    assert model.input == "observation"
    assert model.embeddings.shape[1] == 0
    project.change({"caption.segment_length": 2})
    project.run("caption", "annotate")
    said = (
        r'^rewards\.preference: .* "observation" .* caption\.segment_length is 2\. Set it to 1, or input to caption\.$'
    )
    with pytest.raises(ParamsError, match=said):
        project.run("train-reward")
    with pytest.raises(ParamsError, match=said):  # before anything is collected
        check_run(project.params, "collect")


def test_preferences_of_other_captions(project: Project) -> None:
    project.change({"caption.segment_length": 2})
    project.run("caption")
    with pytest.raises(DataError, match=r"preferences: was made with caption\.segment_length 1, but it is 2\."):
        project.run("train-reward")
    project.change({"caption.segment_length": 1, "collect.steps": 2000})
    project.run("collect", "caption")
    with pytest.raises(
        DataError, match=r"preferences: was not made from the captions in .*Run laurel annotate again\."
    ):
        project.run("train-reward")
    project.run("annotate", "train-reward")


def test_captions_of_other_trajectories(project: Project) -> None:
    project.change({"collect.steps": 2000})
    project.run("collect")
    with pytest.raises(
        DataError, match=r"captions: was not made from the trajectories in .*Run laurel caption again\."
    ):
        project.run("train-reward")


def test_a_warning_about_the_environment_is_told_once_by_the_check_and_by_the_stage(tmp_path: Path) -> None:
    """The check makes the adapter twice, and each control of a seed in a process of its own."""
    bare = {"env": {"id": "Pendulum-v1"}, "collect.steps": 400, "annotate.probe": {"success_questions": 1}}
    goals = {"annotate.embedding": {"goal": "It stands.", "anti_goal": "It hangs."}}
    arms = {"arms": ["extrinsic", "random_reward", "preference"]}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **bare, **goals, **arms})
    project.run("collect", "caption", "annotate")
    for command in (["check"], ["train-reward"]):
        done = project.laurel(*command)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Pendulum-v1 has no adapter") == 1, done.stderr
