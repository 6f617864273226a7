"""A language model as policy: what it is asked, what it does with the answers, and what the report says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tiny_llama import make_tiny_llama

from laurel.agents.actor import View
from laurel.agents.actors import make_actor
from laurel.agents.actors.llm_policy import action_names
from laurel.cli.app import main
from laurel.envs import adapter_for
from laurel.errors import AnnotationError, EnvError, ParamsError
from laurel.feedback import chat_annotator
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators.huggingface import HuggingFaceKind
from laurel.feedback.annotators.openai import OpenAIKind
from laurel.feedback.questions.action import ActionQuestion
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm.chat import ChatRequest, Failure, Identity, Reply, Withheld
from laurel.llm.responses import Usual
from laurel.params import EnvParams, parse_params
from laurel.params.annotation import AnnotateParams
from laurel.params.arm_infos import arm_infos

BLACKJACK = EnvParams(id="Blackjack-v1")
HANDS = np.array([[12, 3, 0], [20, 1, 1], [12, 3, 0]], dtype=np.int32)
Answer = Callable[[ChatRequest], Reply | Failure]


class FakeChat:
    """Answers by a function, and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.identity = Identity("fake")
        self.requests: list[ChatRequest] = []
        self._answer = answer

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply | Failure]]:
        for number, request in enumerate(requests):
            self.requests.append(request)
            yield number, self._answer(request)


def sticks_from_17(request: ChatRequest) -> Reply:
    total = int(request.messages[-1].content.rpartition("You have ")[2].split()[0])
    p = 0.9 if total >= 17 else 0.2
    return Reply("", {"stick": math.log(p), "hit": math.log(1 - p)}, input_tokens=50, output_tokens=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FakeChat]:
    monkeypatch.chdir(tmp_path)

    def use(answer: Answer, kind: type = HuggingFaceKind) -> FakeChat:
        model = FakeChat(answer)
        monkeypatch.setattr(kind, "model", lambda *_: model)
        monkeypatch.setattr(kind, "check_here", lambda _: None)
        monkeypatch.setattr(kind, "identity", lambda _: (model.identity, True))
        monkeypatch.setattr(kind, "model_name", model.identity.model)
        return model

    return use


def annotate(annotator: str = "huggingface", **more: Any) -> AnnotateParams:
    section = {"openai": {"model": "m", "base_url": "http://localhost:1/v1"}} if annotator == "openai" else {}
    return AnnotateParams.model_validate({"annotator": annotator, **section, **more})


def policy(**options: Any) -> Any:
    asking = options.pop("annotate", annotate())
    return make_actor("llm_policy", adapter_for(BLACKJACK), "arms.llm.agent", annotate=asking, **options)


def view() -> View:
    adapter = adapter_for(BLACKJACK)
    return View(adapter, HANDS)


