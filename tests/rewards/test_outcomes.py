"""Outcomes are asked about once each, with examples; agents are paid for them at the ends of episodes alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import chat_server
from sayings import rollout_of

from laurel.data.captions import Vocabulary, read_vocabulary
from laurel.data.trajectories import Position
from laurel.envs import adapter_for
from laurel.errors import AnnotationError, DataError
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.questions.outcome import Example, OutcomeQuestion
from laurel.params import EnvParams, Params, parse_params
from laurel.params.rewards import OutcomeParams
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.functions import WeightedSum
from laurel.rewards.method import RewardContext
from laurel.rewards.methods import outcome
from laurel.rewards.methods.outcome import OutcomeJudge, OutcomeReward, Outcomes, OutcomeTable, collected_outcomes
from laurel.rewards.paying import RewardCalculator
from laurel.stages import train_reward
from laurel.stages.description import described
from laurel.stages.pipeline import STAGE
from laurel.stages.project import places
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

GAME = {
    **UNTRACKED,
    "env": {"id": "laurel/Ultimatum-v0", "kwargs": {"objective": "low_percentage"}},
    "arms": {"outcome": {"reward": "outcome", "extrinsic": 0.0}},
    "rewards": {},
    "annotate.annotator": "scripted",
    "collect.steps": 400,
}


def made(path: Path, **changes: Any) -> Project:
    project = Project.create(path, {**GAME, **changes})
    project.run("collect", "caption", "annotate", "train-reward")
    return project


def train(project: Project, responses: Path) -> None:
    """Run train-reward as a pipeline's step does."""
    stage = STAGE["train-reward"]
    places = project.inputs(stage.name)
    train_reward.run(**stage.given(project.params), **places, output=project.output(stage.name), responses=responses)


def quality(project: Project, name: str = "outcome") -> dict[str, Any]:
    return read_json(project.output("train-reward") / name / "quality.json")


def test_a_simulated_judge_says_so_and_errs_as_often_as_it_should(tmp_path: Path) -> None:
    rewards = {"truth": {"kind": "outcome", "judge": "truth"}}
    arms = {"outcome": {"reward": "outcome"}, "truth": {"reward": "truth"}}
    project = made(tmp_path / "p", rewards=rewards, arms=arms, **{"annotate.scripted": {"error_rate": 0.2}})
    assert read_json(project.output("annotate") / "manifest.json")["counts"] == {"pairs": 0}, "no pair is asked about"
    asked, truth = quality(project), quality(project, "truth")
    assert (asked["judge"], asked["simulated"]) == ("scripted (simulated, errors 0.2)", True)
    assert asked["outcomes"] == asked["accuracy"]["of"] == 8 * 11 * 2
    assert asked["accuracy"]["ci95"][0] < 0.8 < asked["accuracy"]["ci95"][1]
    assert truth["accuracy"]["value"] == 1


def test_a_chat_model_sees_examples_with_explanations_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        share, verb = re.findall(r'The report: "The pot is .*\((\d+)%\)\. You (\w+)', question)[0]
        right = (int(share) >= 30) == (verb == "accept")
        return question, [], f'{{"analysis": "", "goal_reached": {"true" if right else "false"}}}'

    shown = "The pot is $1, and your share would be $0 (0%). You accept: you get $0, the proposer gets $1."
    example = {"episode": shown, "reached": False, "why": "It is below 30%."}
    with chat_server() as server:
        server.plan = answer
        (tmp_path / "p").mkdir()
        monkeypatch.chdir(tmp_path / "p")
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        rewards = {"outcome": {"examples": [example], "labels": 10}}
        project = Project.create(tmp_path / "p", {**GAME, "rewards": rewards, **asking})
        project.run("collect", "caption", "annotate")
        train(project, tmp_path / "bucket")
        adapter = adapter_for(project.params.env)
        said = described(project.params, adapter, places(project.path))
        assert "outcome: tiny is asked about outcomes: 176 calls at most without follow-ups, cost unknown" in said
        asked_with = lambda _, asking, items, what: asking.messages(items[0])[-1].content  # noqa: E731
        with monkeypatch.context() as patched:
            patched.setattr(ChatAnnotator, "asked", asked_with)
            said = described(project.params, adapter, places(project.path))
        assert said.count("Goal reached:") == 11, "labelled outcomes are paid for in each question"
        asked = [body["messages"][-1]["content"] for body in server.bodies]
        project.params.annotate.language_model.store.unlink()  # the machine of a step is discarded with its disk
        train(project, tmp_path / "bucket")
        assert len(server.bodies) == len(asked), "answers are kept"
    assert len(asked) == 8 * 11 * 2 - 10
    assert all("Goal reached: no. It is below 30%." in question for question in asked)
    assert all(question.count("Goal reached:") == 11 for question in asked)
    found = quality(project)
    assert (found["judge"], found["simulated"], found["labelled"]) == ("tiny", False, 10)
    assert (found["accuracy"]["value"], found["accuracy"]["of"]) == (1, 165), "without the example"


