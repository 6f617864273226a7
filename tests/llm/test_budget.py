"""A budget is never exceeded, whatever answers cost, and no affordable question is skipped."""

from __future__ import annotations

import datetime
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.llm.budget import Budget, BudgetedChat, BudgetError
from laurel.llm.chat import ChatRequest, Failure, Identity, Message, Reply, Sampling, Stopped, Tokens, Withheld
from laurel.llm.prices import Price
from laurel.llm.spending import Ledger, Spending
from laurel.params.annotation import BudgetParams

PRICE = Price(model="m", date=datetime.date(2026, 1, 31), source="here", input=10.0, output=100.0)


class PlayedModel:
    """Answers some requests at a time, the youngest first."""

    def __init__(self, answer: Callable[[int], Reply | Failure], in_flight: int = 5) -> None:
        self.identity = Identity("m", endpoint="http://here/v1")
        self.asked = 0
        self.rounds = 0
        self.most_at_once = 0
        self._answer, self._in_flight = answer, in_flight

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        self.rounds += 1
        waiting: list[int] = []
        for number, _ in enumerate(requests):
            self.asked += 1
            waiting.append(number)
            self.most_at_once = max(self.most_at_once, len(waiting))
            if len(waiting) == self._in_flight:
                yield waiting[-1], self._answer(waiting.pop())
        while waiting:
            yield waiting[-1], self._answer(waiting.pop())


def questions(n: int, length: int = 40, longest: int = 100) -> list[ChatRequest]:
    return [ChatRequest((Message("user", f"{i:0{length}}"),), Sampling(max_tokens=longest)) for i in range(n)]


def tokens(question: int, answer: int) -> Callable[[int], Reply]:
    return lambda number: Reply(str(number), None, question, answer)


def nothing(spending: Spending) -> bool:
    return max(abs(part) for part in (spending.calls, spending.tokens, spending.cost)) < 1e-9


def spend(
    model: PlayedModel, requests: list[ChatRequest], price: Price | None = PRICE, **limits: object
) -> tuple[Budget, dict[int, Reply | Failure]]:
    budget = Budget(BudgetParams(**{"on_limit": "continue", **limits}))  # type: ignore[arg-type]
    answers = list(BudgetedChat(model, budget, price).ask(iter(requests)))
    assert sorted(number for number, _ in answers) == list(range(len(requests))), "each has one answer"
    assert nothing(budget.on_its_way)
    return budget, dict(answers)


def test_attempts_that_were_billed_without_an_answer_are_spent() -> None:
    answers: list[Reply | Failure] = [Failure("no choice", Tokens(100, 1)), Reply("1", None, 10, 5, lost=Tokens(20, 2))]
    budget, _ = spend(PlayedModel(lambda number: answers[number]), questions(2))
    assert (budget.spent.calls, budget.spent.tokens) == (2, 138)
    assert budget.spent.cost == pytest.approx((130 * 10 + 8 * 100) * 1e-6)
    budget, _ = spend(PlayedModel(lambda _: Withheld("not awaited", Tokens(100, 1))), questions(1))
    assert (budget.spent.calls, budget.spent.tokens) == (0, 101)


def test_a_spent_budget_says_which_answers_count_as_their_maximum() -> None:
    budget, _ = spend(PlayedModel(lambda number: Reply("1")), questions(3), max_tokens=300)
    assert budget.uncounted == 2
    assert ": 2 calls (2 came without a token count, and count as their maximum), " in budget.summary()


def withheld(answers: dict[int, Reply | Failure]) -> list[int]:
    return sorted(number for number, answer in answers.items() if isinstance(answer, Withheld))


def test_calls() -> None:
    model = PlayedModel(tokens(10, 5))
    budget, answers = spend(model, questions(30), max_calls=17)
    assert model.asked == 17
    assert withheld(answers) == list(range(17, 30))
    assert budget.reached == "17 calls (annotate.budget.max_calls)"
    assert answers[29] == Withheld("the budget of 17 calls (annotate.budget.max_calls) was spent")


def test_failed_requests_count_as_calls() -> None:
    model = PlayedModel(lambda number: Failure("no") if number % 2 else Reply("x", None, 1, 1))
    _, answers = spend(model, questions(30), max_calls=10)
    assert len(withheld(answers)) == 20


def test_a_sufficient_budget_skips_no_question() -> None:
    for n, limit in ((17, 17), (17, 100), (0, 1)):
        budget, answers = spend(PlayedModel(tokens(10, 5)), questions(n), max_calls=limit)
        assert not withheld(answers)
        assert budget.reached is None


