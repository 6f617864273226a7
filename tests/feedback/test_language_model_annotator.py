"""A chat model as annotator: which questions it asks, how often, and how it interprets the answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import log
from pathlib import Path

import pytest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Judgement, Pair, judge
from laurel.feedback.questions.pair import load_prompt
from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply, Withheld
from laurel.llm.responses import ResponseStore
from laurel.params import EnvParams
from played_model import PlayedModel, annotator, longer, questions


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))


@pytest.fixture
def store(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / "responses.db")


def test_the_answer_stands_for_the_text_in_whichever_order(adapter: EnvAdapter, store: ResponseStore) -> None:
    model = PlayedModel(longer)
    judgements = list(annotator(model, adapter, store).annotate([Pair("long text", "short"), Pair("a", "bcd")]))
    assert [judgement.p_first for judgement in judgements] == [1.0, 0.0]
    assert all(
        judgement.status == "ok" and judgement.swap_consistent and judgement.votes == 2 for judgement in judgements
    )
    assert [(answer.variant, answer.verdict) for answer in judgements[0].answers] == [(0, "first"), (1, "first")]
    assert len(model.requests) == 4


def test_a_model_that_follows_the_order_gives_a_tie(adapter: EnvAdapter, store: ResponseStore) -> None:
    model = PlayedModel(lambda *_: Reply('{"best_description": 1}'))
    (judgement,) = annotator(model, adapter, store).annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first, judgement.swap_consistent) == ("tie", 0.5, False)
    (alone,) = annotator(model, adapter, store, both_orders=False).annotate([Pair("a", "b")])
    assert (alone.status, alone.p_first, alone.swap_consistent) == ("ok", 1.0, None)
    assert len(model.requests) == 2, "the first order had been asked"


def test_judgements_come_in_order_and_requests_are_drawn_as_they_are_sent(
    adapter: EnvAdapter, store: ResponseStore
) -> None:
    asked = questions(300)
    model = PlayedModel(longer, in_flight=4)
    judgements = list(annotator(model, adapter, store).annotate(iter(asked)))
    expected = [longer(q.first, q.second, None).text for q in asked]  # type: ignore[arg-type]
    best = [json.loads(text)["best_description"] for text in expected]
    assert [judgement.p_first for judgement in judgements] == [{1: 1.0, 2: 0.0, None: 0.5}[number] for number in best]
    assert model.most_drawn <= 4


def test_log_probabilities_are_soft_labels(adapter: EnvAdapter, store: ResponseStore) -> None:
    def sure(first: str, _: str, request: ChatRequest) -> Reply:
        p = 0.8 if first == "good" else 0.3
        return Reply("", {"1": log(p), "2": log(1 - p)})

    (judgement,) = annotator(PlayedModel(sure), adapter, store, "answer_only").annotate([Pair("good", "bad")])
    assert judgement.p_first == pytest.approx((0.8 + 0.7) / 2)
    assert judgement.swap_consistent
    (tied,) = annotator(PlayedModel(sure), adapter, store, "answer_only", tie_band=0.3).annotate([Pair("good", "bad")])
    assert (tied.status, tied.p_first) == ("tie", 0.5)


def test_votes_are_drawn_independently(adapter: EnvAdapter, store: ResponseStore) -> None:
    def by_seed(first: str, second: str, request: ChatRequest) -> Reply:
        return Reply(f'{{"best_description": {2 if request.sampling.seed == 2 else 1}}}')

    (judgement,) = annotator(PlayedModel(by_seed), adapter, store, votes=3, both_orders=False).annotate(
        [Pair("a", "b")]
    )
    assert judgement.p_first == pytest.approx(2 / 3)
    assert [answer.vote for answer in judgement.answers] == [0, 1, 2]


def test_one_follow_up_where_an_answer_cannot_be_read(adapter: EnvAdapter, store: ResponseStore) -> None:
    def shy(first: str, second: str, request: ChatRequest) -> Reply:
        return longer(first, second, request) if len(request.messages) > 2 else Reply("Hm, let me think.")

    model = PlayedModel(shy)
    judgements = list(annotator(model, adapter, store).annotate(questions(20)))
    assert {judgement.status for judgement in judgements} <= {"ok", "tie"}
    assert len(model.requests) == 80
    assert model.requests[-1].messages[2].content == "Hm, let me think."
    assert len(store) == 80, "the unreadable answers are kept, too"


def test_an_answer_that_was_cut_off_is_asked_about_again_also_when_it_is_stored(
    adapter: EnvAdapter, store: ResponseStore
) -> None:
    """It may have gone on with "or 2": a whole verdict has an end."""

    def cut(first: str, second: str, request: ChatRequest) -> Reply:
        return (
            longer(first, second, request) if len(request.messages) > 2 else Reply("Answer: 1", finish_reason="length")
        )

    model = PlayedModel(cut)
    asked = [Pair("a", "bcd")]
    for calls in (4, 4):
        (judgement,) = annotator(model, adapter, store).annotate(asked)
        assert judgement.p_first == 0.0
        assert len(model.requests) == calls


def test_statuses_are_not_merged(adapter: EnvAdapter, store: ResponseStore) -> None:
    answers = {
        "mute": Reply("?!"),
        "down": Failure("the server is gone"),
        "shy": Reply('I cannot say. {"best_description": "abstain"}'),
    }
    model = PlayedModel(lambda first, second, _: answers[first if first in answers else second])
    asked = [Pair("mute", "x"), Pair("down", "x"), Pair("shy", "x")]
    judgements = list(annotator(model, adapter, store).annotate(asked))
    assert [judgement.status for judgement in judgements[:2]] == ["parse_failed", "api_failed"]
    assert judgements[2].status in ("abstain", "parse_failed")
    assert all(judgement.p_first is None for judgement in judgements)


SHY = Reply('I cannot say. {"best_description": "abstain"}')


@pytest.mark.parametrize("lost", [Failure("busy"), Reply("?!")])
def test_one_order_is_not_both(adapter: EnvAdapter, store: ResponseStore, lost: Reply | Failure) -> None:
    """A model that names whatever is shown first must not become certain where its other answer is missing."""
    model = PlayedModel(lambda first, second, _: lost if first == "b" else Reply('{"best_description": 1}'))
    (judgement,) = annotator(model, adapter, store).annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first, judgement.votes) == ("incomplete", None, 1)
    assert judgement.swap_consistent is None
    assert judgement.answers[0].verdict == "first", "what was said is kept"
    (alone,) = annotator(model, adapter, store, both_orders=False).annotate([Pair("a", "b")])
    assert (alone.status, alone.p_first) == ("ok", 1.0), "one order is all that was to be asked"


def test_declining_in_one_order_is_no_failure(adapter: EnvAdapter, store: ResponseStore) -> None:
    """All answers came and were read; a judge that declines in 3% of answers would fail in more than 5% of pairs."""
    model = PlayedModel(lambda first, second, _: SHY if first == "b" else Reply('{"best_description": 1}'))
    (judgement,) = annotator(model, adapter, store).annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first, judgement.votes) == ("abstain", None, 2)
    lost: dict[int | None, Reply] = {None: SHY, 1: Reply("?!"), 2: Reply("?!")}
    model = PlayedModel(
        lambda first, _, request: lost[request.sampling.seed] if first == "d" else longer(first, _, request)
    )
    (judgement,) = annotator(model, adapter, store, votes=3).annotate([Pair("c", "d")])
    assert judgement.status == "incomplete", "most answers of an order could not be read"


def test_log_probabilities_in_one_order_are_no_label_either(adapter: EnvAdapter, store: ResponseStore) -> None:
    def sure(first: str, _: str, request: ChatRequest) -> Reply | Failure:
        return Failure("busy") if first == "b" else Reply("", {"1": log(0.99), "2": log(0.01)})

    (judgement,) = annotator(PlayedModel(sure), adapter, store, "answer_only").annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first) == ("incomplete", None)


@pytest.mark.parametrize(
    ("read", "status", "p"),
    [({0, 1, 2}, "ok", 1.0), ({0, 1}, "ok", 1.0), ({0}, "incomplete", None), (set(), "parse_failed", None)],
)
@pytest.mark.parametrize("both_orders", [True, False])
def test_most_votes_of_an_order_must_be_read(
    adapter: EnvAdapter, store: ResponseStore, both_orders: bool, read: set[int], status: str, p: float | None
) -> None:
    def some(first: str, second: str, request: ChatRequest) -> Reply:
        return longer(first, second, request) if (request.sampling.seed or 0) in read else Reply("?!")

    judge = annotator(PlayedModel(some), adapter, store, votes=3, both_orders=both_orders)
    (judgement,) = judge.annotate([Pair("longer", "short")])
    assert (judgement.status, judgement.p_first) == (status, p)


def test_orders_count_alike_however_many_of_their_votes_were_read(adapter: EnvAdapter, store: ResponseStore) -> None:
    """Two of three votes are left of one order, three of the other: a model that minds the order alone says 1/2."""

    def first_shown(first: str, second: str, request: ChatRequest) -> Reply:
        return Reply("?!") if first == "b" and request.sampling.seed == 2 else Reply('{"best_description": 1}')

    (judgement,) = annotator(PlayedModel(first_shown), adapter, store, votes=3).annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first, judgement.votes) == ("tie", 0.5, 5)


def test_nothing_is_asked_twice(adapter: EnvAdapter, store: ResponseStore) -> None:
    asked = [*questions(50), *questions(50)] * 3
    model = PlayedModel(longer)
    first = list(annotator(model, adapter, store).annotate(asked))
    assert len(model.requests) == 100
    again = annotator(model, adapter, store)
    assert list(again.annotate(asked)) == first
    assert len(model.requests) == 100
    spent = {key: value for key, value in again.usage.items() if value}
    assert spent == {"cached": 600}, "no call, no token, no second, no dollar"
    assert len(list(annotator(PlayedModel(longer, name="other"), adapter, store).annotate(asked[:1]))) == 1
    assert len(store) == 102, "another model is another question"


def test_failures_are_asked_again_the_next_time(adapter: EnvAdapter, store: ResponseStore) -> None:
    down = PlayedModel(lambda *_: Failure("down"))
    assert [judgement.status for judgement in annotator(down, adapter, store).annotate(questions(3))] == [
        "api_failed"
    ] * 3
    up = PlayedModel(longer)
    assert "api_failed" not in [judgement.status for judgement in annotator(up, adapter, store).annotate(questions(3))]
    assert len(up.requests) == 6


def test_answers_before_a_refusal_are_kept_and_other_claims_released(adapter: EnvAdapter, store: ResponseStore) -> None:
    calls = 0

    def refuses(first: str, second: str, request: ChatRequest) -> Reply:
        nonlocal calls
        calls += 1
        if calls > 7:
            raise RefusedError("the key has expired")
        return longer(first, second, request)

    with pytest.raises(RefusedError, match="expired"):
        list(annotator(PlayedModel(refuses), adapter, store).annotate(questions(20)))
    assert len(store) == 7
    other = ResponseStore(store.path)
    model = PlayedModel(longer)
    assert len(list(annotator(model, adapter, other).annotate(questions(20)))) == 20
    assert len(model.requests) == 40 - 7


def test_another_process_is_waited_for(
    adapter: EnvAdapter, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ResponseStore(store.path)
    asked = questions(2)
    theirs = annotator(PlayedModel(longer), adapter, other).annotate(asked)
    mine = annotator(PlayedModel(longer), adapter, store)
    slow: list[Judgement] = []

    def sleeps(_: float) -> None:
        slow.extend(theirs)  # the other process gets its answers meanwhile

    monkeypatch.setattr("laurel.feedback.asker.sleep", sleeps)
    key = mine._asker._keys.of(asked[0])
    assert other.claim([key]) == {key}
    assert list(mine.annotate(asked)) == slow
    assert mine.usage["calls"] == 3
    assert mine.usage["cached"] == 1


def test_memory_does_not_grow_with_the_questions(
    adapter: EnvAdapter, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.feedback.asker.BLOCK", 10)
    drawn = 0

    def stream() -> Iterator[Pair]:
        nonlocal drawn
        for question in questions(200):
            drawn += 1
            yield question

    judgements = annotator(PlayedModel(longer), adapter, store).annotate(stream())
    next(judgements)
    assert drawn == 10
    assert len(list(judgements)) == 199


def test_a_model_may_be_offered_many_questions_at_once(
    adapter: EnvAdapter, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laurel.feedback.asker.BLOCK", 10)
    rounds = []

    class Patient(PlayedModel):
        at_once = 100

        def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
            drawn = list(requests)
            rounds.append(len(drawn))
            return super().ask(drawn)

    asked = questions(150)
    expected = list(annotator(PlayedModel(longer), adapter, ResponseStore(Path(":memory:"))).annotate(asked))
    assert list(annotator(Patient(longer), adapter, store).annotate(asked)) == expected
    assert [size for size in rounds if size] == [200, 100]


def test_questions_beyond_the_budget_are_neither_asked_nor_failed(adapter: EnvAdapter, store: ResponseStore) -> None:
    answers = {"no": Withheld("spent"), "shy": Reply("Hm."), "yes": Reply('{"best_description": 1}', None, 10, 5)}

    def answer(first: str, second: str, request: ChatRequest) -> Reply | Failure:
        if len(request.messages) > 2:
            return Withheld("spent")
        return answers[first if first in answers else second]

    asked = [Pair("no", "x"), Pair("shy", "x"), Pair("yes", "x")]
    judge = annotator(PlayedModel(answer), adapter, store)
    judgements = list(judge.annotate(asked))
    assert [judgement.status for judgement in judgements] == ["unasked", "unasked", "tie"]
    assert (judge.usage["calls"], judge.usage["failures"]) == (4, 0)
    half = PlayedModel(lambda first, second, _: Withheld("spent") if first == "b" else Reply('{"best_description": 1}'))
    (judgement,) = annotator(half, adapter, store).annotate([Pair("a", "b")])
    assert (judgement.status, judgement.p_first) == ("unasked", None), "half of it is kept for the next run"
    assert len(list(annotator(PlayedModel(longer), adapter, store).annotate(asked))) == 3, "it may be asked later"


def test_the_name_has_the_model_and_prompt(adapter: EnvAdapter, store: ResponseStore) -> None:
    judge = annotator(PlayedModel(longer), adapter, store, "steered", goal="You keep the door shut.")
    digest = load_prompt("steered").digest[:8]
    assert judge.name == f'played (prompt steered {digest}, goal "You keep the door shut.")'
    assert not judge.simulated


# ---- reports of progress ----


def test_progress_counts_answers_that_arrive_out_of_order(adapter: EnvAdapter, store: ResponseStore) -> None:
    """Judgements come in order; how far the run is, and how long it takes, must not depend on the slowest one."""
    model = LateModel(longer)
    settled: list[tuple[int, bool, int]] = []
    judged: list[Judgement] = []

    def note(number: int, *, stored: bool) -> None:
        settled.append((number, stored, len(judged)))

    for _ in range(2):
        judged.clear()
        judged.extend(judge(annotator(model, adapter, store), [Pair("x", "x"), *questions(20)], note))
    asked = [number for number, stored, done in settled if not stored and done == 0]
    assert sum(asked) == 20, "all but the identical texts, and all before the first was yielded"
    assert sum(number for number, stored, _ in settled if stored) == 22
    assert settled[18][2] == 0


class LateModel(PlayedModel):
    """Answers what was asked first last."""

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        yield from (self._reply(number, request) for number, request in reversed(list(enumerate(requests))))


def test_a_failure_is_reported_when_it_first_happens(
    adapter: EnvAdapter, store: ResponseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = [*(f"the prompt has {number} tokens" for number in range(5)), "no", *("x" * n for n in range(1, 10))]
    answers = [Failure(reasons[0]), Withheld("no budget"), *map(Failure, reasons[1:])]
    model = PlayedModel(lambda *_: answers.pop(0), in_flight=1, name="m")
    list(annotator(model, adapter, store, both_orders=False).annotate(questions(len(answers))))
    said = [line.partition("may recur: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["the prompt has 0 tokens", "no", "x", "xx", "xxx"], "once each, and not all of them"
