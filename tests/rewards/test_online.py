"""A reward that is learned while its agent is trained: repeatable, resumable, and never stopped by its judge."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load_file
from stopping import content, make_task, run

import laurel
from laurel.arrays import FloatArray
from laurel.data.json_file import read_json
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, ParamsError, RefusedLabelsError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.online_quality import PROMPT, require_success_preferred
from laurel.feedback.question_queue import CLOSED, READY, TRIES, Item, QuestionQueue, Verdict
from laurel.feedback.responders import make_responder
from laurel.llm.budget import Budget
from laurel.params import Params, parse_params
from laurel.params.annotation import AnnotateParams
from laurel.params.arm_infos import arm_infos
from laurel.params.arms import ArmParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import OnlineParams
from laurel.params.training import AgentParams
from laurel.rewards import online, online_fit
from laurel.rewards.base import Reward
from laurel.rewards.judging import _answer
from laurel.rewards.method import AgentsReward, RewardContext
from laurel.rewards.methods.online import Online
from laurel.rewards.online_artefact import read_labels, read_made, read_rows, save
from laurel.stages.accounts import annotated
from laurel.training.checks import check_agents
from laurel.training.task import Task
from minimal_params import MINIMAL

NAME, EVERY = "helpful", 48


class Letters:
    """Encodes a text by how often letters occur in it."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[text.lower().count(letter) for letter in "aeioulst"] for text in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def _letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online_fit, "_encoder", lambda _: Letters())


def params_of(**settings: Any) -> Params:
    content = {
        **MINIMAL,
        "env": {"id": "FrozenLake-v1", "backend": "gymnasium"},
        "arms": {"preference": {"reward": NAME}},
        "annotate": {"annotator": "scripted"},
        "rewards": {NAME: {"kind": "online", "every": EVERY, "epochs": 3, "ensemble": 2, **settings}},
    }
    return parse_params(content, "a test")


class Case:
    """A task, whose agents are paid an online reward, and the judge's queue."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.context = RewardContext.of(params_of(**settings))
        self.settings = cast(OnlineParams, self.context.rewards[NAME])
        self.adapter: EnvAdapter = self.context.adapter
        self.task: Task = make_task()
        self.path = folder / "questions.db"

    def reward(self, queue: Path | None = None) -> Reward:
        agent_reward = AgentsReward(NAME, "preference", 1, 0.0, queue or self.path)
        return Online(self.settings).learning_reward(agent_reward, self.context, self.adapter)

    def train(self, name: str, updates: int | None = None) -> Path:
        place = self.folder / name / "preference" / "seed-1"
        run(self.task, self.adapter, place, self.reward(), updates=updates)
        return place

    @contextmanager
    def judge(
        self, path: Path | None = None, pause: float = 0.0, verdict: Verdict | None = None
    ) -> Iterator[list[Item]]:
        """Answer in a thread as the judge's process does, or always the same; return the questions."""
        topic = Online(self.settings).topic(self.context, 1)
        assert topic is not None
        responder = make_responder(
            topic.shown, self.context.annotate, self.adapter, 0, Budget(self.context.annotate.budget)
        )
        asked: list[Item] = []
        over = threading.Event()
        queue = QuestionQueue(path or self.path)
        queue.note(READY, "{}")
        answers = responder.answers

        def noted(items: Sequence[Item]) -> Iterator[Verdict]:
            asked.extend(items)
            time.sleep(pause if items else 0)
            return iter([verdict] * len(items)) if verdict else answers(items)

        responder.answers = noted  # type: ignore[method-assign]

        def work() -> None:
            while not over.is_set():
                if not _answer(queue, {topic.name: responder}):
                    time.sleep(0.001)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield asked
        finally:
            over.set()
            thread.join()


def learned(place: Path) -> dict[str, Any]:
    """Return what two equal trainings have in common."""
    folder = place / "reward" / NAME
    kept = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.name != "reward.json"}
    return {**content(place), "own": kept}


@pytest.mark.parametrize("form", ["ranking", "classification", "retrieval"])
def test_a_run_is_repeated_resumed_and_replayed_to_the_bit(form: str, tmp_path: Path) -> None:
    case = Case(tmp_path, form=form)
    with case.judge():
        whole = learned(case.train("whole"))
        case.train("stopped", updates=5)
        stopped = case.train("stopped")
    labels = read_labels(stopped / "reward" / NAME)
    assert len(labels) > 3
    assert any(row["step"] > 0 for row in labels)
    assert learned(stopped) == whole
    with case.judge(pause=0.05):  # a slower judge: the same labels from the same steps on
        assert learned(case.train("slow")) == whole
    again = Case(tmp_path, form=form, replay=str(tmp_path / "whole"))
    replayed = learned(again.train("replayed"))
    assert replayed["own"]["labels.parquet"] == whole["own"]["labels.parquet"]
    assert {key: replayed[key] for key in ("model", "curve", "optimizer")} == {
        key: whole[key] for key in ("model", "curve", "optimizer")
    }