@given(st.integers(1, 60), st.integers(1, 100), st.integers(100, 8000), st.integers(1, 20), st.integers(0, 60))
def test_tokens_are_never_overspent_and_used_up_nearly(
    question: int, answer: int, limit: int, in_flight: int, n: int
) -> None:
    """Questions have 10 tokens as estimated, up to six times as many in truth."""
    model = PlayedModel(tokens(question, answer), in_flight)
    budget, answers = spend(model, questions(n), max_tokens=limit)
    spent = (n - len(withheld(answers))) * (question + answer)
    assert budget.spent.tokens == spent
    underestimated = max(0, question - 10) * in_flight
    assert spent <= limit + underestimated
    if withheld(answers):
        assert spent >= limit * 0.99 - max(question, 10) - 100, "there was room for another"


def test_token_counts_of_answers_correct_the_estimate() -> None:
    """Questions have six times as many tokens as estimated; one alone is drawn before that is known."""
    budget, answers = spend(PlayedModel(tokens(60, 100), in_flight=1), questions(60), max_tokens=1750)
    assert budget.spent.tokens == 10 * 160
    assert len(withheld(answers)) == 50


def test_answers_that_are_shorter_than_they_may_be_leave_room_for_more() -> None:
    model = PlayedModel(tokens(10, 10), in_flight=50)
    budget, answers = spend(model, questions(200, longest=1000), max_tokens=2020)
    assert budget.spent.tokens >= 0.98 * 2020, "though only two fit by what they may take"
    assert len(withheld(answers)) == 200 - budget.spent.calls


def test_one_short_answer_does_not_let_a_round_of_long_ones_exceed_the_limit() -> None:
    model = PlayedModel(lambda _: Reply("x", None, 10, 10 if model.asked == 1 else 1000), in_flight=1000)
    budget, _ = spend(model, questions(300, longest=4096), max_tokens=6000)
    assert 5000 < budget.spent.tokens <= 6000


def test_money() -> None:
    cost = PRICE.of(10, 100)
    model = PlayedModel(tokens(10, 100))
    budget, answers = spend(model, questions(30), max_cost=cost * 7.5)
    assert len(answers) - len(withheld(answers)) == 7
    assert budget.spent.cost == pytest.approx(cost * 7)
    assert budget.reached == "$0.07575 (annotate.budget.max_cost)", "in full, since it stands beside what was spent"
    assert budget.summary().endswith(" is spent: 7 calls, 770 tokens, $0.0707.")


def test_answers_without_token_counts_count_as_the_maximum() -> None:
    budget, answers = spend(PlayedModel(lambda _: Reply("x")), questions(30), max_tokens=550)
    assert len(answers) - len(withheld(answers)) == 5
    assert budget.spent.tokens == 550


def test_the_maximum_is_not_that_of_the_answers_so_far() -> None:
    """Two requests fit at first, whose answers are short."""
    model = PlayedModel(lambda _: Reply("x", None, 10, 1) if model.rounds == 1 else Reply("x"))
    budget, _ = spend(model, questions(30), max_tokens=230)
    assert budget.uncounted
    assert budget.spent.tokens == 2 * 11 + budget.uncounted * 110


def test_an_unknown_price_with_a_limit_to_the_money_is_refused_before_the_first_call() -> None:
    model = PlayedModel(tokens(10, 5))
    limited = BudgetedChat(model, Budget(BudgetParams(max_cost=1.0)), None)
    with pytest.raises(BudgetError, match=r'the price of "m" at http://here/v1 is unknown: .*annotate.budget.prices'):
        list(limited.ask(questions(1)))
    assert list(limited.ask(questions(0))) == [], "all answers may be in the store"
    assert model.asked == 0
    _, answers = spend(PlayedModel(tokens(10, 5)), questions(3), None, max_calls=2)
    assert withheld(answers) == [2]


def test_minutes() -> None:
    now = 0.0
    model = PlayedModel(tokens(10, 5), in_flight=4)
    budget = Budget(BudgetParams(max_minutes=1.0, on_limit="continue"), lambda: now)
    answers = {}
    for number, answer in BudgetedChat(model, budget, None).ask(questions(50)):
        answers[number] = answer
        now += 5.0
    assert model.asked == 12 + 3, "what was on its way is waited for"
    assert len(withheld(answers)) == 35
    assert budget.reached == "1 minutes (annotate.budget.max_minutes)"


def test_the_clock_starts_with_the_first_question() -> None:
    now = 0.0
    budget = Budget(BudgetParams(max_minutes=1.0, on_limit="continue"), lambda: now)
    now = 3600.0
    assert budget.seconds_left() == 60.0
    answers = dict(BudgetedChat(PlayedModel(tokens(1, 1)), budget, None).ask(questions(3)))
    assert not withheld(answers)


