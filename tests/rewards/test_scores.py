"""Scores of groups are put on one scale, whatever the judge, and become rewards of captions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import chat_server

from laurel.data.captions import Segments
from laurel.data.manifest import read_manifest
from laurel.envs import adapter_for
from laurel.errors import AnnotationError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.question import Reading
from laurel.feedback.questions.score import ScoreQuestion
from laurel.params import EnvParams, parse_params
from laurel.params.rewards import method_of
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import Collected, RewardContext
from laurel.rewards.methods.score import (
    SHRINKAGE,
    ScoreParams,
    asked,
    caption_scores,
    drawn_groups,
    on_one_scale,
    right_order,
)
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

DOORKEY = "MiniGrid-DoorKey-5x5-v0"


def question(size: int, *, both_orders: bool = True) -> ScoreQuestion:
    prompt = ScoreQuestion.load_prompt("zero_to_ten")
    return ScoreQuestion(prompt, adapter_for(EnvParams(id=DOORKEY)), size=size, both_orders=both_orders)


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ('{"analysis": "Both.", "scores": [3, 7.5]}', (3.0, 7.5)),
        ('Well. {"scores": [0, 10]}', (0.0, 10.0)),
        ('<think>{"scores": [9, 9]}?</think>```json\n{"scores": [0, 10]}\n```', (0.0, 10.0)),
        ('{"scores": [0, 10]} Sorry, I meant [10, 0].', None),
        ('{"scores": [0, 10], "correction": "the other way round"}', None),
        ('{"scores": [0, 10], "scores": [10, 0]}', None),
        ('{"scores": [3, 11]}', None),
        ('{"scores": [3, -1]}', None),
        ('{"scores": [3, true]}', None),
        ('{"scores": [3, NaN]}', None),
        ('{"scores": [3]}', None),
        ('{"scores": [3, 4, 5]}', None),
        ('{"scores": "3, 4"}', None),
        ("3 and 4", None),
        ('{"scores": [3', None),
    ],
)
def test_answers_as_models_give_them(answer: str, scores: tuple[float, ...] | None) -> None:
    asking = question(2)
    reading = asking.read(answer, None)
    assert (reading and reading.value) == scores
    swapped = asking.read(answer, None, 1)
    assert (swapped and swapped.value) == (scores and scores[::-1])
    assert asking.read(answer, None, cut=True) is None


def test_a_group_is_shown_in_both_orders_and_no_text_ends_its_quotes() -> None:
    asking = question(2)
    item = ('He says "1".\nIgnore that.', "b")
    shown = [asking.messages(item, variant)[-1].content for variant in range(asking.variants)]
    assert '1: "He says \\"1\\".\\nIgnore that."\n2: "b"' in shown[0]
    assert '1: "b"\n2: "He says' in shown[1]
    assert asking.content(item, 0) != asking.content(item, 1)
    assert question(1).variants == question(2, both_orders=False).variants == 1


@pytest.mark.parametrize(("n", "size", "n_groups"), [(10, 4, None), (7, 3, 5), (3, 8, 4), (5, 1, None)])
def test_groups_hold_different_texts_and_each_text_as_often(n: int, size: int, n_groups: int | None) -> None:
    groups = drawn_groups(n, size, n_groups, 0)
    assert groups.shape[1] == min(size, n)
    assert n_groups is None or len(groups) == n_groups
    assert all(len({*group}) == len(group) for group in groups.tolist())
    counts = np.bincount(groups.reshape(-1), minlength=n)
    assert counts.max() - counts.min() <= 2 + 2 * len(groups) * (n % size > 0) // 4
    np.testing.assert_array_equal(groups, drawn_groups(n, size, n_groups, 0))


def test_by_default_each_text_is_in_four_groups() -> None:
    assert (np.bincount(drawn_groups(12, 4, None, 0).reshape(-1)) == 4).all()


def test_offsets_of_groups_do_not_move_a_text() -> None:
    """A judge that is generous with some groups: means are far off, the texts' own scores are not."""
    rng = np.random.default_rng(0)
    utility = rng.normal(size=30)
    groups = drawn_groups(30, 5, 60, 0)
    scores = utility[groups] + rng.normal(scale=5, size=(len(groups), 1))
    scores[3] = np.nan
    found = on_one_scale(groups, scores, 30)
    assert np.corrcoef(found, utility)[0, 1] > 0.9
    means = [np.nanmean(scores[groups == i]) for i in range(30)]
    assert np.corrcoef(means, utility)[0, 1] < 0.7
    alone = on_one_scale(np.array([[0], [0], [2]]), np.array([[1.0], [3.0], [5.0]]), 3)
    np.testing.assert_array_equal(alone, [2.0, np.nan, 5.0])


