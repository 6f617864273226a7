"""Rewards beyond the learned one: arms as data, methods of other packages, sums, and runs that ask no annotator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from chat_server import chat_server

from installed import EXAMPLES
from laurel.data.captions import read_vocabulary
from laurel.data.manifest import read_manifest
from laurel.envs import adapter_for
from laurel.errors import ParamsError, PluginError, PromptError
from laurel.feedback.question import QUESTIONS
from laurel.llm.budget import BudgetError
from laurel.params import EnvParams, parse_params
from laurel.params.kinds import ALGORITHMS
from laurel.params.rewards import method_of
from laurel.params.training import AgentParams
from laurel.rewards.functions import CaptionReward, ScoredCaptions
from laurel.rewards.method import RewardContext
from laurel.rewards.stored import StoredRewards
from laurel.stages.description import described
from laurel.stages.preflight import check_run
from laurel.training.engines import engine_of
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json


def examples_params(**changes: Any) -> dict[str, Any]:
    """Return changes that make a tiny run of examples/params.yaml."""
    content = yaml.safe_load((EXAMPLES / "params.yaml").read_text())
    arms = {"arms": content["arms"], "rewards": content["rewards"]}
    return {**UNTRACKED, **arms, "agent.seeds": [0], "agent.steps": 512, **changes}


def rewards_paid(project: Project, arm: str) -> list[float | None]:
    import pyarrow.parquet as pq

    curve = pq.read_table(project.output("train-agents") / arm / "seed-0" / "curve.parquet").to_pylist()
    return [row["share_paid"] for row in curve]


def test_methods_and_an_algorithm_of_another_package_train_arms(examples: Path, tmp_path: Path) -> None:
    """One pays per step, one at the end of episodes; neither asks an annotator nor fits anything."""
    params = examples_params()
    params["arms"] |= {
        "novelty": {"reward": "novelty"},
        "rnd": {"reward": "rnd", "shaping": {"beta": 0}},
        "potential": {"reward": "novelty", "shaping": {"form": "potential"}},
        "outcome": {"reward": "outcome"},
        "goals": {"reward": "goals"},
    }
    project = Project.create(tmp_path / "p", params)
    project.run()
    assert read_json(project.output("annotate") / "manifest.json")["counts"] == {"pairs": 0}
    assert {*read_json(project.output("train-reward") / "rewards.json")} == {
        *("forward", "arrived", "quick"),
        *("novelty", "rnd", "outcome", "goals"),
    }
    forward, arrived, both = (rewards_paid(project, arm) for arm in ("forward", "arrived", "both"))
    assert all(share and 0.1 < share < 0.6 for share in forward)
    assert max(share or 0 for share in arrived) < 0.1
    assert all(share and share >= 0.1 for share in both)
    novelty, rnd, potential, outcome, goals = (
        rewards_paid(project, arm) for arm in ("novelty", "rnd", "potential", "outcome", "goals")
    )
    assert any(goals), "a goal is reached now and then"
    assert max(share or 0 for share in goals) < 0.5
    assert all(share == 1 for share in (*novelty, *rnd))
    assert all(share and share > 0.5 for share in potential)
    assert max(share or 0 for share in outcome) < 0.1
    metrics = read_json(project.output("evaluate") / "metrics.json")
    roles = {arm: entry["role"] for arm, entry in metrics["arms"].items()}
    methods = ["forward", "arrived", "both", "linear", "outcome", "goals"]
    controls = ["novelty", "rnd", "potential"]
    assert roles == {
        "extrinsic": "baseline",
        **dict.fromkeys(methods, "method"),
        **dict.fromkeys(controls, "control"),
    }
    assert metrics["arms"]["forward"]["label"] == "a bonus for each step forward"
    assert metrics["algorithm"] == "ppo, linear"
    assert (project.output("evaluate") / "report.html").exists()


def test_an_algorithm_of_another_package_with_another_name_than_its_entry_point_is_named(
    examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ALGORITHMS.load("linear", "agent.algorithm").Params, "algorithm", "liner")
    with pytest.raises(ParamsError, match=r"algorithm = 'liner', which must be the name of its entry point, 'linear'"):
        AgentParams(seeds=(0,), steps=1, algorithm="linear")


def test_a_check_of_another_packages_algorithm_that_returns_its_refusal_is_named(
    examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, adapter = AgentParams(seeds=(0,), steps=1, algorithm="linear"), adapter_for(EnvParams(id="Blackjack-v1"))
    engine_of(agent).check(adapter)
    refused = "only Discrete actions"
    monkeypatch.setattr(ALGORITHMS.load("linear", "agent.algorithm"), "check", lambda self, adapter: refused)
    with pytest.raises(PluginError, match=f"Linear: its check returned '{refused}', but it must return nothing"):
        engine_of(agent).check(adapter)


def test_a_method_of_another_package_asks_a_chat_model_for_ratings(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rating(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        caption = question.rpartition("0 to 10? ")[2]
        return question, [], f'{{"score": {7 if "forward" in caption else 2}}}'

    with chat_server() as server:
        server.plan = rating
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        arms = {
            "arms": {"rated": {"reward": "rated"}, "control": {"reward": "misrated"}},
            "rewards": {"misrated": {"kind": "shuffled_labels", "of": "rated"}},
            "agent.seeds": [*range(8)],
        }
        project = Project.create(tmp_path / "p", {**UNTRACKED, **arms, **asking})
        monkeypatch.chdir(project.path)
        project.run("collect", "caption", "annotate", "train-reward")
        asked = len(server.bodies)
        manifests = [read_manifest(project.output("train-reward"))]
        project.run("train-reward")
        manifests.append(read_manifest(project.output("train-reward")))
        assert len(server.bodies) == asked, "answers are kept"
        assert [manifest["usage"]["calls"] for manifest in manifests] == [asked, 0]
        elsewhere = {"annotate.budget.max_calls": asked - 1, "annotate.language_model.responses": "other.db"}
        short = project.copy(tmp_path / "short", elsewhere, without=["annotate", "train-reward"])
        with pytest.raises(BudgetError, match=f"{asked - 1} calls"):
            short.run("annotate", "train-reward")
    texts = read_vocabulary(project.output("caption")).texts
    assert asked == len(texts)
    scored, _ = ScoredCaptions.load(project.output("train-reward") / "rated")
    ahead = {text: "forward" in text for text in texts}
    assert len({*ahead.values()}) == 2
    assert all((scored.known[text] > 0) == ahead[text] for text in texts)
    stored, adapter = StoredRewards.read(project.output("train-reward")), RewardContext.of(project.params).adapter
    controls = [cast(CaptionReward, stored.load("misrated", seed, adapter, 0.0)) for seed in range(8)]
    given = [control.scored(texts).tolist() for control in controls]
    assert all(sorted(values) == sorted(scored.known.values()) for values in given), "the same ratings"
    right = [values == [scored.known[text] for text in texts] for values in given]
    assert sum(right) < 5, "of other captions, but by chance"


@pytest.mark.usefixtures("examples")
def test_a_caption_whose_rating_could_not_be_read_has_the_mean_of_the_others(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the worst caption, which a rating of 0 would make it."""

    def some(body: dict[str, Any]) -> tuple[str, list[str], str]:
        caption = body["messages"][0]["content"].rpartition("0 to 10? ")[2]
        return "", [], "No." if "forward" in caption else '{"score": 7}'

    with chat_server() as server:
        server.plan = some
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        changes = {**UNTRACKED, **asking, "annotate.max_failure_rate": 0.9, "arms": {"rated": {"reward": "rated"}}}
        project = finished.copy(tmp_path / "p", changes, without=["annotate", "train-reward"])
        monkeypatch.chdir(project.path)
        project.run("annotate", "train-reward")
    scored, _ = ScoredCaptions.load(project.output("train-reward") / "rated")
    assert 0 < sum("forward" in text for text in scored.known) < len(scored.known)
    assert set(scored.known.values()) == {0.0}, "all others are equally good"