def test_stop_raises_after_every_answer_was_handed_over() -> None:
    budget = Budget(BudgetParams(max_calls=10))
    seen: list[tuple[int, Reply | Failure]] = []
    with pytest.raises(BudgetError) as caught:
        seen.extend(BudgetedChat(PlayedModel(tokens(10, 5)), budget, PRICE).ask(questions(30)))
    assert str(caught.value) == (
        "The budget of 10 calls (annotate.budget.max_calls) is spent: 10 calls, 150 tokens, $0.006. Every answer is "
        "kept. Run the same command again, with a higher limit or to spend the same amount again: it resumes where "
        "this run ended. With annotate.budget.on_limit: continue, it uses the answers so far, except where a model "
        "acts, hints or writes rewards."
    )


def test_a_limit_below_one_question_does_not_send_anyone_to_the_same_command() -> None:
    budget = Budget(BudgetParams(max_tokens=100))
    with pytest.raises(BudgetError, match=r"allows for no question: one takes up to 110 tokens.*Raise the") as caught:
        list(BudgetedChat(PlayedModel(tokens(10, 5)), budget, None).ask(questions(3)))
    assert "same command" not in str(caught.value)


def test_on_limit_stop_passes_if_nothing_is_missing() -> None:
    budget = Budget(BudgetParams(max_calls=10))
    model = BudgetedChat(PlayedModel(tokens(10, 5)), budget, None)
    assert len(list(model.ask(questions(10)))) == 10
    assert list(model.ask([])) == []
    with pytest.raises(BudgetError):
        list(model.ask(questions(1)))


def test_models_that_share_a_budget_spend_it_together() -> None:
    budget = Budget(BudgetParams(max_calls=10, on_limit="continue"))
    both = [BudgetedChat(PlayedModel(tokens(10, 5)), budget, None) for _ in range(2)]
    asked = [8 - len(withheld(dict(model.ask(questions(8))))) for model in both]
    assert asked == [8, 2]


def test_what_a_model_withholds_itself_is_not_spent() -> None:
    model = PlayedModel(lambda number: Withheld("not waited for") if number > 2 else Reply("x", None, 1, 1))
    budget, _ = spend(model, questions(8), max_minutes=5.0)
    assert budget.spent.calls == 3
    assert budget.reached == "not waited for"
    with pytest.raises(BudgetError):
        spend(model, questions(8), max_minutes=5.0, on_limit="stop")


def test_an_error_releases_pending_requests(tmp_path: Path) -> None:
    def fails(number: int) -> Reply:
        raise RuntimeError

    budget = Budget(BudgetParams(max_calls=10).kept_in(tmp_path / "spending.db"))
    with pytest.raises(RuntimeError):
        list(BudgetedChat(PlayedModel(fails), budget, None).ask(questions(30)))
    assert nothing(budget.on_its_way)
    assert all(map(nothing, Ledger(tmp_path / "spending.db").others())), "other processes need not wait for it"


def test_a_question_that_is_not_repeated_after_an_error_spends_no_budget() -> None:
    """An online judge asks again with the same budget."""
    budget = Budget(BudgetParams(max_calls=10))
    list(BudgetedChat(PlayedModel(lambda _: Stopped("", Tokens(5, 1))), budget, None).ask(questions(1)))
    assert (budget.reached, budget.spent.tokens) == (None, 6)


def test_a_request_is_expected_to_take_what_the_longest_answer_did_and_no_less_than_estimated() -> None:
    answers = [Reply("x", None, 2, 30), Reply("x", None, 2, 4)]
    model = BudgetedChat(PlayedModel(answers.__getitem__, in_flight=1), Budget(BudgetParams()), None)
    (request, *_), _ = questions(2), list(model.ask(questions(2)))
    assert model._most(request, again=True).tokens == 10 + 30
    assert model._most(request, again=False).tokens == 10 + 100


@given(st.integers(1, 1000), st.integers(1, 20))
def test_shares_add_up(limit: int, of: int) -> None:
    params = BudgetParams(max_calls=limit, max_tokens=3 * limit, max_cost=1.0, max_minutes=5.0)
    shares = [params.share(number, of) for number in range(of)]
    assert sum(share.max_calls or 0 for share in shares) == limit
    assert sum(share.max_tokens or 0 for share in shares) == 3 * limit
    assert sum(share.max_cost or 0.0 for share in shares) == pytest.approx(1.0)
    assert {share.max_minutes for share in shares} == {5.0}, "they run at the same time"
    assert BudgetParams().share(0, of) == BudgetParams()


def test_a_budget_is_passed_to_worker_processes() -> None:
    assert pickle.loads(pickle.dumps(Budget(BudgetParams()))).spent == Spending()


