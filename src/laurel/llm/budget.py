"""Budgets of calls, tokens, money and minutes, and a chat model that stays within one.

When a request is taken, its maximum usage is reserved: one call, its estimated input, and the maximum length of its
answer. The actual usage replaces the reservation once the answer arrives. After the first round an answer is expected
to be no longer than the longest so far, but only for as many pending requests as have been answered. So a limit can
only be exceeded by the underestimated input of pending requests, and by answers that are longer than all before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from laurel.errors import AnnotationError
from laurel.llm.chat import ChatModel, ChatRequest, Failure, Identity, Reply, Withheld
from laurel.llm.chat_wire import input_tokens_of, longest_answer
from laurel.llm.prices import Price, in_full
from laurel.llm.spending import Ledger, Spending
from laurel.params.annotation import BudgetParams

SLACK = 0.01
"""With less than this share of a limit left, no further round of requests is made."""
KEY = "annotate.budget"
POLL_SECONDS = 0.1
"""Pause until other processes may have released what they reserved."""


class BudgetError(AnnotationError):
    """A budget is spent, or cannot be enforced."""


class Budget:
    """The limits of a stage and its spending; all models that it asks share it, in all of its processes.

    Args:
        account: as `laurel.llm.spending.Ledger`, where processes share the params.
    """

    def __init__(
        self, params: BudgetParams, clock: Callable[[], float] = time.monotonic, account: str | None = None
    ) -> None:
        self.params = params
        self._ledger = Ledger(params.ledger, account) if params.ledger and params.limited else None
        self.spent = Spending()
        self.on_its_way = Spending()
        self.reached: str | None = None
        """The limit that was reached, as text; None so far."""
        self.uncounted = 0
        """Answers of this process without a token count, each of which is spent as its maximum."""
        self.changed: Callable[[], None] = _ignore  # a function of this module, so that budgets can be pickled
        """Called before each request is sent and after each answer, once both amounts are up to date."""
        self.answered: Callable[[], None] = _ignore
        """Called after each answer, whether anything is limited or not."""
        self._limits = Spending(
            *(
                float("inf") if limit is None else limit
                for limit in (params.max_calls, params.max_tokens, params.max_cost)
            )
        )
        self._clock = clock
        self.began: float | None = None
        """When the clock was started, in its seconds; None before that."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was spent where processes share a file, since another one notes only its own there."""
        zeroed = {"spent": Spending(), "on_its_way": Spending(), "uncounted": 0} if self._ledger else {}
        return {**vars(self), **zeroed}

    def begin(self) -> None:
        """Start the clock, unless it is running."""
        self.began = self._clock() if self.began is None else self.began

    def seconds_left(self) -> float:
        """Return the time left; infinite without a limit."""
        if self.params.max_minutes is None:
            return float("inf")
        begun = self._clock() if self.began is None else self.began
        return begun + 60 * self.params.max_minutes - self._clock()

    def summary(self) -> str:
        """Return the limit that was reached and what was spent, as a sentence."""
        spent = self.spent + self._others()[0]
        cost = f", {in_full(spent.cost)}" if spent.cost else ""
        note = f" ({self.uncounted:,} came without a token count, and count as their maximum)" if self.uncounted else ""
        return (
            f"The budget of {self.reached} is spent: {spent.calls:,.0f} calls{note}, {spent.tokens:,.0f} tokens{cost}."
        )

    def alone(self) -> AbstractContextManager[object]:
        """Return the block in which no other process reserves."""
        return self._ledger.alone() if self._ledger else nullcontext()

    def note(self) -> None:
        """Tell other processes what this one has spent and reserved."""
        if self._ledger:
            self._ledger.note(self.spent, self.on_its_way)

    def _others(self) -> tuple[Spending, Spending, Spending]:
        return self._ledger.others() if self._ledger else (Spending(), Spending(), Spending())

    def is_too_small_for(self, amount: Spending) -> bool:
        """Whether an amount alone exceeds the limits on tokens or cost, and nothing was spent before."""
        unspent = not (self.spent + self._others()[0]).calls
        return unspent and (amount.tokens > self._limits.tokens or amount.cost > self._limits.cost)

    def waits(self, amount: Spending, slack: float = 0.0) -> bool:
        """Whether an amount would fit but for reservations of other processes, which may not spend all of them."""
        return (
            self.exceeded_by(amount, slack) is not None
            and self.exceeded_by(amount, slack, reserved_elsewhere=False) is None
        )

    def exceeded_by(self, amount: Spending, slack: float = 0.0, *, reserved_elsewhere: bool = True) -> str | None:
        """Return the limit that this amount would exceed, as text; None if it fits.

        Args:
            amount: amount in addition to what is already spent or reserved.
            slack: share of each limit on tokens and cost that must stay free.
            reserved_elsewhere: count reservations of other processes, which may not spend all of them. Those of other
                askers in this process always count: waiting for them would never end.
        """
        if self.seconds_left() <= 0:
            return f"{self.params.max_minutes:g} minutes ({KEY}.max_minutes)"
        spent, elsewhere, sharing = self._others()
        total = (
            self.spent + self.on_its_way + amount + spent + sharing + (elsewhere if reserved_elsewhere else Spending())
        )
        if total.calls > self._limits.calls:
            return f"{self.params.max_calls:,} calls ({KEY}.max_calls)"
        if total.tokens > self._limits.tokens * (1 - slack):
            return f"{self.params.max_tokens:,} tokens ({KEY}.max_tokens)"
        if total.cost > self._limits.cost * (1 - slack):
            return f"{in_full(self._limits.cost)} ({KEY}.max_cost)"
        return None