def test_a_prompt_that_a_method_of_another_package_lacks_is_missed_before_the_run(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": "http://localhost:9/v1"}}
    params = Project.create(tmp_path / "p", {**UNTRACKED, **asking, "arms": {"rated": {"reward": "rated"}}}).params
    check_run(params)
    form = QUESTIONS.load("rating", "rewards.rated").form
    monkeypatch.setattr(QUESTIONS.load("rating", "rewards.rated"), "form", replace(form, folder=tmp_path))
    with pytest.raises(PromptError, match="zero_to_ten"):
        check_run(params)


def test_what_a_method_of_another_package_asks_is_estimated_or_said_to_be_unknown(
    examples: Path, finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": "http://localhost:9/v1"}}
    project = finished.copy(tmp_path / "p", {**UNTRACKED, **asking, "arms": {"rated": {"reward": "rated"}}})
    outputs = {
        "trajectories": project.output("collect"),
        "captions": project.output("caption"),
        "reward": tmp_path / "-",
    }
    n_captions = len(read_vocabulary(outputs["captions"]).texts)
    said = described(project.params, adapter_for(project.params.env), outputs)
    assert f"rated: tiny is asked for ratings: {n_captions} calls at most without follow-ups, cost unknown" in said
    monkeypatch.delattr(method_of(project.params.rewards["rated"]).__class__, "estimate")
    said = described(project.params, adapter_for(project.params.env), outputs)
    assert "rated: asks a chat model, at a cost that its method does not estimate" in said
    encoder = finished.copy(tmp_path / "q", {**UNTRACKED, "arms": {"rated": {"reward": "rated"}}})
    assert "rated: " not in described(encoder.params, adapter_for(encoder.params.env), outputs)


def test_a_method_of_another_package_without_labels_has_no_control(examples: Path) -> None:
    content = {"arms": {"x": {"reward": "wrong"}}, "rewards": {"wrong": {"kind": "shuffled_labels", "of": "forward"}}}
    params = parse_params({**MINIMAL, **content}, "params.yaml")
    context = RewardContext.of(params)
    with pytest.raises(ParamsError, match="labels of forward cannot be shuffled, as its kind is forward, which has no"):
        method_of(params.rewards["wrong"]).check(context, context.adapter)


def test_arms_of_one_reward_with_other_shaping_and_other_algorithms(finished: Project, tmp_path: Path) -> None:
    arms = {
        "preference": None,
        "no_counts": {"reward": "preference", "shaping": {"beta": 0.0}},
        "dqn": {"reward": "preference", "agent": {"algorithm": "dqn", "dqn": {"hidden": [8], "learning_starts": 64}}},
    }
    changes = {**UNTRACKED, "arms": arms, "agent.seeds": [0], "agent.steps": 512}
    project = finished.copy(tmp_path / "p", changes, without=["train-agents", "evaluate"])
    project.run("train-agents", "evaluate")
    places = {arm: project.output("train-agents") / arm / "seed-0" for arm in arms}
    weights = {arm: (place / "model.safetensors").read_bytes() for arm, place in places.items()}
    assert len({*weights.values()}) == 3
    metrics = read_json(project.output("evaluate") / "metrics.json")
    assert metrics["algorithm"] == "ppo, dqn"
    assert metrics["arms"]["no_counts"]["label"] == "the learned reward; shaping.beta 0.0"
    settings = "agent.algorithm dqn; agent.dqn.hidden [8]; agent.dqn.learning_starts 64"
    assert metrics["arms"]["dqn"]["label"] == f"the learned reward; {settings}"
    alone = finished.copy(tmp_path / "q", changes, without=["train-agents", "evaluate"])
    alone.change({"arms": ["preference"]})
    alone.run("train-agents")
    assert (alone.output("train-agents") / "preference/seed-0/model.safetensors").read_bytes() == weights["preference"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"arms": {"x": {"shaping": {}}}}, "arms.x.reward is missing; it has no default."),
        ({"arms": {"x": {"reward": "preference", "shaping": {"bta": 1}}}}, "arms.x.shaping.bta is unknown."),
        (
            {"arms": {"x": {"reward": None, "agent": {"steps": 3}}}},
            'names "steps", but an arm may only set',
        ),
        ({"arms": {"a/b": {"reward": None}}}, 'is "a/b", but must be made of letters, digits, _ and -.'),
        (
            {"rewards": {"preference": {"ensembel": 3}}},
            'preference.ensembel is unknown. Did you mean "ensemble"?',
        ),
        ({"rewards": {"mine": {}}}, 'rewards.mine.kind: there is no reward method "mine".'),
    ],
)
def test_errors_in_an_arm_or_reward_are_reported(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParamsError) as refused:
        parse_params({**MINIMAL, **content}, "params.yaml")
    assert sentence in str(refused.value)
