"""Agents that cannot be trained are refused before anything is collected or paid for, and with few imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.agents.algorithms import initial_policy
from laurel.cli.app import main
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, EnvError, LaurelError, ParamsError
from laurel.params import Params, parse_params
from laurel.params.arms import WELL_KNOWN
from laurel.params.kinds import ALGORITHMS
from laurel.rewards.arms import skipped_arms, trained_arms
from laurel.rewards.method import PayTable, RewardContext
from laurel.rewards.stored import StoredRewards
from laurel.stages.preflight import check_parts, check_run
from laurel.training.checks import check_agents, notes_on_judges
from minimal_params import MINIMAL
from tiny_project import Project, changed

SPACES: dict[str, gym.Space[Any]] = {
    "choices": gym.spaces.Discrete(3),
    "choices_from_1": gym.spaces.Discrete(3, start=1),
    "numbers": gym.spaces.Box(-1.0, 1.0, (2,)),
    "picture": gym.spaces.Box(-1.0, 1.0, (2, 2)),
    "pairs": gym.spaces.MultiDiscrete([2, 3]),
}


def params_of(env_id: str = "FrozenLake-v1", *, arms: Any = ("extrinsic", "preference"), **agent: Any) -> Params:
    content = {**MINIMAL, "env": {"id": env_id}, "arms": list(arms), "agent": {**MINIMAL["agent"], **agent}}
    return parse_params(content, "params.yaml")


def check(params: Params) -> None:
    check_with(params, adapter_for(params.env))


def check_with(params: Params, adapter: EnvAdapter) -> None:
    check_agents(params.seed, params.resolved_arms.values(), RewardContext.of(params), adapter)


def skipped(params: Params, adapter: EnvAdapter) -> dict[str, str]:
    return skipped_arms(params.arms, RewardContext.of(params), adapter)


# -- which arms there are ---------------------------------------------------------------------------------------
def test_all_arms_but_random_policy_are_trained() -> None:
    params = params_of(arms=WELL_KNOWN)
    assert set(WELL_KNOWN) - {*trained_arms(params.arms, RewardContext.of(params), adapter_for(params.env))} == {
        "random_policy"
    }


def test_an_arm_that_can_be_trained_is_not_skipped() -> None:
    params = params_of(arms=WELL_KNOWN)
    assert skipped(params, adapter_for(params.env)) == {}


def test_without_hand_written_progress_there_is_no_oracle() -> None:
    params = params_of("Pendulum-v1", arms=set(WELL_KNOWN) - {"similarity"})
    pendulum = adapter_for(params.env)
    assert skipped(params, pendulum) == {
        "oracle": "The arm oracle was left out: Pendulum-v1 has no hand-written progress."
    }
    assert skipped(params.narrowed("extrinsic"), pendulum) == {}, "that arm was not requested"


def test_on_observations_there_are_no_shuffled_labels() -> None:
    content = {**params_of(arms=WELL_KNOWN).dump(), "rewards": {"preference": {"input": "observation"}}}
    params = parse_params(content, "params.yaml")
    adapter = adapter_for(params.env)
    assert skipped(params, adapter) == {
        "shuffled_labels": 'The arm shuffled_labels was left out: it needs rewards.preference.input "caption".'
    }
    assert skipped(params.narrowed("extrinsic"), adapter) == {}


def test_leaving_out_all_arms_is_an_error() -> None:
    with pytest.raises(ParamsError, match=r"arms: no arm is left\. The arm oracle was left out: Pendulum"):
        check(params_of("Pendulum-v1", arms=["oracle"]))
    check(params_of("Pendulum-v1", arms=["oracle", "random_policy"]))


# -- which algorithms act where ---------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin())
@pytest.mark.parametrize("actions", SPACES)
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1"])
def test_checks_refuse_the_same_as_training(algorithm: str, actions: str, env_id: str) -> None:
    params = params_of(env_id, algorithm=algorithm)
    adapter = adapter_for(params.env)
    adapter.action_space = SPACES[actions]
    assert _refusal(lambda: check_with(params, adapter)) == _refusal(
        lambda: initial_policy(adapter, params.agent.settings, 0, 0)
    )


def _refusal(checked: Callable[[], Any]) -> str | None:
    try:
        checked()
    except EnvError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("env_id", "agent", "sentence"),
    [
        (
            "Pendulum-v1",
            {"algorithm": "dqn"},
            r"agent\.algorithm is dqn, which chooses among Discrete actions, but .* Box\(.*Set it to ppo, a2c",
        ),
        ("Pendulum-v1", {"algorithm": "tabular"}, r"Observation space Box\(.* is not finite"),
        (
            "FrozenLake-v1",
            {"ppo": {"network": "cnn"}},
            r"agent\.ppo\.network is cnn, but the features of FrozenLake-v1",
        ),
    ],
)
def test_error_messages_say_what_to_set(env_id: str, agent: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EnvError, match=sentence):
        check(params_of(env_id, **agent))
    check(params_of(env_id, **agent, arms=["random_policy"]))  # no training, as in steps without `agent`


def test_an_arm_whose_own_algorithm_does_not_fit_is_named() -> None:
    arms = [{"name": "a", "reward": None}, {"name": "b", "reward": None, "agent": {"algorithm": "dqn"}}]
    with pytest.raises(EnvError, match=r"^The arm b: agent\.algorithm is dqn, which chooses among Discrete"):
        check(params_of("Pendulum-v1", arms=arms))
    with pytest.raises(EnvError, match=r"^agent\.algorithm is dqn"):
        check(params_of("Pendulum-v1", arms=arms, algorithm="dqn"))


@pytest.mark.parametrize(
    ("env_id", "sb3", "sentence"),
    [
        ("FrozenLake-v1", {}, r"SAC needs Box spaces, .* is Discrete\(4\)\. A2C, DQN, PPO, QRDQN, TRPO support it\.$"),
        ("Pendulum-v1", {"kwargs": {"gama": 0.9}}, r'SAC has no argument gama. Did you mean "gamma"\?'),
        ("Pendulum-v1", {"kwargs": {"policy_kwargs": {"net_arhc": [3]}}}, r"SAC cannot be made with these arguments"),
    ],
)
def test_what_stable_baselines3_would_refuse_is_refused(env_id: str, sb3: dict[str, Any], sentence: str) -> None:
    pytest.importorskip("stable_baselines3")
    with pytest.raises(ParamsError, match=sentence):
        check(params_of(env_id, engine="sb3", sb3=sb3))
    check(params_of(env_id, sb3=sb3))  # not checked if Laurel's own engine trains


# -- when it is looked at ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", ["collect", "annotate", "train-reward", "train-agents"])
def test_every_costly_command_checks_first(
    stage: str,
    rewarded: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = rewarded.copy(tmp_path / "p", {"agent.ppo.network": "cnn"})
    before = {place: place.stat().st_mtime_ns for place in (tmp_path / "p" / "data").rglob("*")}
    monkeypatch.chdir(project.path)
    assert main([stage]) == 2
    assert capsys.readouterr().err.startswith("laurel: agent.ppo.network is cnn")
    assert {place: place.stat().st_mtime_ns for place in before} == before


def test_the_first_stage_checks_what_later_ones_need(tmp_path: Path) -> None:
    """What the command of the first stage in dvc.yaml says, before a step is taken."""
    lacking = {"annotate.annotator": "huggingface", "annotate.language_model": {"prompt": "mine.jinja"}}
    project = Project.create(tmp_path / "p", lacking)
    done = project.laurel("collect")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("laurel: mine.jinja: no such file.")
    assert not project.output("collect").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"evaluate.kwargs": {"gravity": 1}}, "evaluate.kwargs: FrozenLake-v1 cannot be made with {'gravity': 1}: "),
        ({"env.backend": "envpool", "env.kwargs": {"map_name": "8x8"}}, 'env.backend is "envpool" for FrozenLake-v1, '),
    ],
)
def test_the_first_check_refuses_environments_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sentence: str
) -> None:
    project = Project.create(tmp_path / "p", {"env.id": "FrozenLake-v1", **changes})
    monkeypatch.chdir(project.path)
    with pytest.raises(EnvError) as raised:
        check_run(project.params)
    assert str(raised.value).startswith(sentence)


def test_a_pipeline_checks_before_it_plans() -> None:
    with pytest.raises(ParamsError, match=r"collect\.parts is 1, but the pipeline was compiled with 2"):
        check_parts(params_of(), 2)
    check_parts(params_of(), 1)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin() if name not in ("grpo", "rloo")])
def test_checks_import_no_torch(algorithm: str) -> None:
    """Else collection would begin seconds later."""
    code = (
        "import sys; from laurel.training.checks import check_agents; from laurel.envs import adapter_for; "
        "from laurel.params import parse_params; import json; params = parse_params(json.loads(sys.argv[1]), ''); "
        "from laurel.rewards.method import RewardContext; arms = params.resolved_arms.values(); "
        "check_agents(0, arms, RewardContext.of(params), adapter_for(params.env)); sys.exit('torch' in sys.modules)"
    )
    section: dict[str, Any] = {"subgoals": {"options": {"plan": "random"}}} if algorithm == "subgoals" else {}
    env_id = "MiniGrid-Empty-5x5-v0" if section else "FrozenLake-v1"
    content = params_of(env_id, algorithm=algorithm, **section).model_dump_json()
    assert subprocess.run([sys.executable, "-c", code, content], check=False).returncode == 0


PAID = np.array([0.0, *[1.0] * 59], dtype=np.float32)
SIXTY_SQUARES = PayTable([f"square {i}" for i in range(60)], PAID, 0 * PAID, np.ones(60, dtype=np.int64), 0.0)


# -- laurel check -----------------------------------------------------------------------------------------------
def check_command(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.chdir(project.path)
    assert main(["check"]) == 0
    return capsys.readouterr().out


def test_check_names_gold_labels_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project.create(tmp_path / "p", {"annotate.gold": "gold.jsonl"})
    monkeypatch.chdir(project.path)
    assert main(["check"]) == 0
    assert "gold.jsonl: no such file yet, but annotate.gold names it" in capsys.readouterr().err
    Path("gold.jsonl").mkdir()
    assert main(["check"]) == 2
    assert "gold.jsonl: a directory, but annotate.gold names it" in capsys.readouterr().err
    Path("gold.jsonl").rmdir()
    Path("gold.jsonl").touch()
    assert main(["check"]) == 0
    assert "gold" not in capsys.readouterr().err
    Path("gold.jsonl").write_text("no JSON\n{}\n")
    assert main(["check"]) == 2
    assert "gold.jsonl" in capsys.readouterr().err


def test_check_says_what_a_run_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"env.id": "Pendulum-v1", "arms": ["extrinsic", "preference", "oracle", "random_policy"]}
    project = Project.create(tmp_path / "p", {**changes, "annotate.embedding": {"goal": "up", "anti_goal": "down"}})
    assert check_command(project, monkeypatch, capsys).splitlines() == [
        "environment  Pendulum-v1 (captions made from the observation space alone)",
        "collect      3,000 environment steps (policy: random)",
        "annotate     embedding: at most 200 pairs of captions, in this process and at no cost",
        "arms         extrinsic, preference, random_policy",
        "             The arm oracle was left out: Pendulum-v1 has no hand-written progress.",
        "train        4 agents of 2,048 steps with ppo (2 seeds an arm)",
        "evaluate     4 episodes for each agent",
    ]
    assert not (project.path / "data").exists(), "nothing is written"


def test_check_estimates_what_a_chat_model_costs_once_there_are_captions(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = rewarded.copy(
        tmp_path / "p", {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    )
    with_captions = check_command(project, monkeypatch, capsys)
    assert "annotate     openai gpt-5-mini: at most 200 pairs of captions\n" in with_captions
    assert "annotate     questions" in with_captions
    assert "annotate     money" in with_captions
    project.change({"caption.with_action": True})
    without = check_command(project, monkeypatch, capsys)
    assert "can be estimated once there are captions: laurel annotate --dry-run" in without
    assert "money" not in without


def test_check_reports_the_possible_bonus_once_rewards_exist(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StoredRewards, "table", lambda *_: SIXTY_SQUARES)
    project = rewarded.copy(
        tmp_path / "p", {"arms": {"preference": {}, "alone": {"reward": "preference", "extrinsic": 0}}}
    )
    bound = "train-reward preference: meeting each of 59 captions once pays 5.9 in all; the environment paid the best "
    bound += "collected episode 0"
    said = [line for line in check_command(project, monkeypatch, capsys).splitlines() if "meeting" in line]
    assert len(said) == 1, "the other arm is paid nothing by the environment"
    assert said[0].startswith(
        f"{bound}. If agents collect captions instead of doing the task, lower shaping.intrinsic or"
    )
    project.change({"shaping.intrinsic": 0.01})
    assert f"{bound}\n".replace("5.9", "0.59") in check_command(project, monkeypatch, capsys)
    project.change({"rewards.preference.ensemble": 4})
    assert "meeting" not in check_command(project, monkeypatch, capsys), "rewards of other params say nothing of these"


def test_a_check_from_a_later_stage_needs_only_its_inputs(rewarded: Project) -> None:
    asking = rewarded.params.annotate.language_model.model_copy(update={"prompt": "gone.jinja"})
    params = changed(rewarded.params, annotate={"annotator": "huggingface", "language_model": asking})
    with pytest.raises(LaurelError, match=r"gone\.jinja: no such file"):
        check_run(params, "annotate")
    check_run(params, "train-reward")


@pytest.mark.parametrize(("kind", "key"), [("preference", "encoder"), ("text", "model")])
def test_a_missing_folder_of_a_reward_is_refused_before_the_judge_is_paid(kind: str, key: str) -> None:
    """The judge's own encoder is there; the rewards of the other arms are made from what is collected."""
    content = {**MINIMAL, "arms": {"learned": {"reward": "learned"}}, "rewards": {"learned": {"kind": kind}}}
    check_run(parse_params(content, "params.yaml"))
    content["rewards"]["learned"][key] = "/no/model"
    params = parse_params(content, "params.yaml")
    for start in ("collect", "annotate", "train-reward"):
        with pytest.raises(DataError, match=rf"rewards\.learned\.{key}: /no/model does not exist"):
            check_run(params, start)
    check_run(params, "train-agents")


