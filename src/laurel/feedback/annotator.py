"""The interface that every annotator implements: pairs of texts in, judgements out, in a stream.

An annotator knows the task's words and the two texts; it knows nothing about segments, files or rewards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from laurel.envs.base import Room
from laurel.errors import AnnotationError
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.feedback.prompt import Prompt
    from laurel.llm.budget import Budget
    from laurel.llm.chat import ChatModel, Identity, Sampling
    from laurel.llm.prices import Price
    from laurel.llm.responses import ResponseStore
    from laurel.params.annotation import AnnotateParams

Status = Literal["ok", "tie", "abstain", "parse_failed", "api_failed", "unasked"]
"""unasked: there was no budget for it; such a question is left out of what is written."""


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
    could not be read, failed where there was none, unasked where there was no budget."""
    p_first: float | None
    """None where there is no label."""
    key: str
    """Of the raw answer in the store of responses; empty where there is none."""
    annotator: str = ""
    """Who said it, where several were asked."""


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
    members: tuple[tuple[str, Judgement], ...] = ()
    """Who voted and how, where several annotators did."""


TIE = Judgement("tie", 0.5, votes=0)
"""The judgement on two identical texts; nobody is asked."""


Usage = dict[str, float | None]
"""What was used of what; None where that is unknown."""


def added(one: Usage, other: Usage) -> Usage:
    """Add what was used; what is unknown of either is unknown of both."""
    total = dict(one)
    for key, amount in other.items():
        before = total.get(key, 0)
        total[key] = None if before is None or amount is None else before + amount
    return total


class Annotator(Protocol):
    """Judges pairs of texts."""

    name: str
    """Who judges, with model and settings: provenance of every label."""
    simulated: bool
    """True where no language model judged; shown wherever the labels are."""

    @property
    def usage(self) -> Usage:
        """What it has cost so far, None where that is unknown; empty where that is nothing."""
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


def make_annotator(
    params: AnnotateParams, room: Room, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
) -> Annotator:
    """Make the annotator that the params name.

    Args:
        params: section annotate.
        room: the environment's.
        seed: of a simulated teacher's faults.
        captions: of single steps, for those who look into segments; the ones that the room lists are known.
        budget: what asking may cost; None: as the params say.

    Raises:
        AnnotationError: its model cannot be loaded or asked, or it has nothing to judge this environment by.
        PromptError: the prompt is none, or does not go with the environment's captions.
        DataError: the store of answers cannot be used.
    """
    match params.annotator:
        case "ensemble":
            from laurel.llm.budget import Budget

            return _ensemble(params, room, seed, captions, budget or Budget(params.budget))
        case "embedding":
            from laurel.feedback.embedding import EmbeddingAnnotator

            return EmbeddingAnnotator.load(params.embedding, room)
        case "scripted":
            from laurel.feedback.scripted import ScriptedAnnotator

            return ScriptedAnnotator(params.scripted, room, derive_seed(seed, "scripted"), captions)
        case "openai" | "huggingface":
            from laurel.feedback.language_model import LanguageModelAnnotator
            from laurel.feedback.prompt import load_prompt
            from laurel.llm.budget import Budget, BudgetedChat
            from laurel.llm.responses import ResponseStore
            from laurel.llm.told_failures import TellingChat

            prompt = load_prompt(params.language_model.prompt)
            prompt.messages("", "", room, params.language_model.goal)  # what does not go together is said now
            choices = choices_of(params, prompt)
            store = ResponseStore(params.language_model.store)
            budget = budget or Budget(params.budget)
            model: ChatModel = TellingChat(_chat_model(params, store, budget))
            sampling = sampling_of(params)
            price = price_for(params, model.identity)
            if budget.params.limited:
                model = BudgetedChat(model, budget, price)
            return LanguageModelAnnotator(model, sampling, prompt, room, store, params.language_model, choices, price)


def _ensemble(params: AnnotateParams, room: Room, seed: int, captions: Collection[str], budget: Budget) -> Annotator:
    from laurel.feedback.ensemble import EnsembleAnnotator, Member

    assert params.ensemble is not None  # params see to it

    def member(number: int) -> Member:
        own = params.of_member(number)
        return Member(
            make=lambda: make_annotator(own, room, derive_seed(seed, "member", number), captions, budget=budget),
            weight=voters[number].weight,
            local=own.annotator == "huggingface",
        )

    voters = params.ensemble.members
    return EnsembleAnnotator([member(number) for number in range(len(voters))], params.ensemble.tie_band)


def price_for(params: AnnotateParams, identity: Identity) -> Price | None:
    """Return what the tokens of a model cost in the way it is asked; None where that is unknown.

    Raises:
        ParamsError: the table of prices that the params name is none.
    """
    from laurel.llm.prices import price_of

    price = price_of(identity, params.budget.prices)
    batch = params.annotator == "openai" and params.openai is not None and params.openai.mode == "batch"
    return price.in_batches() if price and batch else price


def choices_of(params: AnnotateParams, prompt: Prompt) -> tuple[str, ...]:
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


def sampling_of(params: AnnotateParams) -> Sampling:
    """Return how the chat model that the params name draws its answers."""
    from laurel.llm.chat import Sampling

    source = params.openai if params.annotator == "openai" else params.huggingface
    assert source is not None  # params see to it
    return Sampling(source.temperature, source.top_p, source.max_tokens)


def _chat_model(params: AnnotateParams, store: ResponseStore, budget: Budget) -> ChatModel:
    """Return the chat model that the params name."""
    if params.annotator == "openai":
        assert params.openai is not None  # params see to it
        if params.openai.mode == "batch":
            from laurel.llm.openai_batch import OpenAIBatch

            return OpenAIBatch(params.openai, store, budget.seconds_left)
        from laurel.console import tell
        from laurel.llm.batch_ledger import BatchLedger
        from laurel.llm.openai_chat import OpenAIChat

        model = OpenAIChat(params.openai)
        ledger = BatchLedger(store.path)
        if waiting := ledger.waiting(model.identity.endpoint, model.identity.model):
            tell(
                f"{waiting:,} questions to {model.identity.model} are in batches that were sent before. Those of them "
                "that are asked now are paid twice; annotate.openai.mode: batch fetches them."
            )
        ledger.close()
        return model
    from laurel.llm.local_chat import load_local

    return load_local(params.huggingface)