def test_the_estimate_is_of_outcomes_that_were_collected_with_these_params(tmp_path: Path) -> None:
    asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny"}}
    project = Project.create(tmp_path / "p", {**GAME, "env": {"id": "laurel/GridWorld-v0"}, **asking})

    def said() -> str:
        return described(project.params, adapter_for(project.params.env), places(project.path))

    later = "is asked about each distinct outcome of the collected episodes: calls and cost can be estimated once"
    assert f"outcome: tiny {later}" in said()
    project.run("collect", "caption")
    captions, trajectories = project.output("caption"), project.output("collect")
    outcomes = collected_outcomes(trajectories, captions, adapter_for(project.params.env), 1).texts
    assert len(outcomes) < len(read_vocabulary(captions).texts)
    assert f"outcome: tiny is asked about outcomes: {len(outcomes)} calls at most" in said()
    project.change({"collect.steps": 300})
    assert f"outcome: tiny {later}" in said()


def test_a_classifier_learns_from_as_many_labels(tmp_path: Path) -> None:
    rewards = {name: {"kind": "outcome", "judge": "supervised", "labels": n} for name, n in (("few", 10), ("more", 80))}
    arms = {name: {"reward": name, "role": "control"} for name in rewards}
    project = made(tmp_path / "p", rewards=rewards, arms=arms)
    few, more = (quality(project, name)["accuracy"]["value"] for name in rewards)
    assert quality(project, "few")["accuracy"]["of"] == 8 * 11 * 2 - 10
    assert more > 0.6
    assert more > few - 0.05


@pytest.mark.parametrize("judge", ["supervised", "annotator"])
def test_without_success_there_are_no_true_answers(judge: Any) -> None:
    """A classifier of none said yes to everything, under the name of one with ten labels."""
    context = RewardContext.of(parse_params({**MINIMAL, "annotate": {"annotator": "embedding"}}, "params"))
    adapter = adapter_for(EnvParams(id="Acrobot-v1"))
    settings = OutcomeParams(judge=judge, labels=10)
    assert outcome.METHOD(settings).check(context, adapter) is None
    adapter.succeeded = lambda *_: None  # type: ignore[method-assign]
    adapter.success_captions = tuple  # type: ignore[method-assign]
    assert "no true answers" in str(outcome.METHOD(settings).check(context, adapter))
    assert outcome.METHOD(OutcomeParams()).check(context, adapter) is None
    unknown = Outcomes(["a", "b"], [1, 2], [None, None])
    with pytest.raises(DataError, match="no true answers"):
        outcome.answered(unknown, OutcomeParams(judge="supervised", labels=10), context, adapter, 0)


@pytest.mark.parametrize("reached", [False, True])
def test_a_classifier_of_labels_that_are_all_the_same_says_the_same_of_all(reached: bool) -> None:
    context = RewardContext.of(Params.model_validate(MINIMAL))
    judge = outcome.SupervisedJudge(OutcomeParams(judge="supervised", labels=2), context)
    assert judge.answers(["c", "d"], {"a": reached, "b": reached}) == [float(reached)] * 2


def test_the_report_names_who_answers() -> None:
    assert "by the annotator" in outcome.METHOD(OutcomeParams()).summary
    assert "by a classifier" in outcome.METHOD(OutcomeParams(judge="supervised", labels=1)).summary
    assert "by the environment" in outcome.METHOD(OutcomeParams(judge="truth")).summary


def test_a_judge_that_cannot_tell_is_not_right_about_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsure(OutcomeJudge):
        name = "unsure"

        def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
            return [0.5, 0.5, 0.9, 0.1]

    monkeypatch.setattr(outcome, "outcome_judge", lambda *_: Unsure())
    outcomes = Outcomes(["a", "b", "c", "d"], [1] * 4, [False, False, False, False])
    context = RewardContext.of(Params.model_validate(MINIMAL))
    adapter = adapter_for(context.env)
    _, quality = outcome.answered(outcomes, OutcomeParams(), context, adapter, 0)
    assert (quality["accuracy"]["value"], quality["accuracy"]["of"]) == (0.25, 4)
    assert quality["yes"] == 0.25