def test_it_acts_by_the_likelihood_of_each_action_and_asks_about_a_state_once(
    asked: Callable[..., FakeChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = asked(sticks_from_17)
    actor = policy()
    rng = np.random.default_rng(0)
    actions = np.array([actor.act(view(), rng).action for _ in range(500)])
    assert (actions == 0).mean(axis=0) == pytest.approx([0.2, 0.9, 0.2], abs=0.06)
    assert np.exp(actor.log_prob(view(), np.array([0, 0, 1]))) == pytest.approx([0.2, 0.9, 0.8])
    assert len(model.requests) == 2, "the two distinct states"
    assert model.requests[0].choices == ("stick", "hit")
    question = model.requests[0].messages[-1].content
    assert '"You have 12 against the dealer\'s 3."' in question
    assert "- stick\n- hit\n" in question
    assert actor.account["calls"] == actor.account["states"] == 2
    loads: list[object] = []
    monkeypatch.setattr(HuggingFaceKind, "model", lambda *_: loads.append(1))
    again = policy(greedy=True)
    assert again.act(view(), rng).action.tolist() == [1, 0, 1]
    assert (len(model.requests), again.account["cached"]) == (2, 2), "answers are in the store"
    assert not loads, "and the model is not even loaded"


def test_it_is_not_asked_about_states_on_which_no_action_follows(asked: Callable[..., FakeChat]) -> None:
    """Each would cost a call; the actions of other environments are the same."""
    model = asked(sticks_from_17)
    everywhere = policy().act(view(), np.random.default_rng(3))
    assert len(model.requests) == 2
    model.requests.clear()
    ended = View(adapter_for(BLACKJACK), HANDS, np.array([True, False, True]))
    actor = policy(annotate=annotate(language_model={"responses": "other"}))
    found = actor.act(ended, np.random.default_rng(3))
    assert found.action[[0, 2]].tolist() == everywhere.action[[0, 2]].tolist()
    assert len(model.requests) == actor.account["states"] == 1
    assert np.exp(actor.log_probs(view()))[1] == pytest.approx([0.9, 0.1]), "asked once it acts"


def test_temperature_sharpens_and_flattens(asked: Callable[..., FakeChat]) -> None:
    asked(sticks_from_17)
    sharp, flat = (np.exp(policy(temperature=t).log_probs(view()))[1, 0] for t in (0.5, 100.0))
    assert sharp == pytest.approx(0.81 / (0.81 + 0.01))
    assert flat == pytest.approx(0.5, abs=0.01)


def test_a_server_writes_json_that_its_schema_holds_to_the_names(asked: Callable[..., FakeChat]) -> None:
    def writes(request: ChatRequest) -> Reply:
        if "You have 12" in request.messages[0].content:
            return Reply('{"analysis": "A low hand.", "choice": "hit"}')
        return Reply("I would rather not say which.")

    model = asked(writes, OpenAIKind)
    actor = policy(annotate=annotate("openai", max_failure_rate=1.0))
    chances = np.exp(actor.log_probs(view()))
    assert chances[0] == pytest.approx([0, 1], abs=1e-5)
    assert chances[1] == pytest.approx([0.5, 0.5]), "an answer that cannot be read chooses nothing"
    schema = json.loads(model.requests[0].schema or "")
    assert schema["properties"]["choice"]["enum"] == ["stick", "hit"]
    assert (actor.account["states"], actor.account["unread"]) == (2, 1)
    assert actor.account["calls"] == 3, "with the follow-up to what could not be read"


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (Withheld("spent"), r"The budget for fake is spent after 0 states"),
        (Failure("gone"), r"fake gave no answer .* none of its options can be chosen \(gone\)\."),
    ],
)
def test_without_an_answer_no_action_is_taken(asked: Callable[..., FakeChat], failure: Failure, sentence: str) -> None:
    asked(lambda _: failure)
    with pytest.raises(AnnotationError, match=sentence):
        policy().act(view(), np.random.default_rng(0))


def test_answers_about_other_states_are_kept(asked: Callable[..., FakeChat]) -> None:
    """They are paid for, whichever arrives first: dropped, they would be asked and paid again in the next run."""
    asked(lambda request: Failure("gone") if "You have 12" in str(request.messages) else sticks_from_17(request))
    actor = policy()
    for _ in range(2):
        with pytest.raises(AnnotationError, match="gave no answer about a state"):
            actor.act(view(), np.random.default_rng(0))
    assert [actor.account[key] for key in ("calls", "failures", "cached")] == [3, 2, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"judge": "gone"}, r"llm_policy: judge is gone, but must be one of main"),
        ({"annotate": AnnotateParams()}, r"the annotator embedding \(annotate\) judges texts and chooses nothing"),
        ({"annotate": None}, r"it can only be an arm's actor"),
        ({"temperature": 0}, r"temperature is 0, but must be a number above 0"),
        ({"temperature": True}, r"the option temperature of the actor llm_policy is True, but must be a number"),
        ({"goal": 5}, r"the option goal of the actor llm_policy is 5, but must be text or null"),
        ({"judge": ["main"]}, r"the option judge of the actor llm_policy is \['main'\], but must be text"),
        ({"per_token": "no"}, r"the option per_token of the actor llm_policy is 'no', but must be true or false"),
        ({"hurry": True}, r"cannot be made with options .*hurry"),
        ({"annotate": annotate("openai"), "per_token": True}, r"per_token compares likelihoods"),
    ],
)
def test_invalid_actors_are_refused(asked: Callable[..., FakeChat], options: dict[str, Any], sentence: str) -> None:
    asked(sticks_from_17)
    with pytest.raises(ParamsError, match=sentence):
        policy(**options)


