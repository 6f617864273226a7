"""Ensembles of annotators: labels, ties, abstentions and failures; when members are loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator

import pytest

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.annotator import Answer, Judgement, Pair, Status
from laurel.feedback.annotators import ensemble as module
from laurel.feedback.annotators import make_annotator
from laurel.feedback.annotators.ensemble import EnsembleAnnotator, Member
from laurel.feedback.voting import voted
from laurel.params.annotation import AnnotateParams

OK, NO = Judgement("ok", 1.0), Judgement("ok", 0.0)
TIE, ABSTAIN = Judgement("tie", 0.5), Judgement("abstain", None)
UNREAD, FAILED = Judgement("parse_failed", None, 0), Judgement("api_failed", None, 0)


class Voter:
    """Gives one judgement, or what a rule says."""

    def __init__(
        self, says: Judgement | Callable[[Pair], Judgement], name: str = "voter", log: list[str] | None = None
    ):
        self.name, self.simulated = name, False
        self.says, self.log = says, log if log is not None else []
        self.prepared: list[Pair] = []
        self.asked = 0

    @property
    def usage(self) -> dict[str, int]:
        return {"calls": self.asked}

    def prepare(self, questions: Iterable[Pair]) -> None:
        self.prepared += questions

    def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
        for question in questions:
            self.log.append(self.name)
            self.asked += 1
            yield self.says if isinstance(self.says, Judgement) else self.says(question)


def ensemble(*says: Judgement, weights: tuple[float, ...] = (), tie_band: float = 0.0) -> EnsembleAnnotator:
    weights = weights or (1.0,) * len(says)
    members = [Member(lambda one=one: Voter(one), weight) for one, weight in zip(says, weights, strict=True)]  # type: ignore[misc]
    return EnsembleAnnotator(members, tie_band)


def vote(*says: Judgement, **more: object) -> Judgement:
    (judged,) = ensemble(*says, **more).annotate([Pair("a", "b")])  # type: ignore[arg-type]
    return judged


@pytest.mark.parametrize(
    ("says", "status", "p"),
    [
        ((OK, OK), "ok", 1.0),
        ((OK, OK, NO), "ok", 2 / 3),
        ((OK, NO), "tie", 0.5),
        ((OK, TIE), "ok", 0.75),
        ((TIE, TIE), "tie", 0.5),
        ((OK, ABSTAIN), "ok", 1.0),
        ((OK, OK, FAILED), "ok", 1.0),
        ((OK, FAILED), "incomplete", None),
        ((OK, ABSTAIN, FAILED), "incomplete", None),
        ((OK, FAILED, UNREAD), "incomplete", None),
        ((OK, Judgement("incomplete", None)), "incomplete", None),
        ((ABSTAIN, Judgement("incomplete", None)), "incomplete", None),
        ((TIE, UNREAD), "incomplete", None),
        ((ABSTAIN, UNREAD), "abstain", None),
        ((UNREAD, FAILED), "parse_failed", None),
        ((FAILED, FAILED), "api_failed", None),
        ((Judgement("ok", 0.9), Judgement("ok", 0.2)), "ok", 0.55),
    ],
)
def test_labels_are_means_without_missing_ones(says: tuple[Judgement, ...], status: str, p: float | None) -> None:
    for order in (says, says[::-1]):
        judged = vote(*order)
        assert judged.status == status
        assert judged.p_first == (None if p is None else pytest.approx(p))
        assert [member for _, member in judged.members] == list(order), "each member's own word is kept"


def test_a_mean_at_the_end_of_the_tie_band_is_a_tie() -> None:
    votes: list[tuple[Status, float | None]] = [("ok", 1.0), ("ok", 0.5)]
    assert voted([1, 1], votes, 0.25) == ("tie", 0.5)
    assert voted([1, 1], votes, 0.2) == ("ok", 0.75)
    split: list[tuple[Status, float | None]] = [("ok", 0.0)] * 3 + [("ok", 1.0)]
    assert voted([0.1, 0.1, 0.1, 0.3], split, 0.0) == ("tie", 0.5), "although 0.1 + 0.1 + 0.1 is above 0.3 in floats"


def test_weights_and_the_tie_band() -> None:
    assert vote(OK, NO, weights=(3.0, 1.0)).p_first == 0.75
    assert vote(OK, NO, ABSTAIN, weights=(3.0, 1.0, 100.0)).p_first == 0.75
    assert vote(OK, FAILED, weights=(3.0, 1.0)).p_first == 1.0
    assert vote(OK, NO, FAILED, weights=(3.0, 1.0, 4.0)).status == "incomplete"
    assert vote(OK, OK, NO, tie_band=0.2).status == "tie"
    assert vote(OK, OK, NO, tie_band=0.1).status == "ok"
    thirds = [Judgement("ok", 0.1), Judgement("ok", 0.5), Judgement("ok", 0.9)]
    assert vote(*thirds) == Judgement("tie", 0.5, 3, None, (), vote(*thirds).members), "whatever rounding says"


def test_answers_say_whose_they_are_and_orders_count_together() -> None:
    said = (Answer(0, 0, "first", 1.0, "k1"), Answer(1, 0, "second", 0.0, "k2"))
    judged = vote(Judgement("tie", 0.5, 2, False, said), Judgement("ok", 1.0, 4, True), OK)
    assert [(answer.key, answer.annotator) for answer in judged.answers] == [
        ("k1", "members[0]: voter"),
        ("k2", "members[0]: voter"),
    ]
    assert (judged.votes, judged.swap_consistent) == (7, False)
    assert vote(Judgement("ok", 1.0, 1, True), OK).swap_consistent is True
    assert vote(OK, OK).swap_consistent is None


def test_a_pair_that_a_member_was_not_asked_about_is_not_judged() -> None:
    unasked = Judgement("unasked", None, 0)
    assert vote(OK, unasked).status == "unasked"
    assert vote(unasked, FAILED).status == "unasked"


def test_members_are_asked_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 3)
    log: list[str] = []
    voters = [Voter(lambda q: Judgement("ok", float(q.first)), name, log) for name in "xy"]
    annotator = EnsembleAnnotator([Member(lambda v=v: v) for v in voters])  # type: ignore[misc]
    drawn: list[int] = []

    def questions() -> Iterator[Pair]:
        for i in range(7):
            drawn.append(i)
            yield Pair(f"{i / 10}", "b")

    judged = annotator.annotate(questions())
    next(judged)
    assert drawn == [0, 1, 2], "no list of all pairs"
    assert log == list("xxxyyy"), "a member is asked about the whole block before the next one"
    assert [j.p_first for j in judged] == pytest.approx([i / 10 for i in range(1, 7)])
    assert annotator.usage == {"calls": 14, "members.0.calls": 7, "members.1.calls": 7}
    annotator.prepare(iter([Pair("a", "b")] * 5))
    assert all(len(voter.prepared) == 5 for voter in voters)


@pytest.fixture
def young() -> Iterator[None]:
    """Have the collector look at what a test makes alone, not at all that other tests have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("young")
