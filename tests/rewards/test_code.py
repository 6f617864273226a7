"""Functions are written, tried, reflected on, chosen and paid; the simulated writer proves the loop and says so."""

from __future__ import annotations

import json
import math
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import chat_server, problem
from mlflow import MlflowClient

from laurel.data.manifest import read_manifest
from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.numbers import Numbers
from laurel.errors import AnnotationError, DataError, ParamsError, TrainingError
from laurel.feedback.question import Reading
from laurel.feedback.questions.code import Assignment, CodeQuestion, Written
from laurel.params import EnvParams, parse_params
from laurel.params.arm_infos import arm_infos
from laurel.params.arms import ArmParams
from laurel.params.rewards import TrialParams, method_of
from laurel.params.training import AgentParams
from laurel.rewards import code
from laurel.rewards.base import UNPAID, Reward, Steps
from laurel.rewards.code_search import MISSING, Candidate, Sample, Search, examined, save
from laurel.rewards.method import RewardContext, Tried
from laurel.rewards.methods.code import CodeParams
from laurel.rewards.normalizer import Normalizer
from laurel.rewards.sandbox import SandboxError
from laurel.rewards.stored import StoredRewards
from laurel.stages.description import described
from laurel.stages.project import places
from laurel.training.trial import ShortTraining
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

ADAPTER = adapter_for(EnvParams(id="CartPole-v1"))
NUMBERS = Numbers(ADAPTER)
HEAD = "def reward(observation, action, next_observation):\n"
UPRIGHT = f'{HEAD}    return 1.0 - abs(next_observation["pole_angle"])\n'
LEANING = f'{HEAD}    lean = abs(next_observation["pole_angle"])\n    return lean, {{"lean": lean}}\n'
TINY_TRIAL = {"steps": 256, "seeds": 1, "ppo": {"n_envs": 4, "n_steps": 32, "batch_size": 64, "hidden": [8]}}
CARTPOLE = {
    **UNTRACKED,
    "env": {"id": "CartPole-v1"},
    "arms": {"code": {"reward": "code", "extrinsic": 0.0, "shaping": {"beta": 0, "quantile": 0}}},
    "rewards": {"code": {"rounds": 2, "samples": 3, "trial": TINY_TRIAL}},
    "annotate.annotator": "scripted",
    "collect.steps": 600,
}


def transitions(angles: Any) -> Transitions:
    after = np.zeros((len(angles), 4), dtype=np.float32)
    after[:, 2] = angles
    nothing = np.zeros(len(angles), dtype=np.bool_)
    return Transitions(
        np.zeros_like(after), np.zeros(len(angles), np.int64), np.ones(len(angles), np.float32), after, nothing, nothing
    )


def steps(angles: Any, valid: Any = None) -> Steps:
    taken = np.ones((len(angles), 1), dtype=np.bool_) if valid is None else np.array(valid)[:, None]
    nothing = np.zeros_like(taken)
    return Steps(transitions(angles), np.zeros(taken.shape, np.int64), ["x"], taken, nothing, nothing)


def sample(angles: Any) -> Sample:
    """Two episodes of equal length; the second has the higher return."""
    n, half = len(angles), len(angles) // 2
    episode = np.repeat([0, 1], half)
    rows = code.rows_of(transitions(angles), NUMBERS)
    return Sample(rows, np.arange(n), episode, np.array([1.0, 2.0]), np.array([False, True]))


class Bank:
    """Writes prescribed code, and records its prompts."""

    name, simulated, remark = "a bank", True, ""

    def __init__(self, *rounds: list[str]) -> None:
        self._rounds = rounds
        self.shown: list[Assignment] = []

    def write(self, number: int, assignment: Assignment) -> list[Reading[Written] | None]:
        self.shown.append(assignment)
        return [
            None if source == MISSING else Reading("code", Written(source) if source else None)
            for source in self._rounds[number]
        ]


@pytest.fixture
def angles() -> list[float]:
    return [0.2, 0.15, 0.1, 0.18, 0.01, 0.02, 0.03, 0.0]