def test_an_outcome_without_an_answer_is_left_out_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    class Partly(OutcomeJudge):
        name = "partly"

        def answers(self, texts: Sequence[str], labelled: Mapping[str, bool]) -> list[float | None]:
            asked.append((*texts, *labelled))
            return [None if text == "b" else 0.9 for text in texts]

    monkeypatch.setattr(outcome, "outcome_judge", lambda *_: Partly())
    context = RewardContext.of(Params.model_validate(MINIMAL))
    adapter = adapter_for(context.env)
    outcomes = Outcomes([*"abcdefgh"], [*range(1, 9)], [False] * 8)
    for seed in range(3):
        table, quality = outcome.answered(outcomes, OutcomeParams(labels=2), context, adapter, seed)
        assert table.counts == ["_abcdefgh".index(text) for text in table.answers]
        known = "b" in asked[seed][6:]
        assert (quality["labelled"], quality["unanswered"], "b" in table.answers) == (2, int(not known), known)
        assert sorted(asked[seed]) == [*"abcdefgh"], "nothing is asked that is known"
    assert len({frozenset(texts[6:]) for texts in asked}) > 1, "each seed has its own labels"


@pytest.mark.parametrize("annotator", ["openai", "embedding", "scripted"])
def test_nothing_is_asked_where_all_outcomes_are_labelled(annotator: str) -> None:
    """A chat model's budget was said to allow for no question, though it had no limit."""
    annotate = {"annotator": annotator, "openai": {"model": "toy", "base_url": "http://127.0.0.1:1/v1"}}
    context = RewardContext.of(parse_params({**MINIMAL, "annotate": annotate}, "params.yaml"))
    outcomes = Outcomes(["a", "b"], [3, 1], [False, True])
    table, quality = outcome.answered(outcomes, OutcomeParams(labels=5), context, adapter_for(context.env), 0)
    assert (quality["labelled"], quality["unanswered"], quality["accuracy"]) == (2, 0, None)
    assert [*table.answers] == ["a", "b"]


def test_a_classifier_is_named_by_the_labels_that_there_are() -> None:
    context = RewardContext.of(parse_params({**MINIMAL, "annotate": {"annotator": "embedding"}}, "params.yaml"))
    adapter, settings = adapter_for(context.env), OutcomeParams(judge="supervised", labels=50)
    for texts, name in (("ab", "supervised (2 labels)"), ("a", "supervised (1 label)")):
        outcomes = Outcomes([*texts], [1] * len(texts), [True, False][: len(texts)])
        assert outcome.answered(outcomes, settings, context, adapter, 0)[1]["judge"] == name


def test_only_the_end_of_an_episode_is_rewarded() -> None:
    reward = OutcomeReward({"b c": 1.0, "c": 0.25}, 2)
    reward.begin(2)
    texts, rows = ["a", "b", "c"], [[0, 2], [1, 0], [2, -1], [2, 2]]
    rollout = rollout_of(
        rows, terminated=[[0, 1], [0, 0], [1, 0], [0, 0]], truncated=[[0, 0], [0, 0], [0, 0], [0, 1]],
        valid=[[1, 1], [1, 0], [1, 1], [0, 1]],
    )  # fmt: skip
    ends = rollout.valid, rollout.terminated, rollout.truncated
    paid = reward.pay(Steps(rollout.transitions, np.array(rows), texts, *ends))
    expected = np.full((4, 2), UNPAID)
    expected[0, 1], expected[2, 0], expected[3, 1] = 0.25, 1.0, 0.25
    assert np.array_equal(paid, expected)
    assert reward.unpaid == 0
    reward.begin(1)
    rollout = rollout_of([[0]], terminated=[[1]])
    ends = rollout.valid, rollout.terminated, rollout.truncated
    assert reward.pay(Steps(rollout.transitions, np.array([[0]]), texts, *ends)) == UNPAID
    assert (reward.unpaid, reward.unseen) == (1, 0), "it was met, but earned nothing"