def test_agents_are_rewarded_by_the_labels(tmp_path: Path) -> None:
    """Of captions that the judge calls helpful, and the others: the loaded reward pays as training did."""
    case = Case(tmp_path, form="retrieval")
    with case.judge() as asked:
        place = case.train("agents")
    assert len(asked) == len(set(asked)), "each caption is asked about once"
    reward = laurel.load_reward(place / "reward" / NAME)
    labels = {row["first"]: row["p"] for row in read_labels(place / "reward" / NAME)}
    assert 0 < sum(p > 0.5 for p in labels.values()) < len(labels)
    assert {text: case.adapter.oracle(text) > 0 for text in labels} == {text: p > 0.5 for text, p in labels.items()}
    assert reward is not None
    rows = read_rows(place / "reward" / NAME)
    assert rows[0]["coverage"] == 0
    assert rows[0]["captions"] < len(labels), "those that the environment lists are asked about, too"
    assert rows[-1]["coverage"] > 0.9
    assert rows[-1]["env_steps"] == case.task.total_steps


def test_coverage_counts_every_step_with_a_caption(tmp_path: Path) -> None:
    """All captions have a label from the first check on, at 144 of 384 steps; the last 96 steps have no check."""
    case = Case(tmp_path, form="retrieval", every=100)
    with case.judge():
        folder = case.train("agents") / "reward" / NAME
    assert [row["coverage"] for row in read_rows(folder)] == [0.0, 1.0]
    assert read_json(folder / "online.json")["coverage"] == pytest.approx(240 / 384, abs=0.02)


def test_training_continues_without_a_hanging_judge_and_uses_late_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(tmp_path, form="retrieval", patience=0.05)
    QuestionQueue(case.path).note(READY, "{}")
    began = time.monotonic()
    case.train("agents", updates=4)
    assert time.monotonic() - began < 5, "it waited once"
    assert read_labels(tmp_path / "agents" / "preference" / "seed-1" / "reward" / NAME) == []
    assert re.search(r"answers of the judge are late.*, and uses others as they arrive\.", capsys.readouterr().err)
    (tmp_path / "stopped").mkdir()
    stopped = Case(tmp_path / "stopped", form="retrieval")
    QuestionQueue(stopped.path).note(CLOSED, "The budget is spent.")
    stopped.train("agents", updates=4)
    assert re.search(r"answers of the judge are late.*, since the judge has stopped\.", capsys.readouterr().err)
    with case.judge():
        time.sleep(0.2)
        place = case.train("agents")
    folder = place / "reward" / NAME
    assert len(read_labels(folder)) > 3
    assert read_json(folder / "online.json")["late"]
    assert [row["late"] for row in read_rows(folder)][:3] == [False, True, True], "as before the run was stopped"
    assert not read_rows(folder)[-1]["late"]
    replayed = Case(tmp_path, form="retrieval", replay=str(tmp_path / "agents"), patience=0.05).train("replayed")
    assert (replayed / "model.safetensors").read_bytes() == (place / "model.safetensors").read_bytes()
    assert read_rows(replayed / "reward" / NAME) == read_rows(folder)


def test_a_judge_that_answers_no_more_is_not_waited_for(tmp_path: Path) -> None:
    case = Case(tmp_path, form="retrieval", patience=100.0)
    queue = QuestionQueue(case.path)
    queue.note(READY, "{}")
    queue.note(CLOSED, "The budget is spent.")
    began = time.monotonic()
    place = case.train("agents")
    assert time.monotonic() - began < 20
    with pytest.raises(DataError, match="is stored with each of them"):
        read_made(_never_trained(tmp_path, case))
    assert read_json(place / "reward" / NAME / "online.json")["form"] == "nothing"


def _never_trained(folder: Path, case: Case) -> Path:
    from laurel.rewards.method import Inputs

    place = folder / "made"
    place.mkdir()
    Online(case.settings).fit(case.context, Inputs(folder, folder, folder), case.adapter, 0, place)
    return place


