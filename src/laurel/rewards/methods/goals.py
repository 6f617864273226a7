"""Rewards reaching a goal that the annotator suggested, once per episode, when a caption is similar to the goal.

After ELLM (Du et al. 2023, arXiv 2302.06692): a goal is reached where the similarity of the caption's embedding with
the goal's is at least a threshold, and the reward is that similarity. A goal counts from the step after its suggestion,
and once per episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from laurel.arrays import FloatArray
from laurel.data.captions import read_vocabulary
from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError, DataError, ParamsError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator, judge_of_texts
from laurel.feedback.question import Question
from laurel.feedback.questions.goals import GoalsQuestion
from laurel.feedback.questions.sensible import PossibleGoal, SensibleQuestion
from laurel.feedback.text_judge import TextJudge
from laurel.feedback.yes_no import probability
from laurel.llm.encoder import load_encoder
from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.method import LATER, QUALITY, Collected, Inputs, Method, RewardContext
from laurel.seeding import generator


class GoalsParams(RewardParams):
    """Settings of goals."""

    context: Literal["environment", "caption"] = "environment"
    """When goals are suggested. environment: once, for every episode from its start; caption: also after each distinct
    caption, from the next step on. Annotators other than chat models always suggest the same goals."""
    threshold: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.9
    """Minimum cosine similarity for a caption to match a goal."""
    form: Literal["open", "closed"] = "open"
    """How a chat model suggests goals. open: it writes them; closed: it is asked for each caption that was collected,
    or that the environment lists, whether it is a sensible goal. Other annotators choose among these captions."""
    least: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.5
    """form: closed only: probability above which a caption is a goal."""
    prompt: str | None = None
    """Prompt of a chat model; one of `laurel prompt list`, or a .jinja file of your own; null: `suggest` in the open
    form, `yes_no` in the closed one."""
    goal: str | None = None
    """Task in the prompt of a chat model; null: the environment's own goal."""


FILE = "goals.json"
Suggestions = Mapping[str, Sequence[str]]
"""Caption of the last step ("": the episode begins) -> goals."""


def suggested(
    captions: Sequence[str], settings: GoalsParams, context: RewardContext, adapter: EnvAdapter
) -> tuple[str, bool, Suggestions]:
    """Return the annotator's name, whether it is simulated, and the goals.

    A chat model writes goals, or says which captions are sensible goals. Other annotators choose the captions with a
    utility above 0; that of a simulated one has no errors.
    """
    kind = goals_judge(settings, context, adapter, captions)
    if isinstance(kind, ChatAnnotator):
        question: Question[Any, Any] = _question(settings, kind, adapter)
        items = _items(captions, settings)
        answers = zip(items, kind.answers(question, items, context.key(settings), context.account), strict=True)
        by_context: dict[str, list[str]] = {}
        if settings.form == "closed":
            sensible = [(*item, probability(votes)) for item, votes in answers]
            for state, caption, p_yes in sensible:
                by_context.setdefault(state, []).extend([caption] * ((p_yes or 0.0) > settings.least))
            known = [p_yes for _, _, p_yes in sensible if p_yes is not None]
            if known and (highest := max(known)) <= settings.least:
                key = context.key(settings)
                lower = f"set {key}.least lower ({settings.least:g} now), or " if highest else ""
                raise AnnotationError(
                    f"{key}: no caption is a goal. The highest probability of yes that {kind.model_name} gives is "
                    f"{highest:.2g}: {lower}use another annotator or prompt."
                )
        else:
            for state, votes in answers:
                by_context[state] = list(dict.fromkeys(goal for vote in votes for goal in vote.value or ()))
        return kind.model_name, False, by_context
    picked = [text for text, value in zip(captions, kind.utility(captions).tolist(), strict=True) if value > 0]
    simulated = kind_of(context.annotate).simulated
    return f"{context.annotate.annotator} (simulated)" if simulated else kind.name, simulated, {"": picked}


def goals_judge(
    settings: GoalsParams, context: RewardContext, adapter: EnvAdapter, captions: Sequence[str] = ()
) -> ChatAnnotator | TextJudge:
    """Return the judge that suggests goals.

    Raises:
        AnnotationError: the annotator only judges pairs.
    """
    return judge_of_texts(context.annotate, adapter, context.key(settings), "suggests no goals", captions=captions)


def _question(settings: GoalsParams, kind: ChatAnnotator, adapter: EnvAdapter) -> GoalsQuestion | SensibleQuestion:
    """Return the question for a chat model."""
    if settings.form == "open":
        return GoalsQuestion(GoalsQuestion.load_prompt(settings.prompt or "suggest"), adapter, settings.goal)
    prompt = SensibleQuestion.load_prompt(settings.prompt or "yes_no")
    return SensibleQuestion(prompt, adapter, settings.goal, scored=kind.scored(prompt))