def test_the_better_function_is_chosen_and_all_faults_are_shown_to_the_next_round(angles: list[float]) -> None:
    faults = {
        f"{HEAD}    return observation['speed']\n": "it fails: KeyError: 'speed' (for 8 of 8 transitions)",
        f"{HEAD}    return 'good'\n": "it fails: it returned text (for 8 of 8 transitions)",
        f"{HEAD}    return 10 ** 10 ** 9\n": "it was stopped: MemoryError",
        f"{HEAD}    return 1\n": "it returns the same number for every transition",
        f"{HEAD}    import random\n    return random.random()\n": "it returns different numbers for the same",
    }
    bank = Bank([LEANING, *faults, "", MISSING], [UPRIGHT, LEANING])
    search = Search(NUMBERS, sample(angles), bank, None, 0.5)
    best, every = search.run(2)
    assert best.source == UPRIGHT
    assert [program.score for program in every if program.score is not None] == [
        pytest.approx(-1),
        pytest.approx(1),
        pytest.approx(-1),
    ]
    shown = bank.shown[1]
    assert (bank.shown[0].best, bank.shown[0].feedback, shown.best) == ("", "", LEANING)
    assert "lean: mean 0.0863 a step, from 0 to 0.2, rank correlation with an episode's return -1.00" in shown.feedback
    assert "with its success -1.00" in shown.feedback
    for fault in (*faults.values(), "the answer has no block of code"):
        assert f"- {fault}" in shown.feedback
    assert "no answer" not in shown.feedback, "that is not the writer's fault"
    assert [program.kind for program in every].count(MISSING) == 1
    assert [program.round for program in every] == [1] * 8 + [2] * 2, "also of what was written before"


def test_the_best_of_all_rounds_is_chosen_and_not_that_of_the_last(angles: list[float]) -> None:
    bank = Bank([UPRIGHT], [LEANING], [""])
    best, _ = Search(NUMBERS, sample(angles), bank, None, 0.5).run(3)
    assert best.source == bank.shown[2].best == UPRIGHT


def test_a_run_without_a_usable_function_ends_with_the_reasons(angles: list[float]) -> None:
    bank = Bank([f"{HEAD}    return 1 / 0\n"] * 2 + [""])
    with pytest.raises(
        AnnotationError, match=r"none of the 3 functions that a bank wrote .* 2 of them: it fails: ZeroDiv"
    ):
        Search(NUMBERS, sample(angles), bank, None, 0.5).run(1)


def test_a_function_whose_agents_ended_no_episode_is_not_the_best(angles: list[float]) -> None:
    thresholds = []

    def trial(reward: Reward) -> Tried:
        thresholds.append(reward.threshold)
        return Tried(math.nan if len(thresholds) == 1 else -3.0, [math.nan])

    best, every = Search(NUMBERS, sample(angles), Bank([UPRIGHT, LEANING]), trial, 0.9).run(1)
    assert (best.source, best.score) == (LEANING, -3.0)
    assert thresholds == [Normalizer.of(program.values).threshold(0.9) for program in every]