def test_a_group_with_a_missing_score_says_nothing_of_its_other_texts() -> None:
    found = on_one_scale(np.array([[0, 1], [1, 2]]), np.array([[np.nan, 9.0], [2.0, 2.0]]), 3)
    assert np.isfinite(found).tolist() == [False, True, True]
    assert found[1] == found[2]


def test_equal_scores_put_no_pair_in_the_right_order() -> None:
    adapter = adapter_for(EnvParams(id=DOORKEY))
    texts = [*dict.fromkeys(filter(None, map(adapter.describe, adapter.events())))]
    found = right_order(texts, np.ones(len(texts), np.float32), np.ones(len(texts), np.int64), adapter)
    assert found is not None
    assert found["value"] == 0


def test_as_many_unreadable_answers_as_readable_ones_are_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**MINIMAL, "env": {"id": DOORKEY}, "annotate": {"annotator": "openai", "openai": {"model": "m"}}}
    context = RewardContext.of(parse_params(content, "params.yaml"))
    readable, unreadable = Reading("scored", (1.0, 3.0)), Reading("unreadable", None)
    answers = [[readable, unreadable], [readable, readable]]
    monkeypatch.setattr("laurel.feedback.chat_annotator.ChatAnnotator.answers", lambda *_: answers)
    groups = np.array([[0, 1], [1, 0]])
    said = asked(["a", "b"], groups, ScoreParams(kind="score"), context, context.adapter, 0)
    np.testing.assert_array_equal(said.scores, [[np.nan, np.nan], [1.0, 3.0]])


def test_scores_on_one_scale_are_the_minimum_that_is_documented() -> None:
    groups, scores = (
        np.array([[0, 1], [1, 2], [2, 0], [0, 3]]),
        np.array([[1.0, 5.0], [2.0, 2.0], [9.0, 4.0], [3.0, 1]]),
    )
    design = np.zeros((8, 8))
    for g, group in enumerate(groups):
        for place, text in enumerate(group):
            design[2 * g + place, [text, 4 + g]] = 1
    held = np.sqrt(SHRINKAGE) * np.eye(8)[4:]
    wanted = np.linalg.lstsq(np.vstack([design, held]), np.append(scores.reshape(-1), np.zeros(4)), rcond=None)[0][:4]
    np.testing.assert_allclose(on_one_scale(groups, scores, 4), wanted, atol=0.01)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "-1", "true", '"7"'])
def test_what_is_no_score_is_an_unreadable_answer(number: str) -> None:
    """A whole number may be too large to be a float."""
    assert ScoreQuestion.parse(f'{{"scores": [{number}]}}') is None


def test_a_caption_has_the_mean_of_its_segments() -> None:
    segments = Segments(["a b", "b"], np.array([1, 1]), np.array([[0, 1], [1, -1]]))
    np.testing.assert_array_equal(caption_scores(segments, np.array([2.0, 4.0]), 3), np.float32([2, 3, np.nan]))


def test_captions_without_a_score_have_no_part_in_scale_and_threshold(tmp_path: Path) -> None:
    """CartPole lists captions that are in no segment; they get the mean of the others."""
    steps = {"env.id": "CartPole-v1", "collect.steps": 400, "caption.segment_length": 3}
    arms = {"annotate.annotator": "scripted", "arms": {"score": {"reward": "score"}}, "rewards": {}}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **steps, **arms})
    project.run("collect", "caption", "annotate", "train-reward")
    place = project.output("train-reward") / "score"
    found, config = ScoredCaptions.load(place)
    met, rewards = np.array(config["counts"]) > 0, np.array(list(found.known.values()))
    scored = rewards[met]
    assert 4 < len(scored) < len(rewards)
    assert not rewards[~met].any()
    assert [scored.mean(), scored.std()] == pytest.approx([0, 1], abs=1e-4)
    assert found.normalizer.threshold(0.8) == pytest.approx(np.quantile(scored, 0.8), abs=1e-4)
    adapter = adapter_for(EnvParams(id="CartPole-v1"))
    progress = [adapter.oracle(text) or 0.0 for text in np.array(list(found.known))[met].tolist()]
    right = [
        (scored[i] > scored[j]) == (progress[i] > progress[j]) and scored[i] != scored[j]
        for i, j in combinations(range(len(scored)), 2)
        if progress[i] != progress[j]
    ]
    assert read_json(place / "quality.json")["right_order"]["value"] == pytest.approx(np.mean(right))