def test_models_in_this_process_are_loaded_one_after_another() -> None:
    alive: weakref.WeakSet[Voter] = weakref.WeakSet()
    most, log = 0, []

    class Local(Voter):
        def __init__(self, p: float, name: str) -> None:
            nonlocal most
            super().__init__(
                lambda q: Judgement("ok", p if q.first < q.second else 1 - p, 1, None, (Answer(0, 0, "tie", p, name),)),
                name,
                log,
            )
            gc.collect()
            alive.add(self)
            most = max(most, len(alive))

    members = [
        Member(lambda: Local(0.9, "x"), local=True),
        Member(lambda: Voter(OK, "far", log)),
        Member(lambda: Local(0.2, "y"), local=True),
    ]
    annotator = EnsembleAnnotator(members)
    assert len(alive) == 0
    asked = [Pair("a", "b"), Pair("b", "a"), Pair("\ud800 🔑\n", '"')]
    judged = list(annotator.annotate(iter(asked)))
    assert most == 1
    assert len(alive) == 0
    assert log == ["x"] * 3 + ["far"] * 3 + ["y"] * 3
    assert [j.p_first for j in judged] == pytest.approx([2.1 / 3, 1.9 / 3, 1.9 / 3])
    assert [answer.key for answer in judged[0].answers] == ["x", "y"]
    assert annotator.usage == {"calls": 9, "members.0.calls": 3, "members.1.calls": 3, "members.2.calls": 3}
    list(annotator.annotate(asked[:1]))
    assert annotator.usage["members.0.calls"] == 4, "over all that it was asked"


def test_one_model_in_this_process_stays() -> None:
    made = []

    def make() -> Voter:
        made.append(1)
        return Voter(OK)

    annotator = EnsembleAnnotator([Member(make, local=True), Member(lambda: Voter(NO))])
    assert [j.status for j in annotator.annotate([Pair("a", "b")] * 3)] == ["tie"] * 3
    assert len(made) == 1


# -- by params ----------------------------------------------------------------------------------------------------
def params(*members: dict[str, object], **more: object) -> AnnotateParams:
    return AnnotateParams.model_validate({"annotator": "ensemble", "ensemble": {"members": list(members)}, **more})


