"""What a run would ask and what that would take, before anything is asked. Opens no connection and writes nothing.

Knows the answers that are kept; of those to come it knows no more than how long they may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators import choices_of, sampling_of
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.prompt import Prompt
from laurel.feedback.questions.pair import PairQuestion
from laurel.feedback.token_counts import count_tokens
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.chat import ChatRequest, Identity
from laurel.llm.chat_wire import longest_answer
from laurel.llm.prices import Price, in_words, price_of
from laurel.llm.responses import ResponseStore, Usual
from laurel.params.annotation import AnnotateParams, BudgetParams

SAMPLE = 1000
"""Questions whose tokens are counted; the others are taken to be like them."""
BATCH_MINUTES = 24 * 60
"""Within which a batch is answered, or ends without."""


@dataclass(frozen=True)
class Estimate:
    """What a run would take."""

    annotator: str
    model: str
    pairs: int
    identical: int
    """Pairs of the same text, about which nobody is asked."""
    distinct: int
    """Questions, each order and each vote counted, each once."""
    answered: int
    """Of these: answers are kept."""
    sent: int
    """Of the others: in batches that were sent before."""
    input_tokens: float
    """Of the questions that are to be asked."""
    counted_by: str
    """How tokens were counted, in words."""
    most_output: int
    """Tokens that the answers may have."""
    usual_output: float | None
    """Tokens that they have if they are like the answers that are kept; None where there are none to go by."""
    price: Price | None
    """Of asking one by one; None where it is unknown."""
    minutes: float | None
    """Of asking one by one; None where there is nothing to go by."""
    minutes_by: str
    """What sets the pace, in words."""
    batches: bool
    """Whether there may be batches, too."""
    to_ask: frozenset[str]
    """Keys of the questions that are to be asked."""

    @property
    def calls(self) -> int:
        """Return how many requests there would be, follow-ups left out."""
        return self.distinct - self.answered - self.sent

    def costs(self, price: Price | None) -> str:
        """Say what it costs at a price, usually and at most."""
        if price is None:
            return "unknown"
        most = in_words(price.of(self.input_tokens, self.most_output))
        if self.usual_output is None:
            return f"{most} at most"
        return f"{in_words(price.of(self.input_tokens, self.usual_output))}, {most} at most"


def estimate(
    params: AnnotateParams, adapter: EnvAdapter, questions: Sequence[Pair], asked: Set[str] = frozenset()
) -> Estimate:
    """Estimate what asking questions takes.

    Args:
        params: who is asked, and how.
        adapter: the environment's.
        questions: all of a run.
        asked: keys of questions that will be answered by then.

    Raises:
        AnnotationError: the prompt does not go with the model.
        PromptError: the prompt is none, or does not go with the environment's captions.
        DataError: the store of answers cannot be read.
        ParamsError: the table of prices cannot be read.
    """
    different = [question for question in questions if question.first != question.second]
    asking = params.language_model
    prompt = PairQuestion.load_prompt(asking.prompt)
    choices = choices_of(params, prompt)
    question = PairQuestion(prompt, adapter, asking.goal, scored=bool(choices), both_orders=asking.both_orders)
    identity, here = _identity(params)
    requests = {request.key: request for request in _requests(params, identity, question, different)}
    stored, usual = _stored(params.language_model.store, identity if here else None, prompt, list(requests))
    stored = stored | (requests.keys() & asked)
    sent = _sent(params, [key for key in requests if key not in stored])
    to_ask = [request for key, request in requests.items() if key not in stored and key not in sent]
    sample = to_ask[:: max(len(to_ask) // SAMPLE, 1)]
    tokens, counted_by = count_tokens(params, sample)
    if len(sample) < len(to_ask):
        counted_by += f", in {len(sample):,} of them"
    input_tokens = tokens * len(to_ask) / max(len(sample), 1)
    scored = params.annotator == "huggingface" and bool(choices)  # nothing is written
    most_output = 0 if scored else sum(map(longest_answer, to_ask))
    usual_output = None if usual.output_tokens is None else usual.output_tokens * len(to_ask)
    minutes, minutes_by = _minutes(params, len(to_ask), input_tokens + most_output, usual.seconds)
    return Estimate(
        annotator=f"{identity.model} (prompt {prompt.name} {prompt.digest[:8]})",
        model=identity.model,
        pairs=len(questions),
        identical=len(questions) - len(different),
        distinct=len(requests),
        answered=len(stored),
        sent=len(sent),
        input_tokens=input_tokens,
        counted_by=counted_by,
        most_output=most_output,
        usual_output=0.0 if scored else usual_output,
        price=price_of(identity, params.budget.prices),
        minutes=minutes,
        minutes_by=minutes_by,
        batches=params.annotator == "openai",
        to_ask=frozenset(request.key for request in to_ask),
    )


def _identity(params: AnnotateParams) -> tuple[Identity, bool]:
    """Return who would answer, and whether that can have answered here: not if its weights are yet to be fetched."""
    if params.annotator == "openai":
        from laurel.params.judges import OPENAI

        assert params.openai is not None  # params see to it
        return Identity(params.openai.model, endpoint=params.openai.base_url or OPENAI), True
    from laurel.llm.local_model import identity_here

    here = identity_here(params.huggingface)
    return here or Identity(params.huggingface.model), here is not None


def _stored(path: Path, identity: Identity | None, prompt: Prompt, keys: Sequence[str]) -> tuple[Set[str], Usual]:
    """Return which questions are answered, and what answers to this model in this prompt were like."""
    if identity is None or not path.exists():
        return frozenset(), Usual(None, None)
    with ResponseStore(path, read_only=True) as store:
        return store.get(keys).keys(), store.usual(identity, prompt.digest)


def _sent(params: AnnotateParams, keys: Sequence[str]) -> dict[str, str]:
    """Return which questions are in batches that were sent before, for who will fetch them."""
    path, server = params.language_model.store, params.openai
    if params.annotator != "openai" or server is None or server.mode != "batch" or not path.exists():
        return {}
    ledger = BatchLedger(path, read_only=True)
    try:
        return ledger.find(keys)
    finally:
        ledger.close()


def _requests(
    params: AnnotateParams, identity: Identity, question: PairQuestion, pairs: Sequence[Pair]
) -> Iterator[ChatRequest]:
    """Yield all requests of a run, follow-ups left out."""
    sampling = sampling_of(params)
    keys = QuestionKeys(identity, question, sampling)
    for pair in pairs:
        for variant in range(question.variants):
            messages = question.messages(pair, variant)
            for vote in range(params.language_model.votes):
                drawn, key = replace(sampling, seed=vote or None), keys.of(pair, variant, vote)
                yield ChatRequest(messages, drawn, question.choices, question.prompt.schema, key)


def _minutes(params: AnnotateParams, calls: int, tokens: float, seconds: float | None) -> tuple[float | None, str]:
    """Return how long asking one by one takes, and what sets the pace."""
    paces: dict[str, float] = {}
    at_once = 1
    if params.annotator == "openai" and params.openai is not None:
        at_once = params.openai.max_in_flight
        if params.openai.requests_per_minute:
            paces["requests_per_minute"] = calls / params.openai.requests_per_minute
        if params.openai.tokens_per_minute:
            paces["tokens_per_minute"] = tokens / params.openai.tokens_per_minute
    if seconds is not None:
        pace = f"{seconds:.2g} s an answer as before" + (f", {at_once} at once" if at_once > 1 else "")
        paces[pace] = calls * seconds / at_once / 60
    if not calls:
        return 0.0, "nothing is to be asked"
    if not paces:
        return None, "no limit is given, and no answer is kept to judge the pace by"
    slowest = max(paces, key=lambda pace: paces[pace])
    return paces[slowest], slowest


def in_lines(found: Estimate, params: AnnotateParams) -> str:
    """Write an estimate as lines of text."""
    asking = params.language_model
    ways = f"{'both orders' if asking.both_orders else 'one order'}, {asking.votes} vote{'s' * (asking.votes > 1)} each"
    same = f", {found.identical:,} of the same text, which is a tie without a question" if found.identical else ""
    usual = "" if found.usual_output is None else f"{found.usual_output:,.0f} if like the answers that are kept, "
    dated = f"  (prices of {found.price.date}: {found.price.source})" if found.price and found.price.source else ""
    lines = [
        ("annotator", found.annotator),
        ("pairs", f"{found.pairs:,}{same}"),
        ("questions", f"{found.distinct:,} distinct ({ways})"),
        ("answered", f"{found.answered:,} of them, in {asking.responses}"),
        *([("sent", f"{found.sent:,} more are in batches that wait to be fetched")] if found.sent else []),
        ("calls", f"{found.calls:,}, and one more for each answer that cannot be read"),
        ("tokens in", f"{found.input_tokens:,.0f} ({found.counted_by})"),
        ("tokens out", f"{usual}{found.most_output:,} at most"),
        ("money", f"{found.costs(found.price)}{dated}"),
        ("minutes", f"{in_minutes(found.minutes)} ({found.minutes_by})"),
    ]
    if found.batches:
        batch = found.price.in_batches() if found.price else None
        lines += [("in batches", f"{found.costs(batch)}; up to {BATCH_MINUTES:,} minutes for each round of batches")]
    lines += [("budget", said) for said in _budget(found, params)]
    width = max(len(name) for name, _ in lines) + 2
    return "".join(f"{name:<{width}}{said}\n" for name, said in lines)


def in_minutes(minutes: float | None) -> str:
    """Say a number of minutes; little is not nothing.

    >>> in_minutes(0.0), in_minutes(0.02), in_minutes(1442.0), in_minutes(None)
    ('0.0', 'below 0.1', '1,442.0', 'unknown')
    """
    if minutes is None:
        return "unknown"
    return "below 0.1" if 0 < minutes < 0.1 else f"{minutes:,.1f}"


def _budget(found: Estimate, params: AnnotateParams) -> Iterator[str]:
    """Say which limits may be reached."""
    batch = params.openai is not None and params.openai.mode == "batch" and found.batches
    price = found.price.in_batches() if found.price and batch else found.price
    yield from limits(
        params.budget,
        calls=found.calls,
        tokens=found.input_tokens + found.most_output,
        cost=price.of(found.input_tokens, found.most_output) if price else None,
        minutes=found.minutes,
        reached=f"may be reached, and then: {params.budget.on_limit}",
    )


def limits(
    budget: BudgetParams, *, calls: int, tokens: float, cost: float | None, minutes: float | None, reached: str
) -> Iterator[str]:
    """Say of each limit whether so much may reach it, and in that case what then is."""
    taken = (
        ("max_calls", budget.max_calls, calls),
        ("max_tokens", budget.max_tokens, tokens),
        ("max_cost", budget.max_cost, cost),
        ("max_minutes", budget.max_minutes, minutes),
    )
    for name, limit, most in taken:
        if limit is None:
            continue
        shown = in_words(limit) if name == "max_cost" else f"{limit:,}"
        if most is None and name == "max_cost":
            yield f"{shown} cannot be kept: the price is unknown (annotate.budget.prices)"
        elif most is None:
            yield f"{name} {shown}: nobody knows whether that suffices"
        else:
            yield f"{name} {shown}: {reached if most > limit else 'suffices'}"