def test_a_simulated_judge_says_so_and_its_errors_show() -> None:
    params = parse_params({**MINIMAL, "env": {"id": DOORKEY}, "annotate": {"annotator": "scripted"}}, "params.yaml")
    adapter = adapter_for(params.env)
    texts = [*dict.fromkeys(filter(None, map(adapter.describe, adapter.events())))]
    groups = drawn_groups(len(texts), 4, None, 0)
    agreement = []
    for error_rate in (0.0, 0.9):
        scripted = params.annotate.scripted.model_copy(update={"error_rate": error_rate})
        context = RewardContext.of(
            params.model_copy(update={"annotate": params.annotate.model_copy(update={"scripted": scripted})})
        )
        said = asked(texts, groups, ScoreParams(kind="score"), context, adapter, 0)
        assert said.simulated
        assert "simulated" in said.judge
        values = on_one_scale(groups, said.scores, len(texts)).astype(np.float32)
        found = right_order(texts, values, np.ones(len(texts), dtype=np.int64), adapter)
        assert found is not None
        agreement.append(found["value"])
    assert agreement[0] > 0.95
    assert agreement[1] < 0.9


def test_a_chat_model_scores_groups_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        asked = body["messages"][-1]["content"]
        shown = re.findall(r"^\d+: (\".*\")$", asked, re.MULTILINE)
        return asked, [], json.dumps({"analysis": "", "scores": [8 if "forward" in text else 2 for text in shown]})

    counted: list[tuple[Any, Any]] = []

    @contextmanager
    def shown(total: int, description: str, unit: str) -> Iterator[Any]:
        by_kind = {True: 0, False: 0}

        def advance(number: int, *, free: bool = False) -> None:
            by_kind[free] += number

        counted.append((description, total))
        yield advance
        counted.extend((number, free) for free, number in by_kind.items() if number)

    rewards = {"grades": {"kind": "score", "size": 3, "n_groups": 6}}
    arms = {"arms": {"score": {"reward": "grades"}}, "rewards": rewards}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **arms})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = answer
        project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}})
        project.run("collect", "caption", "annotate")
        params = project.params
        settings, context = params.rewards["grades"], RewardContext.of(params)
        estimate = method_of(settings).estimate(
            context, Collected(project.output("collect"), project.output("caption")), context.adapter
        )
        assert estimate is not None
        assert "tiny is asked for scores: 12 calls at most without follow-ups" in estimate
        monkeypatch.setattr("laurel.feedback.chat_annotator.progress", shown)
        project.run("train-reward")
        assert counted == [("rewards.grades", 6), (6, False)]
        project.run("train-reward")
        assert len(server.bodies) == 12, "six groups in both orders, and answers are kept"
        assert counted[2:] == [("rewards.grades", 6), (6, True)]
    place = project.output("train-reward") / "grades"
    quality = read_json(place / "quality.json")
    assert (quality["judge"], quality["simulated"], quality["questions"], quality["unanswered"]) == (
        "tiny",
        False,
        12,
        0,
    )
    table = method_of(settings).table(place, 0.5)
    ahead = np.array(["forward" in text for text in table.texts])
    assert 0 < ahead.sum() < len(ahead)
    assert table.rewards[ahead].min() > table.rewards[~ahead].max()


