"""Which tasks a judge finds boring for an agent that does another one well.

A chat model is asked about every ordered pair of tasks. Other annotators call a task boring if its goal is `alike`:
nearly the same text for the sentence encoder, an identical text for the simulated teacher.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

from laurel.arrays import BoolArray
from laurel.data.asked import ASKED
from laurel.data.usage import ASKER, UsageNote, new_asker
from laurel.envs.tasks import TasksAdapter
from laurel.feedback.annotator import Account
from laurel.feedback.annotator_kind import Alike, kind_of, unsupported
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.questions.interesting import InterestingQuestion, TaskPair
from laurel.feedback.yes_no import probability
from laurel.params.annotation import AnnotateParams

KEY = "agent.curriculum.interest"
JUDGES_OF_TASKS = "openai, huggingface, embedding, scripted or another one that compares tasks"


def boring(
    adapter: TasksAdapter, annotate: AnnotateParams, judge: str, note: UsageNote
) -> tuple[BoolArray, dict[str, Any]]:
    """Return (K, K) whether task j is boring to an agent that does task i well, and the usage, as in `Chooser.account`.

    Args:
        adapter: has the K tasks in words.
        judge: `main`, the annotator of the section, or one of `annotate.judges`.
        note: called with the usage so far, also if asking fails: answers are paid for before there is an agent.

    Raises:
        ParamsError: no judge has that name.
        AnnotationError: it cannot be made or asked, cannot compare tasks, or too few of its answers can be read.
    """
    asked = annotate.judge_named(judge, KEY)
    kind = _judge(asked)
    n_tasks = len(adapter.members)
    if isinstance(kind, ChatAnnotator):
        is_boring, items, unread = np.zeros((n_tasks, n_tasks), dtype=np.bool_), _items(adapter), 0
        account = Account(asked.budget)
        asker = new_asker()
        account.budget.answered = lambda: note.write_if_due(lambda: [{ASKER: asker, **account.usage}])
        answers = kind.answers(_question(kind, adapter), items, KEY, account)
        try:
            for place, votes in zip(permutations(range(n_tasks), 2), answers, strict=True):
                interesting = probability(votes)
                unread += interesting is None
                is_boring[place] = interesting is not None and interesting < 0.5
        finally:  # also where it is stopped
            note.write([{ASKER: asker, **account.usage}])
        wording = {"about": "pairs of tasks", "instead": "the second counted as interesting"}
        asked_about = {"model": kind.model_name, "states": len(items), "unread": unread, ASKER: asker, **wording}
        return is_boring, {**asked_about, **account.usage, ASKED: account.asked}
    is_boring = kind([task.goal or task.env_id for task in adapter.members])
    np.fill_diagonal(is_boring, val=False)
    return is_boring, {}


def check(adapter: TasksAdapter, annotate: AnnotateParams, judge: str) -> None:
    """Make the checks of `boring` that precede asking, regardless of installed packages; errors as there."""
    kind = _judge(annotate.judge_named(judge, KEY))
    if isinstance(kind, ChatAnnotator):
        question = _question(kind, adapter)
        question.messages(question.sample)


def estimate(adapter: TasksAdapter, annotate: AnnotateParams, judge: str) -> str | None:
    """Return a line with the cost of asking; None if it costs nothing. Errors as in `boring`."""
    kind = _judge(annotate.judge_named(judge, KEY))
    if not isinstance(kind, ChatAnnotator):
        return None
    items = _items(adapter)
    return kind.asked(_question(kind, adapter), items, f"is asked about {len(items):,} pairs of tasks")


def _judge(annotate: AnnotateParams) -> ChatAnnotator | Alike:
    """Return the chat model to ask, or another annotator's function that compares goals."""
    kind = kind_of(annotate)
    judge = kind if isinstance(kind, ChatAnnotator) else kind.alike()
    if judge is None:
        raise unsupported(kind, KEY, "cannot compare tasks", JUDGES_OF_TASKS)
    return judge


def _question(kind: ChatAnnotator, adapter: TasksAdapter) -> InterestingQuestion:
    prompt = InterestingQuestion.load_prompt("yes_no")
    return InterestingQuestion(prompt, adapter, scored=kind.scored(prompt))


def _items(adapter: TasksAdapter) -> list[TaskPair]:
    words = [f"{task.env_id}: {task.description} {task.goal or ''}".strip() for task in adapter.members]
    return [TaskPair(done, open_task) for done, open_task in permutations(words, 2)]
