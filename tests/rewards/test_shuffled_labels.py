"""The control of a reward: the same labels, each given to something else, whichever method the reward is of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.data.captions import read_vocabulary
from laurel.envs import adapter_for
from laurel.errors import DataError, ParamsError
from laurel.params import EnvParams, parse_params
from laurel.params.arm_infos import arm_infos
from laurel.params.rewards import method_of
from laurel.rewards.base import Steps
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.goals import GoalTable
from laurel.rewards.methods.outcome import OutcomeTable
from laurel.rewards.stored import StoredRewards
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project

LEARNABLE = ("preference", "text", "score", "outcome", "goals")
SEEDS = tuple(range(4))
MADE = {
    **UNTRACKED,
    "env": {"id": "MiniGrid-DoorKey-5x5-v0"},
    "collect.steps": 2000,
    "annotate.annotator": "scripted",
    "annotate.n_pairs": 300,
    "agent.seeds": list(SEEDS),
    "arms": {name: {"reward": name} for kind in LEARNABLE for name in (kind, f"not_{kind}")},
    "rewards": {
        "preference": {"ensemble": 2, "hidden": [16], "max_epochs": 40},
        **{f"not_{name}": {"kind": "shuffled_labels", "of": name} for name in LEARNABLE},
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("shuffled") / "p", MADE)
    project.run("collect", "caption", "annotate", "train-reward")
    return project


def paid(project: Project, name: str, seed: int = 0) -> Any:
    """Return the reward of each caption as the last of its own episode (V,); NaN if it has none."""
    texts = read_vocabulary(project.output("caption")).texts
    adapter = RewardContext.of(project.params).adapter
    reward = StoredRewards.read(project.output("train-reward")).load(name, seed, adapter, 0.0)
    reward.begin(len(texts))
    ids, ends = np.arange(len(texts))[None], np.ones((1, len(texts)), dtype=np.bool_)
    nothing: Any = None
    found = np.array(reward.pay(Steps(nothing, ids, texts, ends, ends, ~ends))[0], dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def agreement(project: Project, name: str, seed: int = 0) -> float:
    """Return the share of captions of unlike progress that are paid in the right order; an equal pay is half right."""
    texts = read_vocabulary(project.output("caption")).texts
    adapter = RewardContext.of(project.params).adapter
    if name.removeprefix("not_") == "outcome":
        truth = [float(adapter.says_success(text)) for text in texts]
    else:
        truth = [adapter.oracle(text) or 0.0 for text in texts]
    values = paid(project, name, seed)
    if name.endswith("goals"):
        values = np.nan_to_num(values, nan=-1.0)  # no goal, no pay
    judged = np.isfinite(values)
    values, truth = values[judged], np.array(truth)[judged]
    better = np.greater.outer(truth, truth)
    right = np.greater.outer(values, values) + np.equal.outer(values, values) / 2
    return float(right[better].mean())


@pytest.mark.parametrize("name", LEARNABLE)
def test_the_control_of_a_learnable_method_loses_its_agreement_with_the_truth(made: Project, name: str) -> None:
    accuracy = agreement(made, name)
    assert accuracy > 0.85
    controls = [agreement(made, f"not_{name}", seed) for seed in SEEDS]
    assert len({paid(made, f"not_{name}", seed).tobytes() for seed in SEEDS}) > 1, "other seeds have other labels"
    assert 0.25 < np.mean(controls) < 0.75


@pytest.mark.parametrize("name", ["score", "outcome"])
def test_what_is_given_to_other_texts_is_the_same(made: Project, name: str) -> None:
    paid_rewards, other = paid(made, name), paid(made, f"not_{name}")
    answered = np.isfinite(paid_rewards)
    assert answered.sum() > 3
    assert sorted(paid_rewards[answered]) == pytest.approx(sorted(other[np.isfinite(other)]))
    assert paid_rewards[answered].tolist() != other[answered].tolist()


def test_as_many_other_captions_are_goals(made: Project) -> None:
    rewards = made.output("train-reward")
    table = GoalTable.load(rewards / "goals")
    others = [GoalTable.load(rewards / "not_goals" / f"seed-{seed}") for seed in SEEDS]
    assert {len({*other.goals}) for other in others} == {len(table.goals)}
    assert all({*other.goals} <= {*table.captions} and other.contexts == table.contexts for other in others)
    assert len({tuple(other.goals) for other in others}) > 1
    reads = [table.captions.index(goal) for goal in others[0].goals]
    assert np.diag(others[0].similarity[reads]) == pytest.approx(1.0), "the captions that read like the new goals"


def test_a_control_asks_and_makes_no_more_than_its_reward_does(made: Project) -> None:
    scores = parse_params({**MINIMAL, "arms": {"x": {"reward": "not"}}, "rewards": shuffled("score")}, "p")
    assert scores.judges == (), "no annotator of pairs is asked"
    assert RewardContext.of(scores).label_sets(scores.rewards["not"]) == 1
    pairs = parse_params({**MINIMAL, "arms": {"x": {"reward": "not"}}, "rewards": shuffled("preference")}, "p")
    assert pairs.judges == ("main",)
    infos = {info.name: info for info in arm_infos(made.params.arms, made.params.rewards, made.params.agent)}
    assert {infos[f"not_{name}"].role for name in LEARNABLE} == {"control"}
    assert infos["not_score"].label.startswith("the reward score made from labels permuted over")


def shuffled(of: str, **settings: Any) -> dict[str, Any]:
    return {of: settings, "not": {"kind": "shuffled_labels", "of": of}}


@pytest.mark.parametrize(
    ("of", "settings", "annotate", "why"),
    [
        ("oracle", {}, {}, "cannot be shuffled, as its kind is oracle, which has no labels to shuffle"),
        ("not", {"kind": "shuffled_labels", "of": "score"}, {}, "as its kind is shuffled_labels"),
        ("text", {"path": "mine"}, {}, "cannot be shuffled, as it has a path"),
        ("online", {}, {}, "set {kind: online, shuffled: true} there"),
        ("goals", {}, {"annotator": "huggingface"}, r"Set rewards\.goals\.form to closed"),
    ],
)
def test_what_has_no_labels_is_refused_in_a_sentence(
    of: str, settings: dict[str, Any], annotate: dict[str, Any], why: str
) -> None:
    rewards = {"control": {"kind": "shuffled_labels", "of": of}, of: settings}
    content = {**MINIMAL, "arms": {"x": {"reward": "control"}}, "rewards": rewards, "annotate": annotate}
    params = parse_params(content, "params.yaml")
    context = replace(RewardContext.of(params), env=EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
    with pytest.raises(ParamsError, match=why):
        method_of(params.rewards["control"]).check(context, adapter_for(context.env))


CONTROL = {"kind": "shuffled_labels", "of": "b"}


def test_labels_of_itself_are_no_labels() -> None:
    content = {**MINIMAL, "arms": {"x": {"reward": "a"}}, "rewards": {"a": CONTROL, "b": {**CONTROL, "of": "a"}}}
    with pytest.raises(ParamsError, match=r"^params\.yaml: rewards: .* which is a cycle"):
        parse_params(content, "params.yaml")


def test_an_artefact_of_before_is_named(made: Project, tmp_path: Path) -> None:
    copy = made.copy(tmp_path / "p")
    place = copy.output("train-reward") / "not_score/seed-0"
    (place / "original.json").unlink()
    with pytest.raises(DataError, match=r"has no original\.json, .* Run laurel train-reward again"):
        paid(copy, "not_score")


def test_tables_are_shuffled_by_their_seed() -> None:
    texts = [f"You are at {n}." for n in range(20)]
    for table, values in (
        (ScoredCaptions.of(texts, np.arange(20, dtype=np.float32)), lambda made: list(made.known.values())),
        (OutcomeTable({text: n / 20 for n, text in enumerate(texts)}, [1] * 20), lambda made: [*made.answers.values()]),
    ):
        first, again, other = (values(table.shuffled(seed)) for seed in (0, 0, 1))
        assert first == again
        assert first != other
        assert sorted(first) == sorted(values(table))