def test_members_have_what_annotate_has_but_for_their_own() -> None:
    made = params(
        {"annotator": "openai", "openai": {"model": "a"}, "language_model": {"prompt": "answer_only"}},
        {"annotator": "scripted", "scripted": {"error_rate": 0.5}, "weight": 2.0},
        openai={"model": "base", "base_url": "http://localhost/v1", "retries": 3},
        scripted={"abstain_rate": 0.25},
        language_model={"votes": 3},
    )
    first, second = made.of_member(0), made.of_member(1)
    assert first.openai is not None
    assert (first.openai.model, first.openai.base_url, first.openai.retries) == ("a", "http://localhost/v1", 3)
    assert (first.language_model.prompt, first.language_model.votes) == ("answer_only", 3)
    assert (second.scripted.error_rate, second.scripted.abstain_rate) == (0.5, 0.25)
    assert (second.annotator, second.ensemble) == ("scripted", None)
    assert AnnotateParams.model_validate(made.model_dump(mode="json")) == made


def test_keys_and_servers_are_those_of_all_members() -> None:
    server = {"model": "m", "base_url": "http://localhost/v1", "api_key_env": "ONE_KEY"}
    made = params(
        {"annotator": "openai", "openai": server},
        {"annotator": "openai", "openai": {**server, "model": "n"}},
        {"annotator": "openai", "openai": {**server, "base_url": "http://other/v1", "api_key_env": "TWO_KEY"}},
        {"annotator": "embedding"},
    )
    assert made.api_keys == ("ONE_KEY", "TWO_KEY")
    assert made.servers == ("http://localhost/v1", "http://other/v1")
    assert made.keeps_responses
    assert not params({"annotator": "embedding"}, {"annotator": "scripted"}).keeps_responses


def test_invalid_members() -> None:
    for member, says in (
        ({"annotator": "ensemble"}, "embedding"),
        ({"annotator": "openai"}, "needs `openai.model`"),
        ({"annotator": "scripted", "scripted": {"eror_rate": 1}}, r"members\[1\]: scripted.eror_rate is unknown. Did"),
        ({"annotator": "scripted", "weight": 0.0}, "greater than 0"),
        ({"annotator": "huggingface", "language_model": {"responses": "x.db"}}, "responses is shared by all members"),
    ):
        with pytest.raises(ValueError, match=says):
            params({"annotator": "embedding"}, member)
    with pytest.raises(ValueError, match="must have two entries or more"):
        params({"annotator": "embedding"})
    with pytest.raises(ValueError, match=r"needs `ensemble\.members`"):
        AnnotateParams.model_validate({"annotator": "ensemble"})
    with pytest.raises(ParamsError, match="here: n_pairs is -1"):
        AnnotateParams().overridden({"n_pairs": -1}, "here")


def test_simulated_members_are_reported_and_err_independently(door_key: EnvAdapter) -> None:
    made = params(*[{"annotator": "scripted", "scripted": {"error_rate": 0.3}}] * 3)
    annotator = make_annotator(made, door_key, 0)
    assert annotator.simulated
    first = "scripted (simulated: oracle teacher, 0.3 of preferences flipped)"
    assert annotator.name.startswith(f"ensemble of 3 (members[0]: {first}")
    asked = [Pair("You reach the goal.", f"You turn. {i}") for i in range(300)]
    judged = list(annotator.annotate(asked))
    alone = [sum(j.members[k][1].p_first == 1.0 for j in judged) / 300 for k in range(3)]
    together = sum(j.p_first is not None and j.p_first > 0.5 for j in judged) / 300
    assert all(0.6 < share < 0.8 for share in alone)
    assert 0.72 < together < 0.85, "3 * .7^2 * .3 + .7^3 = .784: members err independently"
    assert not make_annotator(params({"annotator": "embedding"}, {"annotator": "embedding"}), door_key, 0).simulated


class Silent(Voter):
    """Gets no answer, and says why."""

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        return {self.name: {"status 500: busy": self.asked}}


@pytest.mark.parametrize("local", [False, True])
def test_reasons_for_missing_answers_are_reported_by_member(local: bool) -> None:
    silent = Member(lambda: Silent(FAILED, "s"), local=local)
    annotator = EnsembleAnnotator([silent, Member(lambda: Voter(OK, "v")), silent])
    questions = [Pair("a", "b"), Pair("c", "d")]
    for _ in range(2):  # two rounds
        assert [judged.status for judged in annotator.annotate(questions)] == ["incomplete", "incomplete"]
    assert annotator.failures == {
        "members[0]: s": {"status 500: busy": 4},
        "members[2]: s": {"status 500: busy": 4},
    }