def test_the_queue_is_bounded_and_what_is_dropped_is_asked_again(tmp_path: Path) -> None:
    case = Case(tmp_path, patience=0.0, queue=5, at_once=4)
    queue = QuestionQueue(case.path)
    queue.note(READY, "{}")
    place = case.train("agents")
    rows = read_rows(place / "reward" / NAME)
    assert max(row["open"] for row in rows) == 5
    assert rows[-1]["dropped"] > 0
    topic = Online(case.settings).topic(case.context, 1)
    assert topic is not None
    assert len(queue.open(topic.name, 1000)) <= 5, "the judge is asked only what agents wait for"


def test_an_answer_is_delayed_by_checks_which_are_whole_updates_apart(tmp_path: Path) -> None:
    """Where an update has several times `every` steps, answers took effect a check or more too early."""
    case = Case(tmp_path, delay=3, every=EVERY // 3)
    with case.judge():
        place = case.train("agents")
    checks = [row["env_steps"] for row in read_rows(place / "reward" / NAME)]
    (apart,) = set(np.diff(checks).tolist())
    assert apart > 2 * case.settings.every
    lags = {label["step"] - label["asked"] for label in read_labels(place / "reward" / NAME)}
    assert lags == {2 * apart}


def test_a_queue_that_drops_each_question_before_its_answer_counts_is_refused() -> None:
    with pytest.raises(ParamsError, match=r"rewards\.helpful has queue 16, but 16 questions .* set queue above 16\."):
        params_of(queue=16, at_once=8, delay=3)
    params_of(queue=17, at_once=8, delay=3)
    params_of(queue=1, at_once=64)


def test_questions_of_several_agents_are_asked_once_and_kept_while_someone_wants_them(tmp_path: Path) -> None:
    queue, other = QuestionQueue(tmp_path / "m.db"), QuestionQueue(tmp_path / "m.db")
    items = [("a", "b"), ("a", "c")]
    numbers = queue.post("responder", items)
    assert other.post("responder", items[::-1]) == numbers[::-1]
    queue.withdraw(numbers)
    other.withdraw(numbers[:1])
    (left,) = queue.open("responder", 9)
    assert left.item == ("a", "c")
    for _ in range(TRIES):
        queue.postpone(left, "api_failed")
        assert queue.open("responder", 9) == [], "not before a pause"
        left = type(left)(left.number, left.topic, left.item, left.tries + 1)
    assert other.answers(numbers) == {numbers[1]: Verdict("api_failed", None)}


@pytest.mark.parametrize(
    ("form", "verdict", "gate"),
    [
        ("ranking", Verdict("parse_failed", None, None, '[[0, "unread"], [1, "unread"]]'), "min_parse_rate"),
        ("ranking", Verdict("tie", 0.5, False, '[[0, "first"], [1, "second"]]'), "max_position_bias"),
        ("retrieval", Verdict("abstain", None, None, '[[0, "abstain"]]'), "max_abstain_rate"),
        ("retrieval", Verdict("ok", 1.0, None, '[[0, "yes"]]'), None),
    ],
)
def test_labels_that_a_gate_refuses_stop_training(
    form: str, verdict: Verdict, gate: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "FIRST_LOOK", 8)
    case = Case(tmp_path, form=form)
    with case.judge(verdict=verdict):
        if gate is None:
            kept = read_json(case.train("trained") / "reward" / NAME / "online.json")
            assert kept["warnings"] == []
            assert kept["quality"]["parse_rate"]["value"] == 1.0
            assert "position_bias" not in kept["quality"], "there is no order"
            return
        with pytest.raises(RefusedLabelsError, match=rf"stopped training at \d+ steps.*annotate\.gates\.{gate}"):
            case.train("trained")


@pytest.mark.parametrize(("form", "prompt"), [("ranking", PROMPT), ("retrieval", f"rewards.{NAME}.prompt")])
def test_a_refusal_names_the_parameter_with_the_prompt_that_was_asked(form: str, prompt: str, tmp_path: Path) -> None:
    """Of single captions it named that of pairs, which changes nothing there."""
    case = Case(tmp_path, form=form)
    chat = AnnotateParams.model_validate({"annotator": "openai", "openai": {"model": "m"}})
    case.context = dataclasses.replace(case.context, annotate=chat)
    reward = cast(online.OnlineReward, case.reward())
    row = {"status": "parse_failed", "p": None, "swap_consistent": None, "answers": '[[0, "unread"]]'}
    second = "It ends." if form == "ranking" else ""
    reward._labels = [{**row, "first": f"Step {n}.", "second": second} for n in range(online.FIRST_LOOK)]
    with pytest.raises(RefusedLabelsError, match=rf"Try another prompt \({re.escape(prompt)}\) or model"):
        reward._check()


def test_a_judge_that_ranks_success_below_other_captions_is_refused_before_training(tmp_path: Path) -> None:
    class Backwards:
        name, simulated, usage = "backwards", False, {}

        def prepare(self, pairs: Iterable[Pair]) -> None:
            """Do nothing."""

        def annotate(self, pairs: Iterable[Pair]) -> Iterator[Judgement]:
            for pair in pairs:
                yield Judgement("ok", float(not case.adapter.says_success(pair.first)))

    case = Case(tmp_path)
    annotate = case.context.annotate
    with pytest.raises(RefusedLabelsError, match=r"min_success_preferred"):
        require_success_preferred(annotate, Backwards(), case.adapter, 0)
    responder = make_responder("pair", annotate, case.adapter, 0, Budget(annotate.budget))
    assert responder.known_answers()["success_preferred"]["value"] == 1.0


def test_captions_are_kept_up_to_a_limit(tmp_path: Path) -> None:
    case = Case(tmp_path, captions=2, listed=False)
    with case.judge() as asked:
        kept = read_json(case.train("trained") / "reward" / NAME / "online.json")
    assert len({text for item in asked for text in item}) == 2
    assert any("more than 2 different captions were met" in warning for warning in kept["warnings"])


def test_shuffled_answers_teach_something_else(tmp_path: Path) -> None:
    right, wrong = Case(tmp_path), Case(tmp_path, shuffled=True)
    with right.judge():
        right_agent, wrong_agent = right.train("right"), wrong.train("wrong")
    assert [row["p"] for row in read_labels(right_agent / "reward" / NAME)][:3]
    weights = [load_file(place / "reward" / NAME / "model.safetensors") for place in (right_agent, wrong_agent)]
    assert any((weights[0][key] != weights[1][key]).any() for key in weights[0])


def test_an_arm_of_shuffled_answers_is_a_control_and_says_so() -> None:
    rewards = {"right": OnlineParams(kind="online"), "wrong": OnlineParams(kind="online", shuffled=True)}
    arms = tuple(ArmParams(name=name, reward={name: 1.0}) for name in rewards)
    right, wrong = arm_infos(arms, rewards, AgentParams(seeds=(0,), steps=1))
    assert (right.role, wrong.role) == ("method", "control")
    assert wrong.label == f"{right.label}, assigned to the wrong questions"


def test_questions_that_the_judge_left_open_are_not_counted_as_labels(tmp_path: Path) -> None:
    """Of two agents, each with a label of its own, a common one, and a question to which there was no opinion."""
    unanswered = {"asked": 0, "step": 0, "second": "", "status": "abstain", "answers": ""}
    answered = {**unanswered, "status": "ok", "p": 1.0}
    for seed in (0, 1):
        labels = [{**answered, "first": text} for text in ("a", f"of {seed}")]
        place = tmp_path / str(seed) / "reward" / NAME
        place.mkdir(parents=True)
        config = {"labels": 2, "questions": 3, "warnings": ["Too few."]}
        save(place, None, config, [*labels, {**unanswered, "first": "b"}], [])
    arm = SimpleNamespace(name="online")
    account = annotated([(cast(Arm, arm), seed, tmp_path / str(seed)) for seed in (0, 1)])["online"]
    assert (account["questions"], account["labels"], account["distinct_labels"]) == (3, 2, 3)
    assert account["warnings"] == [{"warning": "Too few.", "agents": 2}], "texts as keys became names of metrics"


def test_unsupported_questions_are_refused_before_training(tmp_path: Path) -> None:
    case = Case(tmp_path, form="retrieval")
    agent_reward = AgentsReward(NAME, "preference", 1, 0.0, None)
    with pytest.raises(DataError, match="is learned while agents are trained"):
        Online(case.settings).learning_reward(agent_reward, case.context, case.adapter)
    elsewhere = Case(tmp_path, replay=str(tmp_path))
    with pytest.raises(DataError, match="holds no log of labels"):
        elsewhere.reward()
    context = RewardContext.of(parse_params({**MINIMAL, "arms": {"a": {"reward": "online"}}}, "a test"))
    pairs_alone = case.settings.model_copy(update={"judge": "none"})
    with pytest.raises(ParamsError, match="must be one of main"):
        Online(pairs_alone).check(context, case.adapter)
    sb3 = {**MINIMAL, "arms": {"a": {"reward": "online", "agent": {"engine": "sb3"}}}, "env": {"id": "FrozenLake-v1"}}
    params = parse_params(sb3, "a test")
    with pytest.raises(ParamsError, match="which only Laurel's own algorithms support"):
        check_agents(0, params.resolved_arms.values(), RewardContext.of(params), case.adapter)