def _ignore() -> None:
    """Do nothing."""


def check_price(params: BudgetParams, identity: Identity, price: Price | None) -> None:
    """Refuse to ask a model whose price is unknown if its cost is limited.

    Raises:
        BudgetError: it is.
    """
    if price is None and params.max_cost is not None:
        raise BudgetError(
            f'{KEY}.max_cost is {in_full(params.max_cost)}, but the price of "{identity.model}" at '
            f"{identity.endpoint} is unknown: give it in a file that {KEY}.prices names, or set {KEY}.max_cost to null "
            "and limit the tokens."
        )


class BudgetedChat:
    """A `laurel.llm.chat.ChatModel` around another one; requests beyond the budget are withheld.

    Args:
        price: of its tokens; None if unknown.
    """

    def __init__(self, model: ChatModel, budget: Budget, price: Price | None) -> None:
        self.identity = model.identity
        self.at_once = getattr(model, "at_once", 0)
        self._model = model
        self._budget = budget
        self._price = price
        self._estimated = self._reported = 0.0
        self._longest = 0
        self._counted = 0
        """Answers with a token count so far."""

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield (number of the request, answer), Withheld for each request beyond the budget.

        Raises:
            RefusedError: every further request would fail in the same way.
            BudgetError: a cost is limited, but the price is unknown; or a limit is reached, and on_limit is stop, in
                which case all answers were yielded before.
        """
        budget, drawn = self._budget, _Drawn(requests)
        if drawn.peek() is not None:
            check_price(budget.params, self.identity, self._price)
        budget.begin()
        withheld = False
        again = False
        while budget.reached is None:
            for number, answer in self._round(drawn, again):
                if isinstance(answer, Withheld):
                    withheld = True
                    budget.reached = budget.exceeded_by(Spending(), reserved_elsewhere=False) or answer.reason
                yield number, answer
            following = drawn.peek()
            if following is None:
                break
            again = True
            while budget.waits(self._most(following, again), SLACK):
                time.sleep(POLL_SECONDS)
            upper = self._most(following, again)  # where others have reserved again, the next round asks nothing
            budget.reached = budget.reached or budget.exceeded_by(upper, SLACK, reserved_elsewhere=False)
        if budget.reached and budget.params.on_limit == "stop" and (withheld or drawn.peek() is not None):
            if (request := drawn.peek()) is not None and budget.is_too_small_for(
                upper := self._most(request, again=False)
            ):
                cost = f" and {in_full(upper.cost)}" if upper.cost else ""
                raise BudgetError(
                    f"The budget of {budget.reached} allows for no question: one takes up to {upper.tokens:,.0f} tokens"
                    f"{cost}, with an answer of {longest_answer(request):,} tokens (max_tokens). "
                    "Raise the limit, or lower max_tokens."
                )
            raise BudgetError(
                f"{budget.summary()} Every answer is kept. Run the same command again, with a higher limit or to "
                f"spend the same amount again: it resumes where this run ended. With {KEY}.on_limit: continue, it uses "
                "the answers so far, except where a model acts, hints or writes rewards."
            )
        while drawn.peek() is not None:
            number, _ = drawn.pop()
            yield number, Withheld(f"the budget of {budget.reached} was spent")

    def _round(self, drawn: _Drawn, again: bool) -> Iterator[tuple[int, Reply | Failure]]:
        """Ask as many requests as their maximum usage allows, and wait for all answers, after which the actual usage is
        known.

        Args:
            again: whether there was an earlier round, so that the typical length of answers is known.
        """
        budget = self._budget
        before = drawn.number
        reserved: dict[int, tuple[ChatRequest, Spending]] = {}

        def within() -> Iterator[ChatRequest]:
            while budget.exceeded_by(Spending()) is None and (request := drawn.peek()) is not None:
                upper = self._most(request, again and len(reserved) < self._counted)
                with budget.alone():
                    if budget.exceeded_by(upper, SLACK if again else 0.0):
                        return
                    number, _ = drawn.pop()
                    reserved[number] = request, upper
                    budget.on_its_way += upper
                    budget.note()
                budget.changed()
                yield request

        try:
            for inner, answer in self._model.ask(within()):
                request, upper = reserved.pop(before + inner)
                budget.on_its_way -= upper
                budget.spent += self._spent(request, answer)
                budget.note()
                budget.changed()
                yield before + inner, answer
        finally:
            for _, upper in reserved.values():
                budget.on_its_way -= upper
            budget.note()

    def _most(self, request: ChatRequest, again: bool) -> Spending:
        """Return the estimated maximum usage of a request, corrected by the answers so far."""
        question = input_tokens_of(request) * (max(1.0, self._reported / self._estimated) if self._estimated else 1.0)
        answer = longest_answer(request)
        if again and self._longest:
            answer = min(answer, self._longest)
        return Spending(1, question + answer, self._price.of(question, answer) if self._price else 0.0)

    def _spent(self, request: ChatRequest, answer: Reply | Failure) -> Spending:
        """Return the usage of an answer; the maximum possible usage if the answer does not report it."""
        lost = answer.lost
        cost = self._price.of(lost.input, lost.output, lost.cached) if self._price else 0.0
        in_vain = Spending(0, lost.input + lost.output, cost)
        if isinstance(answer, Withheld):  # a batch before the one that was not awaited may have been billed
            return in_vain
        if isinstance(answer, Failure):
            return Spending(1) + in_vain
        if answer.input_tokens is None or answer.output_tokens is None:
            self._budget.uncounted += 1
            return self._most(request, again=False) + in_vain
        self._estimated += input_tokens_of(request)
        self._reported += answer.input_tokens
        self._longest = max(self._longest, answer.output_tokens)
        self._counted += 1
        paid = self._price.of_reply(answer) if self._price else None
        return Spending(1, answer.input_tokens + answer.output_tokens, paid or 0.0) + in_vain


class _Drawn:
    """Numbered requests with look-ahead."""

    def __init__(self, requests: Iterable[ChatRequest]) -> None:
        self.number = 0
        """Number of the next request."""
        self._requests = iter(requests)
        self._next: ChatRequest | None = None

    def peek(self) -> ChatRequest | None:
        """Return the next one without taking it; None at the end."""
        if self._next is None:
            self._next = next(self._requests, None)
        return self._next

    def pop(self) -> tuple[int, ChatRequest]:
        """Take the next one, which must exist."""
        request = self.peek()
        assert request is not None
        self._next = None
        self.number += 1
        return self.number - 1, request