def test_continuous_actions_have_no_names(asked: Callable[..., FakeChat]) -> None:
    asked(sticks_from_17)
    with pytest.raises(EnvError, match=r"llm_policy: Pendulum-v1 has actions Box"):
        make_actor("llm_policy", adapter_for(EnvParams(id="Pendulum-v1")), "key", annotate=annotate())


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("turn left", 0),
        ("Turn Right.", 1),
        ('{"analysis": "x", "choice": "pick up"}', 2),
        ("Action: turn left", None),
        ("turn left or turn right", None),
        ('{"choice": "jump"}', None),
    ],
)
def test_answers_in_words(answer: str, chosen: int | None) -> None:
    names = ("turn left", "turn right", "pick up")
    question = ActionQuestion(ActionQuestion.load_for("choose", names), adapter_for(BLACKJACK), names)
    found = question.read(answer, None)
    assert (found and found.value) == (None if chosen is None else tuple(float(i == chosen) for i in range(3)))


def test_the_report_says_what_was_asked(asked: Callable[..., FakeChat], tmp_path: Path) -> None:
    from laurel.stages.accounts import asked as asked_of

    class Out:
        path, notes, run_notes, asked, usage = tmp_path, [], [], [], {}

    arms = {"llm": {"reward": None, "agent": {"actor": "llm_policy", "options": {"greedy": True}}}}
    content = {"env": {"id": "Blackjack-v1"}, "collect": {"steps": 1}}
    params = parse_params({**content, "arms": arms, "agent": {"seeds": [0, 1], "steps": 1}}, "p")
    (info,) = arm_infos(params.arms, params.rewards, params.agent)
    assert info.role == "method"
    for seed in (0, 1):
        content = {"model": "fake", "states": 10, "unread": 1, "calls": 7, "cached": 3, "cost_usd": None}
        content |= {"asked_sample": [{"name": "fake", "items": [seed]}], "asker": f"process {seed}"}
        (tmp_path / f"llm-{seed}.json").write_text(json.dumps(content))
    played = [(params.resolved_arms["llm"], seed, None) for seed in (0, 1)]
    found = asked_of(played, tmp_path, Out)  # type: ignore[arg-type]
    assert found["llm"] == {"model": "fake", "states": 20, "unread": 2, "parse_rate": 0.9}
    assert Out.run_notes == ["The arm llm took 14 calls of fake and 6 answers from the store."]
    assert Out.usage == {"calls": 14, "cached": 6, "cost_usd": None}
    assert Out.asked == [{"name": "fake", "items": [0]}, {"name": "fake", "items": [1]}]
    assert "90.0% of them had an answer that could be read; in the others all choices" in Out.notes[0]
    for seed in (0, 1):  # of a model in this process, whose answers are not stored
        content = {"model": "tiny", "states": 10, "answers": 10, "unread": 0, "tokens": 30}
        (tmp_path / f"llm-{seed}.json").write_text(json.dumps(content))
    assert asked_of(played, tmp_path, Out)["llm"]["tokens_per_answer"] == 3  # type: ignore[arg-type]
    assert Out.notes[1].endswith("and 100.0% of them had an answer that could be read.")
    assert len(Out.run_notes) == 1