def test_a_tuned_judge_that_is_asked_online_with_another_prompt_is_noted() -> None:
    def notes(prompt: str, form: str = "ranking") -> list[str]:
        judge = {
            "annotator": "huggingface",
            "huggingface": {"model": "smollm2", "adapter": "laurel"},
            "language_model": {"prompt": prompt},
        }
        params = parse_params(
            {
                **MINIMAL,
                "annotate": {"judges": {"tuned": judge}},
                "rewards": {"live": {"kind": "online", "judge": "tuned", "form": form}},
                "arms": ["extrinsic", {"name": "live", "reward": "live"}, {"name": "live2", "reward": "live"}],
            },
            "params.yaml",
        )
        return notes_on_judges(params.resolved_arms.values(), RewardContext.of(params))

    (note,) = notes("answer_only")
    assert 'The adapter "laurel" was tuned with the prompt concise, but is asked with answer_only' in note
    assert not notes("concise")
    assert not notes("answer_only", "classification"), "single captions have a prompt of their own"


@pytest.mark.parametrize("agent", [{}, {"algorithm": "dqn"}, {"engine": "sb3", "sb3": {"algorithm": "DQN"}}])
def test_more_one_hot_numbers_than_any_memory_holds_are_refused(agent: dict[str, Any]) -> None:
    class Numbered(EnvAdapter):
        description, goal = "States with numbers.", "You arrive."

        def caption(self, step: Any) -> str:
            return "You go on."

    class Compact(Numbered):
        def features(self, observation: Any) -> Any:
            return observation.astype(np.float32) / 10**12

    params, actions = params_of(arms=["extrinsic"], **agent), gym.spaces.Discrete(2)
    huge = Numbered("Huge-v0", gym.spaces.Discrete(10**12), actions)
    with pytest.raises(EnvError, match="Huge-v0: an observation is 1,000,000,000,000 numbers for a network"):
        check_with(params, huge)
    check_with(params, Compact("Huge-v0", gym.spaces.Discrete(10**12), actions))
    if not agent:  # where a row fits, an update of PPO may not
        with pytest.raises(EnvError, match=r"agent.ppo has 2,048 observations at once, 41 GB"):
            check_with(params, Numbered("Large-v0", gym.spaces.Discrete(5_000_000), actions))