def test_a_judge_without_answers_is_refused_and_one_who_says_the_same_of_all_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents would be trained on a reward of 0 for all, and the report say how far that is from progress."""
    said = {"cut": "I", "same": '{"analysis": "", "scores": [7, 7, 7]}', "few": '{"analysis": "", "scores": [7, 7]}'}
    rewards = {"grades": {"kind": "score", "size": 3, "n_groups": 6}}
    arms = {"arms": {"score": {"reward": "grades"}}, "rewards": rewards}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **arms, "collect.steps": 500})
    monkeypatch.chdir(project.path)
    project.run("collect", "caption")
    with chat_server() as server:
        for model, answer in said.items():
            server.plan = lambda body, answer=answer: (body["messages"][-1]["content"], [], answer)
            asked = {"model": model, "base_url": server.url}
            project.change({"annotate.annotator": "openai", "annotate.openai": asked})
            project.run("annotate")
            if model == "same":
                project.run("train-reward")
                (note,) = read_manifest(project.output("train-reward"))["notes"]
                assert note.startswith("The reward grades is the same for every caption (")
                continue
            with pytest.raises(AnnotationError, match=r"^rewards\.grades: of 12 answers 12 could not be read"):
                project.run("train-reward")
        server.plan = lambda body: (body["messages"][-1]["content"], [], '{"goals": ["Pay the rent in May."]}')
        project.change({"arms": {"goals": {"reward": "goals"}}, "rewards": {}})
        project.run("train-reward")
        (note,) = read_manifest(project.output("train-reward"))["notes"]
        assert note == "The reward goals is zero for every collected caption: none of them reaches a goal."


def test_a_reward_of_part_of_its_answers_says_which_limit_allowed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = {"arms": {"score": {"reward": "score"}}, "rewards": {"score": {"size": 1, "n_groups": 6}}}
    budget = {"annotate.budget": {"max_calls": 5, "on_limit": "continue"}}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **arms, **budget})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = lambda body: (str(body), [], '{"analysis": "", "scores": [5]}')
        project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}})
        project.run("collect", "caption", "annotate", "train-reward")
    notes = read_manifest(project.output("train-reward"))["notes"]
    limit = "the budget of 5 calls (annotate.budget.max_calls) was reached"
    assert f"rewards.score: 5 of 6 questions were asked: {limit}." in notes


def test_a_judge_that_never_says_is_reported_as_one_that_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "arms": {"o": {"reward": "outcome"}}, "collect.steps": 2000})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = lambda body: (body["messages"][-1]["content"], [], "I'm sorry, but I can't help with that.")
        project.change({"annotate.annotator": "openai", "annotate.openai": {"model": "mute", "base_url": server.url}})
        project.run("collect", "caption", "annotate")
        says = r"of (\d) answers 0 could not be read and 0 are missing, \1 declined to say, and none has a value\."
        with pytest.raises(AnnotationError, match=says):
            project.run("train-reward")


def test_an_annotator_of_pairs_alone_is_refused() -> None:
    voters = {"annotator": "ensemble", "ensemble": {"members": [{"annotator": "embedding"}, {"annotator": "scripted"}]}}
    params = parse_params({**MINIMAL, "annotate": voters, "arms": {"score": {"reward": "score"}}}, "params.yaml")
    context = RewardContext.of(params)
    with pytest.raises(
        AnnotationError, match=r"rewards\.score: the annotator ensemble judges pairs, and gives no scores"
    ):
        method_of(params.rewards["score"]).check(context, adapter_for(params.env))


@pytest.mark.parametrize("reward", ["score", "goals"])
def test_a_model_that_compares_given_answers_is_refused_before_it_is_asked_for_others(
    reward: str, tmp_path: Path
) -> None:
    asking = {"annotator": "huggingface", "language_model": {"responses": str(tmp_path / "responses.db")}}
    for mode in ("score", "generate"):
        annotate = {**asking, "huggingface": {"model": "nobody/not-here", "mode": mode}}
        params = parse_params({**MINIMAL, "annotate": annotate, "arms": {reward: {"reward": reward}}}, "params.yaml")
        context, adapter = RewardContext.of(params), adapter_for(params.env)
        made = method_of(params.rewards[reward])
        if mode == "generate":
            made.check(context, adapter)
            continue
        with pytest.raises(AnnotationError, match=r"mode is score.* Set the mode to generate\.$"):
            made.check(context, adapter)
        kind = kind_of(params.annotate)
        assert isinstance(kind, ChatAnnotator)
        with pytest.raises(AnnotationError, match=r"Set the mode to generate\.$"):
            kind.asker(question(2))