@pytest.mark.parametrize("weights", [None, (2.0,), (2.0, 0.5)])
def test_an_outcome_that_is_a_repeated_caption_is_paid_in_full(weights: tuple[float, ...] | None) -> None:
    """A pole that stands at an episode's limit, by a caption met hundreds of times, was paid next to nothing."""
    adapter = adapter_for(EnvParams(id="CartPole-v1"))
    rollout = rollout_of([[0]] * 5, truncated=[[0]] * 4 + [[1]])
    steps = replace(rollout.transitions, observation=np.zeros((5, 4), np.float32), next_observation=np.zeros((5, 4)))
    (standing,) = {adapter.describe(event) for event in adapter.encode(steps).tolist()}
    reward: Reward = OutcomeReward({standing: 0.75}, 1)
    if weights:  # as {outcome: 2}, or two judges' answers, in an arm
        reward = WeightedSum([(OutcomeReward({standing: 0.75}, 1), weight) for weight in weights])
    calculator = RewardCalculator(adapter, reward, ShapingParams(beta=3.0), 1)
    pay = calculator.pay(steps, rollout.valid, rollout.terminated, rollout.truncated)
    assert pay.shaped[:, 0].tolist() == [0, 0, 0, 0, 0.75 * sum(weights or (1.0,))]


def collected(monkeypatch: pytest.MonkeyPatch, steps: Sequence[tuple[int, int, int, int]], length: int) -> Outcomes:
    """Return the outcomes of steps: of each its episode, its caption, and whether it ends and whether it is solved."""
    episodes, captions, ended, solved = (np.array(column) for column in zip(*steps, strict=True))
    transitions = rollout_of(captions[:, None], extrinsic=solved[:, None], terminated=ended[:, None]).transitions
    position = Position(episodes, np.zeros(len(steps), np.int32))
    vocabulary = Vocabulary(["a", "b", "c"], np.ones(3, np.int64), np.zeros(3, np.int64), np.zeros(3, np.int32))
    monkeypatch.setattr(outcome, "read_trajectories", lambda _: [(transitions, position)])
    monkeypatch.setattr(outcome, "read_captions", lambda _: [captions])
    monkeypatch.setattr(outcome, "read_vocabulary", lambda _: vocabulary)
    return collected_outcomes(Path(), Path(), adapter_for(EnvParams(id="MiniGrid-Empty-5x5-v0")), length)


def test_an_episode_that_collection_cut_is_no_part_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = collected(monkeypatch, [(0, 0, 0, 1), (1, 1, 0, 0), (1, 2, 1, 0)], 3)
    assert (found.texts, found.counts, found.truth) == (["b c"], [1], [False])


def test_an_outcome_is_a_success_if_most_of_its_episodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [(0, 0, 1, 1), (1, 0, 1, 0), (2, 1, 1, 1), (3, 1, 1, 1), (4, 1, 1, 0), (5, 2, 1, 0)]
    found = collected(monkeypatch, ends, 2)
    assert (found.texts, found.counts, found.truth) == (["a", "b", "c"], [2, 3, 1], [False, True, False])


def test_outcomes_of_longer_episodes_are_their_last_captions(rewarded: Project) -> None:
    places = rewarded.output("collect"), rewarded.output("caption")
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    single, three = (collected_outcomes(*places, adapter, length) for length in (1, 3))
    ended = sum(single.counts)
    assert ended == sum(three.counts) > 20
    assert len(three.texts) > sum(count > 0 for count in single.counts)
    known = {text: truth for text, truth in zip(single.texts, single.truth, strict=True) if truth is not None}
    assert all(truth == adapter.says_success(text) for text, truth in known.items())


def test_a_table_is_stored_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    table = OutcomeTable({"a": 1.0, "b": 0.25}, [3, 0])
    table.save(tmp_path)
    assert OutcomeTable.load(tmp_path) == table
    (tmp_path / "outcomes.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"outcomes\.parquet"):
        OutcomeTable.load(tmp_path)


def test_answers_to_examples_without_explanations_keep_their_keys() -> None:
    adapter = adapter_for(EnvParams(id="laurel/MatrixGame-v0"))
    prompt = OutcomeQuestion.load_prompt("yes_no")

    def shared(*examples: Example) -> Any:
        return OutcomeQuestion(prompt, adapter, examples=examples).shared()["examples"]

    assert shared(Example("x", True)) == (("x", True),)
    assert shared(Example("x", True, "Because.")) == (("x", True, "Because."),)


def test_an_annotator_of_pairs_alone_is_refused(tmp_path: Path) -> None:
    members = [{"annotator": "scripted"}, {"annotator": "embedding"}]
    changes = {"annotate.annotator": "ensemble", "annotate.ensemble": {"members": members}}
    with pytest.raises(AnnotationError, match=r"the annotator ensemble judges pairs"):
        made(tmp_path / "p", **changes)
