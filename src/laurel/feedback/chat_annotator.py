"""Base of all annotators that ask a chat model: makes the asker, checks the prompt, estimates the cost.

`ChatAnnotator.asker` asks any kind of question with the model that the params name, not only about pairs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Account, Answer, Pair
from laurel.feedback.annotator_kind import Advice, AnnotatorKind, kind_of, remedy_of_ties, unsupported
from laurel.feedback.asker import AGAIN, FAILED, UNASKED, UNREAD, Asker
from laurel.feedback.estimate import Estimate
from laurel.feedback.goals import goal_in_words
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.language_model import LanguageModelAnnotator
from laurel.feedback.parsing import ABSTAIN
from laurel.feedback.prompt import Prompt
from laurel.feedback.question import Item, Question, Value
from laurel.feedback.questions.pair import PairQuestion
from laurel.feedback.text_judge import TextJudge
from laurel.llm.budget import Budget, BudgetedChat, BudgetError, check_price
from laurel.llm.chat import ChatModel, ChatRequest, Identity, LazyChat, Sampling
from laurel.llm.chat_wire import BYTES_PER_TOKEN, input_tokens_of, longest_answer
from laurel.llm.prices import Price, price_of, read_prices
from laurel.llm.responses import ResponseStore, Usual
from laurel.params.annotation import AnnotateParams
from laurel.progress import progress

SAMPLE = 1000
"""Number of questions whose tokens are counted, as a sample for all."""
JUDGES_OF_TEXTS = "openai, huggingface, embedding, scripted or another one that judges single texts"


class ChatAnnotator(AnnotatorKind):
    """A chat model defined by the params."""

    can_batch = False
    """Whether it could be asked in batches."""

    @abstractmethod
    def identity(self) -> tuple[Identity, bool]:
        """Return the model's identity, and whether the store may have its answers: not if its weights are missing."""

    @property
    def model_name(self) -> str:
        """The model's name for a reader; checks before a run read it, so a kind should not look at weights for it."""
        return self.identity()[0].model

    @abstractmethod
    def model(self, store: ResponseStore, budget: Budget, prompt: Prompt) -> ChatModel:
        """Load or connect to the model; errors as in `make`."""

    @property
    def sampling(self) -> Sampling:
        """Its sampling settings."""
        return Sampling(self.section.temperature, self.section.top_p, self.section.max_tokens)

    @property
    def title(self) -> str:
        return f"{self.params.annotator} {getattr(self.section, 'model', '')}".strip()

    @property
    def files(self) -> dict[str, str]:
        """The prompt, if it is a user's file."""
        prompt = self.params.language_model.prompt
        return {"language_model.prompt": prompt} if prompt.endswith(".jinja") else {}

    @property
    def in_batches(self) -> bool:
        """Whether it is asked in batches."""
        return False

    def scored(self, prompt: Prompt) -> bool:
        """Whether the probabilities of the prompt's choices are wanted.

        Raises:
            AnnotationError: the prompt does not fit the model.
        """
        return bool(prompt.choices)

    def writes(self, prompt: Prompt) -> bool:
        """Whether the model generates tokens, which take time and cost money."""
        return True

    def sent(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return which questions are in batches that were sent before: key -> batch."""
        return {}

    def count_tokens(self, requests: Sequence[ChatRequest]) -> tuple[float, str]:
        """Return the tokens of requests, and how they were counted."""
        return sum(map(input_tokens_of, requests)), f"estimated as bytes / {BYTES_PER_TOKEN}"

    def too_long(self, requests: Sequence[ChatRequest]) -> str | None:
        """Return in words which tokens the longest of the requests has, if the model takes fewer; None if unknown."""
        return None

    def paces(self, calls: int, tokens: float) -> tuple[dict[str, float], int]:
        """Return the minutes that these calls take under each rate limit, and the number of concurrent calls."""
        return {}, 1

    def check_question(self, question: Question[Item, Value]) -> None:
        """Refuse a question whose prompt does not fit the environment or the model.

        Raises:
            AnnotationError: it does not fit the model.
            PromptError: it does not fit the environment.
        """
        question.messages(question.sample)
        self.scored(question.prompt)

    def price(self, identity: Identity) -> Price | None:
        """Return the price of its tokens, live or in batches as configured; None if unknown.

        Raises:
            ParamsError: the table of prices that the params name cannot be read.
        """
        price = price_of(identity, self.params.budget.prices)
        return price.in_batches() if price and self.in_batches else price

    def check_price(self) -> None:
        """Refuse a limit to the cost if the price is unknown, before questions that are certain to be asked.

        Raises:
            BudgetError: it cannot be enforced.
            ParamsError: as `price`.
        """
        identity, _ = self.identity()
        check_price(self.params.budget, identity, self.price(identity))

    def sampled(self, votes: int, temperature: float, max_tokens: int) -> Self:
        """Return the same model, configured for several generated answers at a temperature.

        Raises:
            ParamsError: the model does not support these settings.
        """
        section = {"temperature": temperature, "max_tokens": max_tokens} | ({"mode": "generate"} if self.local else {})
        changes = {"language_model": {"votes": votes}, self.params.annotator: section}
        return type(self)(self.params.overridden(changes, f"annotate.{self.params.annotator}"))  # type: ignore[arg-type]

    def asker(
        self, question: Question[Item, Value], budget: Budget | None = None, *, lazy: bool = False
    ) -> Asker[Item, Value]:
        """Make an asker of this model for a question of any kind, with the votes, store and budget of the params.

        Args:
            budget: what asking may cost; None: as the params say.
            lazy: load a local model only once the store lacks an answer.

        Raises:
            AnnotationError: the model cannot be loaded, or cannot be asked in this prompt.
            PromptError: the prompt does not fit the environment.
            DataError: the store of answers cannot be used.
        """
        self.check_question(question)
        store = ResponseStore(self.params.language_model.store)
        budget = budget or Budget(self.params.budget)
        identity, is_local = self.identity()
        model: ChatModel
        if lazy and self.local and is_local:
            model = LazyChat(identity, lambda: self.model(store, budget, question.prompt))
        else:
            model = self.model(store, budget, question.prompt)
        price = self.price(model.identity)
        if budget.params.limited:
            model = BudgetedChat(model, budget, price)
        votes, gives_up = self.params.language_model.votes, self.params.max_failure_rate < 1
        return Asker(
            model,
            self.sampling,
            question,
            store,
            votes=votes,
            price=price,
            gives_up=gives_up,
            budget=budget,
            model_name=self.model_name,
        )

    def answers(
        self, question: Question[Item, Value], items: Sequence[Item], asking: str, account: Account
    ) -> Iterator[list[Answer[Value]]]:
        """Yield the answers about each item, in order, for a reward that learns from them.

        Args:
            asking: the parameter section that asks, such as `rewards.score`, for the progress and the error.
            account: the budget of the stage; usage is added to it, and a note if it does not allow all questions.

        Raises:
            AnnotationError: as `asker`; also if, in the end, more answers are missing or unreadable than
                annotate.max_failure_rate allows, or no answer has a value.
        """
        verdicts: Counter[str] = Counter()
        says = False
        asker = self.asker(question, account.budget, lazy=True)
        with account.counting(asker), progress(len(items), asking, "questions") as advance:
            asker.on_judged = lambda number, *, stored: advance(number, free=stored)
            for answers in asker.ask(items):
                verdicts.update(answer.verdict for answer in answers)
                says = says or any(answer.value is not None for answer in answers)
                yield answers
        asked, limit = verdicts.total() - verdicts[UNASKED], self.params.max_failure_rate
        if verdicts[UNASKED]:
            account.notes.append(
                f"{asking}: {asked:,} of {verdicts.total():,} questions were asked: the budget of "
                f"{account.budget.reached} was reached."
            )
        if says and verdicts[UNREAD] + verdicts[FAILED] <= limit * asked:
            return
        if not asked:
            reason, remedy = "no question was asked, since annotate.budget allows for none", "Raise it."
        else:
            answers_of = f"of {asked:,} answer{'s' * (asked != 1)}"
            missing = f"{verdicts[FAILED]:,} {'is' if verdicts[FAILED] == 1 else 'are'} missing"
            reason = f"{answers_of} {verdicts[UNREAD]:,} could not be read and {missing}"
            reason += f", {verdicts[ABSTAIN]:,} declined to say" if verdicts[ABSTAIN] and not says else ""
            reason += (
                f"; at most {limit:.0%} are allowed (annotate.max_failure_rate)" if says else ", and none has a value"
            )
            remedy = "They are kept: look at them with `laurel export responses`, and try another model or prompt."
            if verdicts[FAILED] > verdicts[UNREAD]:
                remedy = f"The others are kept. {AGAIN}"
        raise AnnotationError(f"{asking}: {reason}. {remedy}")

    def pair_question(self, adapter: EnvAdapter) -> PairQuestion:
        """Return the question about pairs in the prompt that the params name; errors as in the base class."""
        asking = self.params.language_model
        prompt = PairQuestion.load_prompt(asking.prompt)
        return PairQuestion(prompt, adapter, asking.goal, scored=self.scored(prompt), both_orders=asking.both_orders)

    def make(
        self, adapter: EnvAdapter, seed: int, captions: Collection[str] = (), *, budget: Budget | None = None
    ) -> LanguageModelAnnotator:
        asker = self.asker(self.pair_question(adapter), budget)
        return LanguageModelAnnotator(asker, self.params.language_model.tie_band)

    def check(self, adapter: EnvAdapter) -> None:
        """Refuse a prompt that does not fit the environment or the model."""
        self.check_question(self.pair_question(adapter))

    def check_here(self) -> None:
        """Refuse a table of prices that cannot be read."""
        if self.params.budget.prices is not None:
            read_prices(self.params.budget.prices)

    def missing_here(self) -> str | None:
        """Report a price that is unknown although the cost is limited: nothing new will be asked."""
        if self.params.budget.max_cost is None:
            return None
        try:
            self.check_price()
        except BudgetError as error:
            return str(error)
        return None

    def goal(self, adapter: EnvAdapter) -> str:
        return goal_in_words(adapter, self.params.language_model.goal)

    def has_other_goal(self, adapter: EnvAdapter) -> bool:
        return self.params.language_model.goal in adapter.goals

    @property
    def advice(self) -> Advice:
        asking = f"another prompt (annotate.language_model.prompt) or model (annotate.{self.params.annotator}.model)"
        aim = f"another goal (annotate.language_model.goal), {asking}"
        band = self.params.language_model.tie_band
        return Advice(asking=asking, aim=aim, ties=remedy_of_ties(band, "annotate.language_model.tie_band", aim))

    def estimate(self, adapter: EnvAdapter, pairs: Sequence[Pair], asked: Set[str] = frozenset()) -> Estimate:
        """Estimate the cost of asking about pairs: stored answers cost nothing; tokens of the others are counted."""
        different = [pair for pair in pairs if pair.first != pair.second]
        return self.estimate_of(self.pair_question(adapter), different, len(pairs) - len(different), asked)

    def estimate_of(
        self, question: Question[Item, Any], items: Sequence[Item], identical: int = 0, asked: Set[str] = frozenset()
    ) -> Estimate:
        """Estimate the cost of asking a question of any kind about items.

        Args:
            identical: number of further pairs with identical texts, which are not asked about.
            asked: keys of requests that are made earlier.
        """
        asking, prompt = self.params.language_model, question.prompt
        identity, is_local = self.identity()
        requests = {request.key: request for request in self._requests(identity, question, items)}
        stored, usual = _stored(asking.store, identity if is_local else None, prompt, list(requests))
        stored = stored | (requests.keys() & asked)
        pending = self.sent([key for key in requests if key not in stored])
        sent = pending if self.in_batches else {}
        to_ask = [request for key, request in requests.items() if key not in stored and key not in sent]
        awaited = [requests[key] for key in sent]
        sample = to_ask[:: max(len(to_ask) // SAMPLE, 1)]
        tokens, counted_by = self.count_tokens(sample)
        if len(sample) < len(to_ask):
            counted_by += f", in {len(sample):,} of them"
        input_tokens = tokens * len(to_ask) / max(len(sample), 1)
        writes = self.writes(prompt)
        usual_output = None if usual.output_tokens is None else usual.output_tokens * len(to_ask)
        # a server that does not keep to max_tokens may well answer with as much again
        most_output, sent_output = (
            sum(max(longest_answer(request), usual.longest or 0) for request in some) if writes else 0
            for some in (to_ask, awaited)
        )
        minutes, minutes_by = self._minutes(len(to_ask), input_tokens + most_output, usual.seconds)
        return Estimate(
            annotator=f"{self.model_name} (prompt {prompt.name} {prompt.digest[:8]})",
            model=self.model_name,
            pairs=len(items) + identical,
            identical=identical,
            distinct=len(requests),
            orders=question.variants,
            votes=asking.votes,
            responses=asking.responses,
            answered=len(stored),
            sent=len(sent),
            sent_input=self.count_tokens(awaited)[0],
            sent_output=sent_output,
            twice=len(pending) - len(sent),
            input_tokens=input_tokens,
            counted_by=counted_by,
            too_long=self.too_long(sample),
            most_output=most_output,
            usual_output=usual_output if writes else 0.0,
            single_price=price_of(identity, self.params.budget.prices),
            minutes=minutes,
            minutes_by=minutes_by,
            can_batch=self.can_batch,
            in_batches=self.in_batches,
            to_ask=frozenset(request.key for request in to_ask),
        )

    def asked(self, question: Question[Item, Any], items: Sequence[Item], request: str) -> str:
        """Return a line with what the model is asked, such as "is asked for scores", and the cost."""
        expected = self.estimate_of(question, items)
        calls = f"{expected.calls:,} call{'s' * (expected.calls != 1)} at most without follow-ups"
        return f"{expected.model} {request}: {calls}, cost {expected.costs(expected.price)}"

    def _requests(
        self, identity: Identity, question: Question[Item, Any], items: Sequence[Item]
    ) -> Iterator[ChatRequest]:
        """Yield all requests of a run, without follow-ups."""
        sampling = self.sampling
        keys = QuestionKeys(identity, question, sampling)
        for item in items:
            for variant in range(question.variants):
                messages = question.messages(item, variant)
                for vote in range(self.params.language_model.votes):
                    drawn, key = replace(sampling, seed=vote or None), keys.of(item, variant, vote)
                    yield ChatRequest(messages, drawn, question.choices, question.prompt.schema, key)

    def _minutes(self, calls: int, tokens: float, seconds: float | None) -> tuple[float | None, str]:
        """Return the minutes that live calls take, and the limiting factor."""
        paces, at_once = self.paces(calls, tokens)
        if seconds is not None:
            pace = f"{seconds:.2g} s an answer as before" + (f", {at_once} at once" if at_once > 1 else "")
            paces[pace] = calls * seconds / at_once / 60
        if not calls:
            return 0.0, "no questions are left"
        if not paces:
            return None, "no rate limit is set, and no stored answer shows the speed"
        slowest = max(paces, key=lambda pace: paces[pace])
        return paces[slowest], slowest


def judge_of_texts(
    params: AnnotateParams, adapter: EnvAdapter, key: str, cannot: str, seed: int = 0, captions: Collection[str] = ()
) -> ChatAnnotator | TextJudge:
    """Return the judge of single texts: a chat model, or the annotator's own `TextJudge`.

    Args:
        key: the reward's parameter, for the error.
        cannot: what an annotator that only judges pairs cannot do, such as "gives no scores".
        seed: for annotators that draw at random.
        captions: of single steps, which texts may consist of.

    Raises:
        AnnotationError: the annotator only judges pairs.
    """
    kind = kind_of(params)
    text_judge = kind if isinstance(kind, ChatAnnotator) else kind.text_judge(adapter, seed, captions)
    if text_judge is None:
        raise unsupported(kind, key, cannot, JUDGES_OF_TEXTS)
    return text_judge


def _stored(path: Path, identity: Identity | None, prompt: Prompt, keys: Sequence[str]) -> tuple[Set[str], Usual]:
    """Return which questions are answered, and the lengths of this model's answers with this prompt."""
    if identity is None or not path.exists():
        return frozenset(), Usual(None, None, None)
    with ResponseStore(path, read_only=True) as store:
        return store.get(keys).keys(), store.usual(identity, prompt.digest)