def test_the_prompt_shows_the_state_in_words_and_the_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(
        "env: {id: FrozenLake-v1}\nagent: {steps: 1, seeds: [0]}\ncollect: {steps: 1}\narms: [extrinsic]\n"
    )
    assert main(["prompt", "show", "action/likeliest"]) == 0
    told = capsys.readouterr().out
    assert "Around you: left the edge, down ice" in told
    assert "- left\n- down\n- right\n- up\n" in told
    assert "answer:   left or down or right or up" in told


@pytest.mark.parametrize(("votes", "said"), [(1, "once, in about"), (2, "2 times, in about")])
def test_the_estimate_counts_votes_as_questions(votes: int, said: str, tmp_path: Path) -> None:
    """With two votes, two questions about one state were called two states."""
    content = {
        "annotator": "openai",
        "openai": {"model": "toy", "base_url": "http://127.0.0.1:1/v1", "temperature": 0.5},
        "language_model": {"votes": votes, "responses": str(tmp_path / "responses.db")},
    }
    adapter = adapter_for(BLACKJACK)
    actor = make_actor("llm_policy", adapter, "arms.a.agent", annotate=AnnotateParams.model_validate(content))
    line = actor.estimate(View(adapter, HANDS[:1]))
    assert f"is asked about each distinct state {said}" in str(line)
    of = "1 of 1 sampled states are" if votes == 1 else "2 of 2 questions about 1 sampled state are"
    assert of in str(line)
    assert str(line).endswith("still to be asked, cost unknown")


def test_prompts_that_are_longer_than_a_local_model_takes_are_refused_beforehand(tmp_path: Path) -> None:
    """The run ended when the arm acted, after all others had been trained."""
    adapter = adapter_for(BLACKJACK)
    for context in (4096, 128):
        place = str(make_tiny_llama(tmp_path / str(context), max_position_embeddings=context))
        asked = {"huggingface": {"model": place, "device": "cpu"}}
        stored = {"language_model": {"responses": str(tmp_path / "responses.db")}}
        annotate = AnnotateParams.model_validate({"annotator": "huggingface", **asked, **stored})
        actor = make_actor("llm_policy", adapter, "arms.a.agent", annotate=annotate)
        if context == 4096:
            assert "2 of 2 sampled states are still to be asked" in str(actor.estimate(View(adapter, HANDS)))
        else:
            with pytest.raises(AnnotationError, match=r"action/likeliest.*tokens, but the model takes 128\. Use a"):
                actor.estimate(View(adapter, HANDS))


def test_answers_that_are_stored_cost_nothing_though_the_price_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Usual(None, None, None)
    monkeypatch.setattr(chat_annotator, "_stored", lambda store, identity, prompt, keys: (frozenset(keys), usual))
    asked = {"model": "toy", "base_url": "http://127.0.0.1:1/v1"}
    content = {"annotator": "openai", "openai": asked, "language_model": {"responses": str(tmp_path / "responses.db")}}
    adapter, annotate = adapter_for(BLACKJACK), AnnotateParams.model_validate(content)
    line = make_actor("llm_policy", adapter, "a", annotate=annotate).estimate(View(adapter, HANDS[:1]))
    assert (
        line == "toy is asked about each distinct state once; 0 of 1 sampled states are still to be asked, cost $0.00"
    )
    question = PairQuestion(load_prompt("motif"), adapter)
    told = kind_of(annotate).asked(question, [Pair("a", "b")], "is asked")  # type: ignore[attr-defined]
    assert told == "toy is asked: 0 calls at most without follow-ups, cost $0.00"


def test_actions_are_named_from_the_first_one_on() -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    adapter.action_space = gym.spaces.Discrete(2, start=1)
    assert action_names(adapter, "arm") == ((adapter.action_name(1), adapter.action_name(2)), 1)
