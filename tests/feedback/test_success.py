"""Success against anything else: which questions are drawn, what is made of the answers, when a run is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Answer, Judgement, Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.gates import Checked, check_success
from laurel.feedback.success import SuccessQuestion, ask_success, has_other_goal, success_questions
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams, GateParams

CAPTIONS = [f"You do {i}." for i in range(40)]
PROGRESS = ["You pick up the yellow key.", "You unlock the yellow door with the key."]


class Judge:
    """Says by a rule how likely the first is the better one."""

    name, simulated = "judge", False

    def __init__(self, p_first: Callable[[Pair], float | None]) -> None:
        self.p_first = p_first

    @property
    def usage(self) -> dict[str, float | None]:
        return {}

    def prepare(self, questions: Iterable[Pair]) -> None:
        """Nothing to get ready."""

    def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
        for question in questions:
            p = self.p_first(question)
            yield Judgement("abstain" if p is None else "tie" if p == 0.5 else "ok", p)


def asked(adapter: EnvAdapter, n: int = 16, seed: int = 0) -> list[SuccessQuestion]:
    return success_questions([*CAPTIONS, *PROGRESS, "You reach the goal."], adapter, n, seed)


def check(found: dict[str, Any], gates: GateParams | None = None, annotator: str = "embedding") -> Checked:
    return check_success(
        gates or GateParams(), found, kind_of(AnnotateParams.model_validate({"annotator": annotator})).advice
    )


def test_success_is_compared_with_progress_and_other_captions(door_key: EnvAdapter) -> None:
    questions = asked(door_key)
    assert len(questions) == 16
    assert {question.success for question in questions} == {"You reach the goal."}
    others = [question.other for question in questions]
    assert len(set(others)) == 16
    assert set(PROGRESS) <= set(others), "up to half of them"
    assert "You reach the goal." not in others
    assert sum(question.success_first for question in questions) == 8, "naming a side earns a half"
    assert asked(door_key) == questions
    assert asked(door_key, seed=1) != questions
    assert [other in PROGRESS for other in others] != sorted((other in PROGRESS for other in others), reverse=True)
    assert len(asked(door_key, n=100)) == len(CAPTIONS) + len(PROGRESS), "each but once"


def test_success_that_collection_never_met_is_asked_about(door_key: EnvAdapter) -> None:
    (question,) = success_questions(["You turn."], door_key, 16, 0)
    assert (question.success, question.other) == ("You reach the goal.", "You turn.")


def test_a_adapter_without_a_caption_of_success_has_no_question() -> None:
    adapter = adapter_for(EnvParams(id="CartPole-v1"))
    assert success_questions([adapter.describe(event) for event in adapter.events()], adapter, 16, 0) == []


def test_every_adapter_with_success_knows_it_from_the_rest() -> None:
    for env in ("MiniGrid-UnlockPickup-v0", "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "MountainCar-v0"):
        adapter = adapter_for(EnvParams(id=env))
        questions = success_questions([adapter.describe(event) for event in adapter.events()], adapter, 16, 0)
        assert len(questions) == 16, env
        assert all(
            adapter.says_success(question.success) and not adapter.says_success(question.other)
            for question in questions
        ), env
        assert all(
            (adapter.oracle(question.success) or 0) >= (adapter.oracle(question.other) or 0) for question in questions
        ), env


def test_a_judge_that_prefers_success_passes(door_key: EnvAdapter) -> None:
    found = ask_success(Judge(lambda q: float("goal" in q.first)), asked(door_key))
    assert (found["value"], found["of"], found["questions"], found["above"]) == (1.0, 16, 16, [])
    said = check(found)
    assert (said.refusals, said.warnings) == ([], [])
    assert said.limits["success_preferred"]["passed"]


def test_a_judge_that_prefers_other_captions_fails_and_they_are_named(door_key: EnvAdapter) -> None:
    sure = {PROGRESS[1]: 0.99, PROGRESS[0]: 0.95}

    def other(question: Pair) -> float:
        p = max(sure.get(text, 0.6) for text in question if "goal" not in text)
        return 1 - p if "goal" in question.first else p

    found = ask_success(Judge(other), asked(door_key))
    assert (found["value"], found["of"]) == (0.0, 16)
    (refusal,) = check(found).refusals
    assert refusal.startswith(
        "0.0% of questions with known answers that were decided (16 of 16) preferred success at the task (95% interval "
    )
    assert f'it ranks "{PROGRESS[1]}", "{PROGRESS[0]}", ' in refusal
    assert 'above "You reach the goal."' in refusal
    assert "annotate.gates.min_success_preferred" in refusal
    assert "annotate.embedding.goal and anti_goal" in refusal
    off = check(found, GateParams(min_success_preferred=None))
    assert off.refusals == []
    assert len(off.warnings) == 1
    mostly = {**found, "value": 0.6, "ci95": [0.53, 0.67], "of": 200}
    assert check(mostly, GateParams(min_success_preferred=None)) == Checked(), (
        "success is preferred more often than not"
    )


@pytest.mark.parametrize(
    ("wrong", "stopped", "warned"), [(2, False, False), (6, False, True), (11, False, True), (13, True, False)]
)
def test_few_questions_fail_no_judge_by_chance(door_key: EnvAdapter, wrong: int, stopped: bool, warned: bool) -> None:
    """Of 16 questions: 3 right are [7%, 43%], 5 right are [14%, 56%], 10 right are [39%, 82%]."""
    questions = asked(door_key)
    bad = {question.other for question in questions[:wrong]}
    found = ask_success(Judge(lambda q: float(("goal" in q.first) != bool(bad & set(q)))), questions)
    said = check(found)
    assert (len(said.refusals), len(said.warnings)) == (stopped, warned)


def test_answers_that_cannot_be_read_are_not_called_ties(door_key: EnvAdapter) -> None:
    class Silent(Judge):
        def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
            for number, _ in enumerate(questions):
                yield Judgement("parse_failed" if number % 2 else "api_failed", None)

    found = ask_success(Silent(lambda q: 0.5), asked(door_key))
    assert (found["questions"], found["failed"]) == (16, 16)
    (warning,) = check(found).warnings
    assert "None of the 16 questions about success at the task" in warning
    assert "neither text" not in warning


def test_questions_that_the_budget_left_out_do_not_count(door_key: EnvAdapter) -> None:
    class Spent(Judge):
        def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
            for number, question in enumerate(questions):
                right = float("goal" in question.first)
                yield Judgement("ok", right) if number < 10 else Judgement("unasked", None)

    found = ask_success(Spent(lambda q: 0.5), asked(door_key))
    assert (found["value"], found["of"], found["questions"], "failed" in found) == (1.0, 10, 10, False)


def test_a_tie_is_not_above_success(door_key: EnvAdapter) -> None:
    """A judge that follows the order has no preference: this is reported, with the order it follows."""
    found = ask_success(Judge(lambda q: 0.5), asked(door_key))
    assert "value" not in found
    assert found["above"] == []
    (warning,) = check(found).warnings
    assert "preferred neither text in any of 16 questions" in warning

    class InOrder(Judge):
        def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
            for _ in questions:
                yield Judgement(
                    "tie", 0.5, 2, False, (Answer(0, 0, "first", 1.0, "a"), Answer(1, 0, "second", 0.0, "b"))
                )

    found = ask_success(InOrder(lambda q: 0.5), asked(door_key))
    (warning,) = check(found).warnings
    assert "32 of its 32 decided answers preferred the text shown first" in warning
    assert check(ask_success(Judge(lambda q: None), asked(door_key))).refusals == []


def test_a_goal_that_is_not_the_tasks_is_not_asked_about(door_key: EnvAdapter) -> None:
    chat = {"annotator": "openai", "openai": {"model": "m"}}
    for goal, elsewhere in ((None, False), ("key", True), ("Get to the goal.", False)):
        params = AnnotateParams.model_validate({**chat, "language_model": {"goal": goal}})
        assert has_other_goal(params, door_key) == elsewhere
    assert not has_other_goal(AnnotateParams(), door_key)