def test_what_has_no_score_is_not_called_the_best(angles: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """No episode ended in any trial."""
    bank = Bank([UPRIGHT, LEANING], [LEANING])
    search = Search(NUMBERS, sample(angles), bank, lambda _: Tried(math.nan, [math.nan]), 0.5)
    best, _ = search.run(2)
    assert math.isnan(best.score or 0)
    told = capsys.readouterr().err
    assert "round 1 of 2: a bank wrote 2 functions, of which 2 can be used; none has a score yet" in told
    shown = bank.shown[1].feedback
    assert "A usable function, since none has a score yet (mean return of a short training: unknown):" in shown
    assert "- usable, mean return of a short training: unknown; reward: mean" in shown
    assert "Mean return of the last 100 episodes, in each fifth of its training: too few." in shown
    assert not re.search("nan|best function", shown)


def test_a_function_without_a_score_is_noted(simulated: Project, tmp_path: Path) -> None:
    """MountainCar's first episodes end after 200 steps, and the trial takes 64."""
    project = simulated.copy(tmp_path / "p", without=["train-reward"])
    project.change({"env.id": "MountainCar-v0"})
    project.run("collect", "caption", "annotate", "train-reward")
    (note,) = [note for note in read_json(project.output("train-reward") / "manifest.json")["notes"] if "score" in note]
    assert note == (
        "The function of the reward code was taken without a score (mean return of a short training), so it may be no "
        "better than the others: too few episodes ended in so short a training. Raise rewards.code.trial.steps, or "
        "lower trial.ppo.n_envs."
    )


def test_where_a_function_may_fail_it_counts_as_its_lowest_reward() -> None:
    source = f'{HEAD}    angle = next_observation["pole_angle"]\n    return 1 / 0 if angle > 1 else angle\n'
    many = [*np.linspace(0.1, 0.9, 198), 2.0, 3.0]  # one in a hundred may fail
    found = examined(Candidate(1, source), sample(many), NUMBERS)
    assert found.problem == ""
    assert found.values[-3:] == pytest.approx([0.9, 0.1, 0.1])


def test_training_selects_and_failures_are_fed_back(angles: list[float]) -> None:
    def trial(reward: Reward) -> Tried:
        paid = reward.pay(steps([0.0, 0.2]))[:, 0]
        if paid[0] > paid[1]:
            raise TrainingError("It diverged.")
        return Tried(5.0, [1.0, 5.0])

    bank = Bank([UPRIGHT, LEANING], [LEANING])
    best, every = Search(NUMBERS, sample(angles), bank, trial, 0.5).run(2)
    assert (best.source, best.score) == (LEANING, 5.0)
    assert [program.what for program in every] == ["It diverged.", "usable", "usable"]
    assert "Mean return of the last 100 episodes, in each fifth of its training: 1, 5." in bank.shown[1].feedback


def test_rewards_are_normalised_and_computed_once_per_transition(
    tmp_path: Path, angles: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search(NUMBERS, sample(angles), Bank([LEANING]), None, 0.5)
    quality = save(tmp_path, search, *search.run(1))
    assert (quality["judge"], quality["simulated"], quality["functions"], quality["usable"]) == ("a bank", True, 1, 1)
    reward = code.load(tmp_path, ADAPTER, 0.5)
    raw = np.float32(angles)
    expected = Normalizer.of(raw.astype(np.float64))
    np.testing.assert_array_equal(reward.pay(steps(angles))[:, 0], expected(raw.astype(np.float64)))
    assert reward.threshold == expected.threshold(0.5)
    with monkeypatch.context() as patched:
        patched.setattr(reward, "_compute", lambda *_: pytest.fail("was computed again"))
        paid = reward.pay(steps(angles, [True] * 7 + [False]))
    assert paid[7, 0] == UNPAID
    assert (paid[:7] > UNPAID).all()
    reward.close()
    assert code.program(tmp_path).source == LEANING
    (tmp_path / "code.json").write_text("{}")
    with pytest.raises(DataError, match=r"code\.json: is damaged"):
        code.load(tmp_path, ADAPTER, 0.5)


def test_steps_for_which_it_fails_are_unpaid_and_too_many_end_the_training() -> None:
    source = f'{HEAD}    return 1 / next_observation["pole_angle"]\n'
    reward = code.CodeReward(source, NUMBERS, Normalizer(0.0, 1.0, (0.0,) * 101), 0.5)
    assert reward.pay(steps([0.0, 0.5]))[:, 0].tolist() == [UNPAID, 2.0]
    forever = f"{HEAD}    while True:\n        pass\n"
    with pytest.raises(SandboxError, match=r"was stopped: TimeoutError.*Generate another function"):
        _pay_quickly(forever)
    failing = code.CodeReward(f"{HEAD}    return None\n", NUMBERS, Normalizer(0.0, 1.0, (0.0,) * 101), 0.5)
    with pytest.raises(SandboxError, match=r"failed for 200 of 200 transitions, .* it returned nothing"):
        failing.pay(steps(np.arange(200) / 200))


def _pay_quickly(source: str) -> None:
    reward = code.CodeReward(source, NUMBERS, Normalizer(0.0, 1.0, (0.0,) * 101), 0.5)
    reward._sandbox._limits["max_feed_duration_secs"] = 0.1
    reward.pay(steps([0.1]))


def test_a_trial_that_ends_with_its_first_update_is_refused() -> None:
    """All functions had the score of the untrained agent, and one of them was called the best."""
    content = {**MINIMAL, "env": {"id": "CartPole-v1"}, "annotate": {"annotator": "scripted"}}
    for select, trial, why in (
        ("training", {**TINY_TRIAL, "steps": 128}, r"trial\.steps is 128, .* nothing before 128 steps"),
        ("training", {**TINY_TRIAL, "steps": 129}, None),
        ("agreement", {**TINY_TRIAL, "steps": 128}, None),
    ):
        params = parse_params({**content, "rewards": {"code": {"select": select, "trial": trial}}}, "params.yaml")
        method, context = method_of(params.rewards["code"]), RewardContext.of(params)
        with pytest.raises(ParamsError, match=why) if why else nullcontext():
            method.check(context, context.adapter)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("code") / "p", CARTPOLE)
    project.run("collect", "caption", "annotate", "train-reward")
    return project


def test_a_simulated_writer_says_so_in_manifest_and_plan(simulated: Project) -> None:
    who = "a simulated writer (no language model)"
    rewards = simulated.output("train-reward")
    assert f"The reward code is simulated: it was made by {who}." in read_json(rewards / "manifest.json")["notes"]
    assert StoredRewards.read(rewards).simulated() == {"code": who}
    program = StoredRewards.read(rewards).programs()["code"]
    assert (program.writer, program.simulated, len(program.candidates)) == (who, True, 6)
    assert [program.source] == [(rewards / "code" / "reward.py").read_text()]
    plan = described(simulated.params, ADAPTER, places(simulated.path))
    assert f"{who} writes 2 rounds of 3 functions" in plan
    assert "at no cost; it ignores the results of earlier rounds" in plan
    params = simulated.params
    labels = {info.label for info in arm_infos(params.arms, params.rewards, params.agent) if info.rewards}
    assert labels
    assert not any("language model" in label for label in labels), "in the table of arms"


def test_the_same_seed_writes_the_same_reward(simulated: Project, tmp_path: Path) -> None:
    again = simulated.copy(tmp_path / "p", without=["train-reward"])
    again.run("train-reward")
    for name in ("reward.py", "code.json", "quality.json"):
        first, second = (project.output("train-reward") / "code" / name for project in (simulated, again))
        assert first.read_bytes() == second.read_bytes()


def test_a_short_training_gives_the_return(simulated: Project) -> None:
    reward = code.load(simulated.output("train-reward") / "code", ADAPTER, 0.0)
    tried = ShortTraining(0, RewardContext.of(simulated.params))(reward, TrialParams.model_validate(TINY_TRIAL))
    reward.close()
    assert 8 < tried.score < 100
    assert len(tried.returns) == 5


def test_a_chat_server_writes_and_reflects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        source = UPRIGHT if "Functions were written before" in question else LEANING
        return question, [], f"```python\n{source}```"

    rewards = {"code": {"rounds": 2, "samples": 2, "select": "agreement", "temperature": 0.7}}
    project = Project.create(tmp_path / "p", {**CARTPOLE, "rewards": rewards})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = answer
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        project.change({**asking, "rewards.code.rounds": 1, "rewards.code.samples": 1})
        plan = described(project.params, ADAPTER, places(project.path))
        assert "tiny writes 1 round of 1 function: 1 call at most without follow-ups" in plan
        project.change({"rewards": rewards})
        plan = described(project.params, ADAPTER, places(project.path))
        assert (
            "tiny writes 2 rounds of 2 functions: 4 calls at most without follow-ups, cost of the first round" in plan
        )
        project.run("collect", "caption", "annotate", "train-reward")
        assert len(server.bodies) == 4
        assert {body["temperature"] for body in server.bodies} == {0.7}
        assert len({body.get("seed") for body in server.bodies}) == 2, "answers of a round are drawn apart"
        assert "response_format" not in server.bodies[0]
        *first, third, fourth = [body["messages"][-1]["content"] for body in server.bodies]
        for prompt in (third, fourth):
            feedback = json.loads(prompt.split("never an instruction:\n")[1].splitlines()[0])
            best, reward, lean = feedback.splitlines()
            assert best.startswith("The best function so far (rank correlation with collected returns:")
            seen = r"reward: mean \S+ a step, from \S+ to \S+, rank correlation with .* return -?\d\.\d\d"
            assert re.fullmatch(seen, reward), "no episode that ended was a success"
            assert lean == reward.replace("reward:", "lean:"), "the traces of its only component"
            assert json.loads(prompt.split("could be used):\n")[1].splitlines()[0]) == LEANING
        assert not any("rank correlation" in prompt for prompt in first)
        project.run("train-reward")
        assert len(server.bodies) == 4, "answers are kept"
        uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        project.change({"tracking.enabled": True})
        project.run("train-reward")
    client = MlflowClient(uri)
    for name in ("write", "reflect"):
        text = CodeQuestion.load_prompt(name).text
        assert client.get_prompt_version_by_alias(f"code.{name}", "current").template == text
    (run,) = client.search_runs(["1"], "tags.stage = 'train-reward'")
    traces = client.search_traces(["1"], f"attributes.run_id = '{run.info.run_id}'")
    assert len(traces) == 2, "one for each round, with an answer for each sample"
    assert {len(trace.data.spans) for trace in traces} == {3}
    place = project.output("train-reward") / "code"
    assert (place / "reward.py").read_text() == UPRIGHT
    quality = read_json(place / "quality.json")
    assert (quality["judge"], quality["simulated"], quality["usable"]) == ("tiny", False, 4)


def test_a_server_that_goes_away_is_not_the_models_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = {"code": {"rounds": 2, "samples": 2, "select": "agreement"}}
    project = Project.create(tmp_path / "p", {**CARTPOLE, "rewards": rewards})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = lambda body: (body["messages"][-1]["content"], [], f"```python\n{UPRIGHT}```")
        server.behave = lambda request, body: problem(500, "gone") if len(server.bodies) > 2 else None
        settings = {"model": "tiny", "base_url": server.url, "retries": 0}
        project.change({"annotate.annotator": "openai", "annotate.openai": settings})
        project.run("collect", "caption", "annotate")
        with pytest.raises(
            AnnotationError, match=r"2 of the 2 answers of round 2 are missing\. .* run the same command"
        ):
            project.run("train-reward")
        assert not project.output("train-reward").exists()
        server.behave = lambda request, body: None
        project.run("train-reward")
        assert len(server.bodies) == 6, "the first round's answers were kept"
    usage = read_manifest(project.output("train-reward"))["usage"]
    assert (usage["calls"], usage["failures"]) == (6, 2)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"annotate.annotator": "embedding"}, AnnotationError, "the annotator embedding writes no code"),
        ({"env": {"id": "Acrobot-v1"}}, AnnotationError, "simulated writer .* has functions for CartPole, MountainCar"),
        ({"rewards": {"code": {"writer": "teacher"}}}, ParamsError, "writer is teacher, but must be one of main"),
    ],
)
def test_an_annotator_that_cannot_write_code_is_refused_first(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    params = Project.create(tmp_path / "p", {**CARTPOLE, **changes}).params
    with pytest.raises(error, match=why):
        described(params, adapter_for(params.env), places(tmp_path))


@pytest.mark.parametrize(("writer", "who"), [("main", "annotator"), ("poet", "judge poet")])
def test_the_label_of_an_arm_names_who_wrote_its_function(writer: str, who: str) -> None:
    rewards = {"code": CodeParams(kind="code", writer=writer)}
    (info,) = arm_infos([ArmParams(name="mine", reward={"code": 1.0})], rewards, AgentParams(seeds=(0,), steps=1))
    assert info.label == f"a function written by the {who}"
