"""The interface that every annotator implements: pairs of texts in, judgements out, in a stream.

An annotator knows the task's words and the two texts; it knows nothing about segments, files or rewards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from laurel.envs.base import Room
from laurel.errors import AnnotationError
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.feedback.prompt import Prompt
    from laurel.llm.chat import ChatModel, Sampling
    from laurel.params.annotation import AnnotateParams

Status = Literal["ok", "tie", "abstain", "parse_failed", "api_failed"]


class Question(NamedTuple):
    """Two texts to choose between."""

    first: str
    second: str


class Said(NamedTuple):
    """What came of asking once."""

    swapped: bool
    """True where the second text was shown first."""
    vote: int
    """Number of the answer in this order."""
    verdict: str
    """first, second, tie or abstain, of the texts as they are and not as they were shown; unread where the answer
    could not be read, failed where there was none."""
    p_first: float | None
    """None where there is no label."""
    key: str
    """Of the raw answer in the store of responses; empty where there is none."""


class Judgement(NamedTuple):
    """What an annotator said about a question."""

    status: Status
    p_first: float | None
    """Probability that the first is the better one; 1/2 for a tie, None where there is no answer."""
    votes: int = 1
    """Answers that it rests on."""
    swap_consistent: bool | None = None
    """Whether asking in the other order gave the same; None where that was not asked."""
    answers: tuple[Said, ...] = ()
    """The single answers that it rests on, for annotators that keep them."""


TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts; nobody is asked."""


class Annotator(Protocol):
    """Judges pairs of texts."""

    name: str
    """Who judges, with model and settings: provenance of every label."""
    simulated: bool
    """True where no language model judged; shown wherever the labels are."""

    @property
    def usage(self) -> dict[str, int]:
        """What it has cost so far; empty where that is nothing."""
        ...

    def prepare(self, questions: Iterable[Question]) -> None:
        """Get ready for all questions of a round, of which others may be asked to judge a share.

        What is answered to a question must not depend on who judges which share.
        """
        ...

    def annotate(self, questions: Iterable[Question]) -> Iterator[Judgement]:
        """Yield a judgement for each question, in order."""
        ...


def questions_about(texts: Sequence[str], first: Iterable[int], second: Iterable[int]) -> Iterator[Question]:
    """Yield a question for each pair of texts, which are given by number."""
    for a, b in zip(first, second, strict=True):
        yield Question(texts[a], texts[b])


def judge(annotator: Annotator, questions: Iterable[Question]) -> Iterator[Judgement]:
    """Yield a judgement for each question, in order; nobody is asked about identical texts."""
    identical: deque[bool] = deque()
    """Of each question that was drawn but not yet answered."""

    def asked() -> Iterator[Question]:
        for question in questions:
            identical.append(question.first == question.second)
            if not identical[-1]:
                yield question

    for judgement in annotator.annotate(asked()):
        while identical.popleft():
            yield TIE
        yield judgement
    yield from (TIE for same in identical if same)


def make_annotator(params: AnnotateParams, room: Room, seed: int) -> Annotator:
    """Make the annotator that the params name.

    Raises:
        AnnotationError: its model cannot be loaded or asked, or it has nothing to judge this environment by.
        PromptError: the prompt is none, or does not go with the environment's captions.
        DataError: the store of answers cannot be used.
    """
    match params.annotator:
        case "embedding":
            from laurel.feedback.embedding import EmbeddingAnnotator

            return EmbeddingAnnotator.load(params.embedding, room)
        case "scripted":
            from laurel.feedback.scripted import ScriptedAnnotator

            return ScriptedAnnotator(params.scripted, room, derive_seed(seed, "scripted"))
        case "openai" | "huggingface":
            from laurel.feedback.language_model import LanguageModelAnnotator
            from laurel.feedback.prompt import load_prompt
            from laurel.llm.responses import ResponseStore

            prompt = load_prompt(params.language_model.prompt)
            prompt.messages("", "", room, params.language_model.goal)  # what does not go together is said now
            choices = _choices(params, prompt)
            model, sampling = _chat_model(params)
            store = ResponseStore(params.language_model.responses)
            return LanguageModelAnnotator(model, sampling, prompt, room, store, params.language_model, choices)


def _choices(params: AnnotateParams, prompt: Prompt) -> tuple[str, ...]:
    """Return the answers whose probabilities are wanted; none where words are.

    Raises:
        AnnotationError: a model is to score answers, but the prompt asks for words.
    """
    if params.annotator == "huggingface":
        if params.huggingface.mode == "generate":
            return ()
        if not prompt.choices:
            raise AnnotationError(
                "annotate.huggingface.mode is score, which reads off one of few answers, but the prompt "
                f"{prompt.name} asks for words. Set the mode to generate, or annotate.language_model.prompt to "
                "answer_only."
            )
    return prompt.choices


def _chat_model(params: AnnotateParams) -> tuple[ChatModel, Sampling]:
    """Return the chat model that the params name, and how it is to draw its answers."""
    from laurel.llm.chat import Sampling

    if params.annotator == "openai":
        from laurel.llm.openai_chat import OpenAIChat

        assert params.openai is not None  # params see to it
        server = params.openai
        return OpenAIChat(server), Sampling(server.temperature, server.top_p, server.max_tokens)
    from laurel.llm.local_chat import load_local

    local = params.huggingface
    return load_local(local), Sampling(local.temperature, local.top_p, local.max_tokens)