def _items(captions: Sequence[str], settings: GoalsParams) -> Sequence[Any]:
    """Return the items to ask about: contexts, or in the closed form each possible goal in each context."""
    contexts = ["", *captions] if settings.context == "caption" else [""]
    if settings.form == "open":
        return contexts
    return [PossibleGoal(context, caption) for context in contexts for caption in captions]


@dataclass(frozen=True)
class GoalTable:
    """The artefact: G goals and V captions."""

    goals: Sequence[str]
    contexts: Mapping[str, Sequence[int]]
    """Caption of the last step -> indices of the suggested goals."""
    captions: Sequence[str]
    similarity: FloatArray
    """(V, G) cosines."""
    encoder: str

    @classmethod
    def of(cls, by_context: Suggestions, captions: Sequence[str], encoder: str) -> GoalTable:
        """Compare the captions with all goals.

        Raises:
            AnnotationError: no goal was suggested.
        """
        goals = list(dict.fromkeys(goal for suggested in by_context.values() for goal in suggested))
        if not goals:
            raise AnnotationError("rewards of kind goals: no goal was suggested. Use another annotator or prompt.")
        places = {goal: place for place, goal in enumerate(goals)}
        contexts = {context: [places[goal] for goal in suggested] for context, suggested in by_context.items()}
        return cls(goals, contexts, captions, cosines(captions, goals, encoder), encoder)

    def quality(self, threshold: float, adapter: EnvAdapter) -> dict[str, Any]:
        """Return the number of goals, and the shares of them that captions, and captions of progress, reach."""
        reached = self.similarity >= threshold
        progress = np.array([(adapter.oracle(text) or 0.0) > 0 for text in self.captions], dtype=np.bool_)
        sensible = (reached & progress[:, None]).any(axis=0)
        known = adapter.oracle("") is not None
        return {
            "goals": len(self.goals),
            "reachable": float(reached.any(axis=0).mean()),
            "sensible": float(sensible.mean()) if known else None,
        }

    def shuffled(self, seed: int) -> GoalTable:
        """Return the table of as many other captions as goals, drawn by a seed; all goals must be captions."""
        order = generator(seed, "shuffled_labels").permutation(len(self.captions)).tolist()
        places = {caption: place for place, caption in enumerate(self.captions)}
        goals = [self.captions[order[places[goal]]] for goal in self.goals]
        return replace(self, goals=goals, similarity=cosines(self.captions, goals, self.encoder))

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
    """Rewards a caption with its similarity to the nearest suggested goal not yet reached in the episode."""

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
        """Reset: all environments begin new episodes."""
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
        suggested = np.zeros(len(self._table.goals), dtype=np.bool_)
        suggested[list(self._table.contexts.get(context, ()))] = True
        return suggested


def cosines(texts: Sequence[str], goals: Sequence[str], encoder: str) -> FloatArray:
    """Return the cosine similarity (V, G) of texts with goals."""
    rows = load_encoder(encoder).encode([*texts, *goals]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows[: len(texts)] @ rows[len(texts) :].T).astype(np.float32)


class Goals(Method[GoalsParams]):
    """Stores the goals, the captions after which they were suggested, and the similarity of each caption to each
    goal.
    """

    kind = "goals"
    summary = "goals that the annotator suggested, each once per episode"
    Settings = GoalsParams
    asks = True
    reads = ("captions",)

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Refuse an annotator that suggests no goals, or a prompt that does not fit."""
        kind = goals_judge(self.settings, context, adapter)
        if isinstance(kind, ChatAnnotator):
            question: Question[Any, Any] = _question(self.settings, kind, adapter)
            kind.check_question(question)
        else:
            kind_of(context.annotate).check(adapter)
        return None

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        kind = kind_of(context.annotate)
        if not isinstance(kind, ChatAnnotator):
            return None
        if collected is None:
            return f"{kind.model_name} is asked for goals in captions: {LATER}"
        question: Question[Any, Any] = _question(self.settings, kind, adapter)
        return kind.asked(
            question, _items(read_vocabulary(collected.captions).texts, self.settings), "is asked for goals"
        )

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        texts = list(read_vocabulary(inputs.captions).texts)
        judge, simulated, by_context = suggested(texts, self.settings, context, adapter)
        table = GoalTable.of(by_context, texts, context.annotate.embedding.model)
        table.save(place)
        quality = table.quality(self.settings.threshold, adapter)
        write_json(place / QUALITY, {"judge": judge, "simulated": simulated, **quality})

    def notes(self, name: str, qualities: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        if all(quality["reachable"] == 0 for quality in qualities):
            yield f"The reward {name} is zero for every collected caption: none of them reaches a goal."

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        if self.settings.form == "open" and isinstance(goals_judge(self.settings, context, adapter), ChatAnnotator):
            raise ParamsError(
                f"rewards: labels of {name} cannot be shuffled, as a chat model writes its goals instead of labelling "
                f"captions. Set rewards.{name}.form to closed."
            )
        return None

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Use the same number of other captions as goals; nothing is asked again."""
        GoalTable.load(made).shuffled(seed).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return GoalReward(GoalTable.load(place), self.settings.threshold)


METHOD = Goals
