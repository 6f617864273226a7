"""Which annotator the params name: made ready to be asked, with its model, its store of answers and its budget.

Knows all annotators; knows nothing about how any of them judges.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Annotator
from laurel.seeding import derive_seed

if TYPE_CHECKING:
    from laurel.feedback.annotator import Pair
    from laurel.feedback.asker import Asker
    from laurel.feedback.prompt import Prompt
    from laurel.llm.budget import Budget
    from laurel.llm.chat import ChatModel, Identity, Sampling
    from laurel.llm.prices import Price
    from laurel.llm.responses import ResponseStore
    from laurel.params.annotation import AnnotateParams


def make_annotator(
    params: AnnotateParams,
    adapter: EnvAdapter,
    seed: int,
    captions: Collection[str] = (),
    *,
    budget: Budget | None = None,
) -> Annotator:
    """Make the annotator that the params name.

    Args:
        params: section annotate.
        adapter: the environment's.
        seed: of a simulated teacher's faults.
        captions: of single steps, for those who look into segments; the ones that the adapter lists are known.
        budget: what asking may cost; None: as the params say.

    Raises:
        AnnotationError: its model cannot be loaded or asked, or it has nothing to judge this environment by.
        PromptError: the prompt is none, or does not go with the environment's captions.
        DataError: the store of answers cannot be used.
    """
    match params.annotator:
        case "ensemble":
            from laurel.llm.budget import Budget

            return _ensemble(params, adapter, seed, captions, budget or Budget(params.budget))
        case "embedding":
            from laurel.feedback.embedding import EmbeddingAnnotator

            return EmbeddingAnnotator.load(params.embedding, adapter)
        case "scripted":
            from laurel.feedback.scripted import ScriptedAnnotator

            return ScriptedAnnotator(params.scripted, adapter, derive_seed(seed, "scripted"), captions)
        case "openai" | "huggingface":
            from laurel.feedback.language_model import LanguageModelAnnotator

            return LanguageModelAnnotator(make_asker(params, adapter, budget), params.language_model.tie_band)


def make_asker(params: AnnotateParams, adapter: EnvAdapter, budget: Budget | None) -> Asker[Pair, float]:
    """Make what asks the chat model that the params name about pairs; errors as of `make_annotator`."""
    from laurel.feedback.asker import Asker
    from laurel.feedback.questions.pair import PairQuestion
    from laurel.llm.budget import Budget, BudgetedChat
    from laurel.llm.responses import ResponseStore
    from laurel.llm.told_failures import TellingChat

    asking = params.language_model
    prompt = PairQuestion.load_prompt(asking.prompt)
    scored = bool(choices_of(params, prompt))
    question = PairQuestion(prompt, adapter, asking.goal, scored=scored, both_orders=asking.both_orders)
    question.messages(question.sample)  # what does not go together is said now
    store = ResponseStore(asking.store)
    budget = budget or Budget(params.budget)
    sampling = sampling_of(params)
    model: ChatModel = TellingChat(_chat_model(params, store, budget, prompt, sampling))
    price = price_for(params, model.identity)
    if budget.params.limited:
        model = BudgetedChat(model, budget, price)
    gives_up = params.max_failure_rate < 1
    return Asker(model, sampling, question, store, votes=asking.votes, price=price, gives_up=gives_up)


def _ensemble(
    params: AnnotateParams, adapter: EnvAdapter, seed: int, captions: Collection[str], budget: Budget
) -> Annotator:
    from laurel.feedback.ensemble import EnsembleAnnotator, Member

    assert params.ensemble is not None  # params see to it

    def member(number: int) -> Member:
        own = params.of_member(number)
        return Member(
            make=lambda: make_annotator(own, adapter, derive_seed(seed, "member", number), captions, budget=budget),
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
    sampling = Sampling(source.temperature, source.top_p, source.max_tokens)
    if params.annotator != "openai" or params.openai is None:
        return sampling
    extra = json.dumps(params.openai.extra_body, sort_keys=True) if params.openai.extra_body else ""
    return replace(sampling, reasoning_effort=params.openai.reasoning_effort, extra_body=extra)


def _chat_model(
    params: AnnotateParams, store: ResponseStore, budget: Budget, prompt: Prompt, sampling: Sampling
) -> ChatModel:
    """Return the chat model that the params name."""
    if params.annotator == "openai":
        assert params.openai is not None  # params see to it
        if params.openai.mode == "batch":
            from laurel.llm.openai_batch import OpenAIBatch

            return OpenAIBatch(params.openai, store, budget.seconds_left)
        from laurel.console import tell
        from laurel.llm.batch_ledger import BatchLedger
        from laurel.llm.chat import Identity
        from laurel.llm.openai_chat import OpenAIChat
        from laurel.params.judges import OPENAI

        who = Identity(params.openai.model, endpoint=params.openai.base_url or OPENAI)
        model = OpenAIChat(params.openai, takes_them=store.has_answers(who, prompt.digest, sampling))
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