# -- processes that share a budget ------------------------------------------------------------------------------
def test_processes_that_share_a_budget_stay_within_it_together(tmp_path: Path) -> None:
    params = BudgetParams(max_calls=20, on_limit="continue").kept_in(tmp_path / "spending.db")
    models = [PlayedModel(tokens(5, 5), in_flight=2) for _ in range(3)]
    budgets = [Budget(params) for _ in models]

    def ask(model: PlayedModel, budget: Budget) -> int:
        return sum(isinstance(reply, Reply) for _, reply in BudgetedChat(model, budget, PRICE).ask(questions(15)))

    with ThreadPoolExecutor(3) as threads:
        answered = list(threads.map(ask, models, budgets))
    assert sum(answered) == sum(model.asked for model in models) == 20
    assert max(answered) <= 15
    (reached,) = {budget.summary() for budget in budgets if budget.reached}
    assert "is spent: 20 calls" in reached
    alone = Budget(params.kept_in(None))
    assert sum(isinstance(reply, Reply) for _, reply in BudgetedChat(models[0], alone, PRICE).ask(questions(15))) == 15


def test_what_others_have_reserved_but_not_spent_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "spending.db"
    other, pid = Ledger(file), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    other.note(Spending(1), Spending(9))
    monkeypatch.setattr(os, "getpid", lambda: pid)
    params = BudgetParams(max_calls=10).kept_in(file)
    release = threading.Timer(0.3, other.note, (Spending(2), Spending()))
    release.start()
    answers = list(BudgetedChat(PlayedModel(tokens(5, 5)), Budget(params), PRICE).ask(questions(8)))
    release.join()
    assert len(answers) == 8


def test_a_process_does_not_wait_for_what_it_has_reserved_itself(tmp_path: Path) -> None:
    params = BudgetParams(max_calls=4, on_limit="continue").kept_in(tmp_path / "spending.db")
    first, second = (
        BudgetedChat(PlayedModel(tokens(5, 5), in_flight=2), Budget(params), PRICE).ask(questions(3)) for _ in range(2)
    )
    next(first)
    spent, _, reserved = Ledger(tmp_path / "spending.db").others()
    assert (spent.calls, reserved.calls) == (1, 1), "others see what is on its way"
    assert len(list(second)) == 3, "answered, as far as the limit allows, or withheld"


def test_what_others_reserve_between_two_looks_spends_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = BudgetParams(max_calls=10).kept_in(tmp_path / "spending.db")
    other, budget, pid = Ledger(tmp_path / "spending.db"), Budget(params), os.getpid()
    waits, looked = budget.waits, list[bool]()

    def then_others_reserve(more: Spending, slack: float = 0.0) -> bool:
        found = waits(more, slack)
        if not looked:
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
            other.note(Spending(), Spending(10))
            monkeypatch.setattr(os, "getpid", lambda: pid)
            threading.Timer(0.3, other.note, (Spending(), Spending())).start()
        looked.append(found)
        return found

    monkeypatch.setattr(budget, "waits", then_others_reserve)
    other.note(Spending(), Spending())
    first = iter(questions(1))
    answers = list(BudgetedChat(PlayedModel(tokens(5, 5)), budget, PRICE).ask([*first, *questions(3)]))
    assert all(isinstance(answer, Reply) for _, answer in answers)
    assert len(answers) == 4


@pytest.mark.parametrize(
    ("limits", "spent"),
    [(BudgetParams(max_tokens=1000), Spending(tokens=985)), (BudgetParams(max_cost=10.0), Spending(cost=9.85))],
)
def test_a_share_of_tokens_and_money_can_be_kept_free(limits: BudgetParams, spent: Spending) -> None:
    budget = Budget(limits)
    assert budget.exceeded_by(spent) is None
    assert budget.exceeded_by(spent, slack=0.01) is None
    assert budget.exceeded_by(spent, slack=0.02) is not None


def test_a_budget_that_is_passed_on_does_not_count_twice(tmp_path: Path) -> None:
    budget = Budget(BudgetParams(max_calls=10).kept_in(tmp_path / "spending.db"))
    budget.spent = Spending(4)
    budget.note()
    passed: Budget = pickle.loads(pickle.dumps(budget))
    assert passed.exceeded_by(Spending(6)) is None
    assert passed.exceeded_by(Spending(7)) is not None


def test_a_restarted_process_goes_on_with_its_own_spending(tmp_path: Path) -> None:
    params = BudgetParams(max_calls=10).kept_in(tmp_path / "spending.db")
    for _ in range(2):
        judge = Budget(params, account="judge")
        judge.spent = Spending(8)
        judge.note()
    assert judge.exceeded_by(Spending(2)) is None
    assert Budget(params).exceeded_by(Spending(2)) is None
    assert Budget(params).exceeded_by(Spending(3)) is not None
