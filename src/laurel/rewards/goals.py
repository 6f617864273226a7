"""Goals: suggested by an annotator, compared with captions, paid once in an episode.

See `laurel.rewards.methods.goals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter, FloatArray
from laurel.errors import AnnotationError, DataError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.feedback.chat_annotator import ChatAnnotator, chat_model
from laurel.feedback.question import Question
from laurel.feedback.questions.goals import GoalsQuestion
from laurel.feedback.questions.sensible import Possible, SensibleQuestion
from laurel.feedback.yes_no import probability
from laurel.llm.encoder import load_encoder
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.method import RewardContext

FILE = "goals.json"
Suggestions = Mapping[str, Sequence[str]]
"""Caption of the last step ("": the episode begins) -> goals."""


class Suggesting(Protocol):
    """How goals are suggested; fields as in `laurel.rewards.methods.goals.GoalsParams`."""

    form: Literal["open", "closed"]
    context: Literal["environment", "caption"]
    least: float
    prompt: str | None
    goal: str | None


def check(settings: Suggesting, params: RewardContext, adapter: EnvAdapter) -> None:
    """Refuse an annotator that suggests no goals, or a prompt that does not fit.

    Raises:
        AnnotationError: the annotator only judges pairs, or has no goal or progress here.
        PromptError: the prompt does not exist, or does not go with the environment.
    """
    if kind := chat_model(params.annotate, "rewards.goals", "suggests no goals"):
        question: Question[Any, Any] = _question(settings, kind, adapter)
        question.messages(question.sample)
    else:
        kind_of(params.annotate).check(adapter)


def estimated(captions: Sequence[str], settings: Suggesting, params: RewardContext, adapter: EnvAdapter) -> str | None:
    """Say in a line what asking for goals takes; None where no chat model is asked."""
    kind = kind_of(params.annotate)
    if not isinstance(kind, ChatAnnotator):
        return None
    question: Question[Any, Any] = _question(settings, kind, adapter)
    found = kind.estimate_of(question, _items(captions, settings))
    cost = found.costs(found.price)
    return f"{kind.identity()[0].model} is asked for goals: {found.calls:,} calls at most, cost {cost}"


def suggested(
    captions: Sequence[str], settings: Suggesting, params: RewardContext, adapter: EnvAdapter
) -> tuple[str, bool, Suggestions]:
    """Return who suggests, whether that is simulated, and the goals.

    A chat model writes goals of its own, or says which captions are sensible ones. The sentence encoder picks those
    captions that are nearer to the goal than to the anti-goal, the simulated teacher those that the environment calls
    progress.
    """
    kind = kind_of(params.annotate)
    if isinstance(kind, ChatAnnotator):
        question: Question[Any, Any] = _question(settings, kind, adapter)
        items = _items(captions, settings)
        answers = zip(items, kind.answers(question, items, "rewards.goals", params.account), strict=True)
        found: dict[str, list[str]] = {}
        if settings.form == "closed":
            for (context, caption), votes in answers:
                found.setdefault(context, []).extend([caption] * ((probability(votes) or 0.0) > settings.least))
        else:
            for context, votes in answers:
                found[context] = list(dict.fromkeys(goal for vote in votes for goal in vote.value or ()))
        return kind.identity()[0].model, False, found
    if params.annotate.annotator == "scripted":
        picked = [text for text in captions if (adapter.oracle(text) or 0) > 0]
        return "scripted (simulated)", True, {"": picked}

    utility = EmbeddingAnnotator.load(params.annotate.embedding, adapter).utility(list(captions))
    picked = [text for text, value in zip(captions, utility.tolist(), strict=True) if value > 0]
    return f"embedding ({params.annotate.embedding.model})", False, {"": picked}


def _question(settings: Suggesting, kind: ChatAnnotator, adapter: EnvAdapter) -> GoalsQuestion | SensibleQuestion:
    """Return the question for a chat model; errors as in `check`."""
    if settings.form == "open":
        return GoalsQuestion(GoalsQuestion.load_prompt(settings.prompt or "suggest"), adapter, settings.goal)
    prompt = SensibleQuestion.load_prompt(settings.prompt or "yes_no")
    return SensibleQuestion(prompt, adapter, settings.goal, scored=kind.scored(prompt))


def _items(captions: Sequence[str], settings: Suggesting) -> Sequence[Any]:
    """Return the items to ask about: contexts, or in the closed form each possible goal in each context."""
    contexts = ["", *captions] if settings.context == "caption" else [""]
    if settings.form == "open":
        return contexts
    return [Possible(context, caption) for context in contexts for caption in captions]


@dataclass(frozen=True)
class GoalTable:
    """The artefact: G goals and V captions."""

    goals: Sequence[str]
    contexts: Mapping[str, Sequence[int]]
    """Caption of the last step -> which goals were suggested."""
    captions: Sequence[str]
    similarity: FloatArray
    """(V, G) cosines."""
    encoder: str

    @classmethod
    def of(cls, found: Suggestions, captions: Sequence[str], encoder: str) -> GoalTable:
        """Compare the captions with all goals.

        Raises:
            AnnotationError: no goal was suggested.
        """
        goals = list(dict.fromkeys(goal for suggested in found.values() for goal in suggested))
        if not goals:
            raise AnnotationError("rewards.goals: no goal was suggested. Use another annotator or prompt.")
        places = {goal: place for place, goal in enumerate(goals)}
        contexts = {context: [places[goal] for goal in suggested] for context, suggested in found.items()}
        return cls(goals, contexts, captions, cosines(captions, goals, encoder), encoder)

    def quality(self, threshold: float, adapter: EnvAdapter) -> dict[str, Any]:
        """Return how many goals captions reach, and of how many of these the environment thinks as progress."""
        reached = self.similarity >= threshold
        progress = np.array([(adapter.oracle(text) or 0.0) > 0 for text in self.captions], dtype=np.bool_)
        sensible = (reached & progress[:, None]).any(axis=0)
        known = adapter.oracle("") is not None
        return {
            "goals": len(self.goals),
            "reachable": float(reached.any(axis=0).mean()),
            "sensible": float(sensible.mean()) if known else None,
        }

    def save(self, place: Path) -> None:
        """Write it into a directory."""
        content = {"goals": self.goals, "contexts": self.contexts, "captions": self.captions, "encoder": self.encoder}
        write_json(place / FILE, {**content, "similarity": self.similarity.tolist()})

    @classmethod
    def load(cls, place: Path) -> GoalTable:
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or damaged.
        """
        content = read_json(place / FILE)
        try:
            shape = len(content["captions"]), len(content["goals"])
            similarity = np.array(content["similarity"], dtype=np.float32).reshape(shape)
            return cls(content["goals"], content["contexts"], content["captions"], similarity, content["encoder"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{place / FILE}: is damaged ({error}). Run laurel train-reward again.") from None


class GoalReward:
    """Pays a caption the similarity with the nearest goal that was suggested and not yet reached in the episode."""

    threshold = 0.0

    def __init__(self, table: GoalTable, least: float) -> None:
        self._table, self._least = table, least
        self._known = dict(zip(table.captions, table.similarity, strict=True))
        self._rows = np.zeros((0, len(table.goals)), dtype=np.float32)
        self._opened = np.zeros((0, len(table.goals)), dtype=np.bool_)
        self._first = self._goals_of("")
        self.unseen = 0
        self.begin(0)

    def begin(self, n_envs: int) -> None:
        """Forget what came before: all environments begin new episodes."""
        self._open = np.tile(self._first, (n_envs, 1))
        self._reached = np.zeros_like(self._open)

    def pay(self, steps: Steps) -> FloatArray:
        """Return the steps' rewards (T, N), UNPAID where no goal is reached."""
        self._extend(steps.texts)
        paid = np.full(steps.valid.shape, UNPAID)
        for t, ids in enumerate(steps.captions):
            named = steps.valid[t] & (ids >= 0)
            rows = np.where(named, ids, 0)
            if named.any():
                similar = self._rows[rows]
                hit = named[:, None] & self._open & ~self._reached & (similar >= self._least)
                paid[t] = np.where(hit.any(axis=1), np.where(hit, similar, 0).max(axis=1), UNPAID)
                self._reached |= hit
                self._open |= named[:, None] & self._opened[rows]
            ended = steps.terminated[t] | steps.truncated[t]
            self._open[ended], self._reached[ended] = self._first, False
        return paid

    def _extend(self, texts: Sequence[str]) -> None:
        new = list(texts[len(self._rows) :])
        if not new:
            return
        unknown = [text for text in new if text not in self._known]
        if unknown:
            self.unseen += len(unknown)
            self._known |= dict(zip(unknown, cosines(unknown, self._table.goals, self._table.encoder), strict=True))
        self._rows = np.concatenate([self._rows, np.stack([self._known[text] for text in new])])
        self._opened = np.concatenate([self._opened, np.stack([self._goals_of(text) for text in new])])

    def _goals_of(self, context: str) -> Any:
        found = np.zeros(len(self._table.goals), dtype=np.bool_)
        found[list(self._table.contexts.get(context, ()))] = True
        return found


def cosines(texts: Sequence[str], goals: Sequence[str], encoder: str) -> FloatArray:
    """Return the cosine similarity (V, G) of texts with goals."""
    rows = load_encoder(encoder).encode([*texts, *goals]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows[: len(texts)] @ rows[len(texts) :].T).astype(np.float32)
