"""What `laurel check` says that a run will do, against what it does: labels, label sets, steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from laurel.envs import adapter_for
from laurel.errors import EnvError
from laurel.feedback.annotator_kind import AnnotatorKind, kind_of
from laurel.feedback.probe import load_probe
from laurel.params.annotation import AnnotateParams
from laurel.rewards.arms import used_label_sets
from laurel.rewards.method import RewardContext
from laurel.stages.description import described, missing_keys
from laurel.stages.workload import pairs_asked
from tiny_project import UNTRACKED, Project


def lines(place: Path, changes: dict[str, Any]) -> str:
    project = Project.create(place / "p", {**UNTRACKED, **changes})
    outputs = {name: project.path / name for name in ("trajectories", "captions", "reward")}
    return described(project.params, adapter_for(project.params.env), outputs)


def test_steps_are_rounded_to_whole_updates(tmp_path: Path) -> None:
    small = {"n_envs": 512, "n_steps": 32}
    changes = {"arms": ["extrinsic"], "agent.seeds": [0], "agent.steps": 3000, "agent.ppo": small}
    assert "1 agent of 16,384 steps with ppo (1 seed an arm)" in lines(tmp_path, changes)
    fewer = {"reward": "preference", "agent": {"ppo": {"n_envs": 64}}}
    both: dict[str, Any] = {"agent.seeds": [0, 3], "arms": {"extrinsic": {}, "a": fewer}}
    assert "4 agents of 4,096 to 16,384 steps" in lines(tmp_path / "more", {**changes, **both})


def test_pairs_are_those_of_every_label_set_and_judge(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"annotate.n_pairs": 500, "annotate.feedback_seeds": 3, "agent.seeds": [0, 1, 2]}
    assert "at most 1,500 pairs of captions in all (3 label sets), in this process" in lines(tmp_path, changes)
    changes["annotate.probe"] = {"success_questions": 16}
    assert "captions in all (3 label sets) and 48 with known answers, in this" in lines(tmp_path / "known", changes)
    unknown = {**changes, "env.id": "Pendulum-v1"}  # nothing is success there
    assert "known answers" not in lines(tmp_path / "unknown", unknown)
    changes |= {
        "annotate.judges": {"teacher": {"annotator": "scripted", "n_pairs": 100}},
        "rewards": {"taught": {"kind": "preference", "judge": "teacher"}},
        "arms": {"preference": {}, "taught": {"reward": "taught"}},
    }
    assert "(2 judges, 3 label sets each) and 96 with known answers" in lines(tmp_path / "two", changes)


def test_the_questions_of_a_probe_are_counted_and_those_of_each_shard(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"annotate.n_pairs": 500, "annotate.probe": {"success_questions": 16, "min_score": 0.0}}
    known = 16 + len(load_probe("MiniGrid-Empty-5x5-v0").asked)
    assert f"at most 500 pairs of captions and {known} with known answers" in lines(tmp_path, changes)
    alone = Project.create(tmp_path / "alone", {**UNTRACKED, "annotate.probe": {"success_questions": 16}}).params
    assert pairs_asked(alone, shards=3).endswith(" and 48 with known answers")


def test_a_chat_model_that_only_writes_code_does_not_judge_pairs(tmp_path: Path) -> None:
    server = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    changes: dict[str, Any] = {
        "env.id": "CartPole-v1",
        "annotate.annotator": "embedding",
        "annotate.judges": {"writer": {"annotator": "openai", "openai": server}},
        "rewards": {"code": {"writer": "writer"}},
        "arms": {"preference": {"reward": "preference"}, "code": {"reward": "code"}},
    }
    said = lines(tmp_path, changes)
    assert "in this process and at no cost\n" in said
    assert "once there are captions" not in said
    changes["rewards"]["preference"] = {"judge": "writer"}
    assert "The cost can be estimated once there are captions" in lines(tmp_path / "asked", changes)


def test_a_tuned_judge_is_named_by_its_adapter(tmp_path: Path) -> None:
    """Untuned, the same model cannot judge: `laurel check` named both alike."""
    changes: dict[str, Any] = {
        "annotate.annotator": "huggingface",
        "annotate.huggingface": {"model": "smollm2", "adapter": "laurel"},
        "annotate.language_model": {"prompt": "concise"},
        "rewards": {"online": {"kind": "online"}},
        "arms": {"preference": {}, "online": {"reward": "online"}},
    }
    said = lines(tmp_path, changes)
    assert "annotate     huggingface smollm2 with adapter laurel: at most " in said
    assert "online: huggingface smollm2 with adapter laurel is asked about pairs" in said
    other = {"annotate.language_model": {"prompt": "answer_only"}, "arms": {"online": {"reward": "online"}}}
    assert "tuned with the prompt concise, but is asked with answer_only" in lines(tmp_path / "o", {**changes, **other})


def test_of_many_unused_label_sets_the_first_are_named(tmp_path: Path) -> None:
    said = lines(tmp_path, {"annotate.feedback_seeds": 1000, "agent.seeds": [0], "arms": ["extrinsic", "preference"]})
    assert "No agent learns from label sets 1, 2, 3, 4, 5, 6, 7, 8, and 991 more: " in said


def test_agents_of_stable_baselines3_take_at_least_as_many_steps(tmp_path: Path) -> None:
    changes = {"arms": ["extrinsic"], "agent.seeds": [0], "agent.steps": 3000, "agent.engine": "sb3"}
    assert "1 agent of at least 3,000 steps with SAC (sb3)" in lines(tmp_path, changes)


@pytest.mark.parametrize(
    ("seeds", "left"), [([0, 3], "label sets 1, 2:"), ([0, 1], "label set 2:"), ([4, 5, 6], None), ([0, 1, 2], None)]
)
def test_label_sets_that_no_agent_learns_from_are_named(tmp_path: Path, seeds: list[int], left: str | None) -> None:
    changes = {"annotate.feedback_seeds": 3, "agent.seeds": seeds, "arms": ["extrinsic", "preference", "random_reward"]}
    said = lines(tmp_path, changes)
    assert (f"No agent learns from {left}" in said) if left else ("No agent learns" not in said)
    params = Project(tmp_path / "p").params
    used = used_label_sets(params.resolved_arms.values(), RewardContext.of(params))
    assert used == {"main": {seed % 3 for seed in seeds}}


def test_a_missing_key_is_noted_and_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "OPENAI_API_KEY" in lines(tmp_path, changes)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert "OPENAI_API_KEY" not in lines(tmp_path, changes)


PLAYER = {"player": {"annotator": "openai", "openai": {"model": "gpt-5-mini"}}}
HINTED = {"ppo": {"hints": {"options": {"judge": "player"}}}}


@pytest.mark.parametrize(
    ("arm", "rewards", "whom"),
    [
        ({"reward": "score"}, {}, "main (the reward score)"),
        ({"reward": "goals"}, {}, "main (the reward goals)"),
        ({"reward": "outcome"}, {}, "main (the reward outcome)"),
        ({"reward": "code"}, {"code": {"writer": "player"}}, "player (the reward code)"),
        ({"reward": "online"}, {}, "main (the reward online)"),
        ({"reward": "llm_hints"}, {"llm_hints": {"options": {"judge": "player"}}}, "player (the reward llm_hints)"),
        ({"reward": "shuffled"}, {"shuffled": {"kind": "shuffled_labels", "of": "score"}}, "main (the reward score)"),
        ({"reward": None, "agent": {"actor": "llm_policy"}}, {}, "main (the actor of arm)"),
        ({"reward": None, "agent": {"actor": "planner"}}, {}, "main (the actor of arm)"),
        ({"reward": None, "agent": HINTED}, {}, "player (the hints of arm)"),
        ({"reward": "preference", "agent": HINTED}, {}, "main (pairs), player (the hints of arm)"),
    ],
)
def test_a_missing_key_is_noted_whatever_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: dict[str, Any], rewards: dict[str, Any], whom: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}, "annotate.judges": PLAYER}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **asked, "arms": {"arm": arm}, "rewards": rewards})
    (note,) = missing_keys(project.params)
    assert note.startswith(f"The judge {whom}: https://api.openai.com/v1 needs a key: set the environment variable")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert missing_keys(project.params) == []


def test_an_unknown_price_is_noted_before_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cost is limited, nothing would be asked."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "own"}, "annotate.budget": {"max_cost": 1.0}}
    said = lines(tmp_path, asked)
    assert "missing      The judge main (pairs): annotate.budget.max_cost is $1.00, but the price of " in said
    assert '"own" at https://api.openai.com/v1 is unknown' in said
    monkeypatch.delenv("OPENAI_API_KEY")
    project = Project.create(tmp_path / "both", {**UNTRACKED, **asked})
    (both,) = missing_keys(project.params)
    assert "needs a key" in both
    assert "price" in both
    known = {**asked, "annotate.openai": {"model": "gpt-5-mini"}}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert "missing" not in lines(tmp_path / "known", known)


@pytest.mark.parametrize("plan", ["random", "progress"])
def test_no_key_is_needed_without_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    """The planner's control and bound name subgoals without a model, though they have the option `judge`."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    arms = {"arm": {"reward": None, "agent": {"actor": "planner", "options": {"plan": plan}}}}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **asked, "arms": arms, "rewards": {}})
    assert missing_keys(project.params) == []


def test_a_missing_key_is_noted_before_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    changes = {**UNTRACKED, **asked, "arms": {"arm": {"reward": "score"}}, "rewards": {}, "collect.steps": 100}
    done = Project.create(tmp_path / "p", changes).laurel("collect")
    assert done.returncode == 0, done.stderr
    assert "collect: The judge main (the reward score): https://api.openai.com/v1 needs a key" in done.stderr


def test_a_collection_without_an_ending_is_refused_before_labels_are_paid_for(tmp_path: Path) -> None:
    rewards = {"truth": {"kind": "outcome", "judge": "truth"}}
    changes = {**UNTRACKED, "rewards": rewards, "arms": {"arm": {"reward": "truth"}}, "collect.n_envs": 8}
    project = Project.create(tmp_path / "p", {**changes, "collect.steps": 8})
    done = project.laurel("run")
    assert done.returncode == 2
    assert "trajectories: no episode ended, but truth is made from how episodes end. Raise collect.steps" in done.stderr
    assert not project.output("caption").exists()
    project.change({"arms": {"preference": {}}})
    assert project.laurel("collect").returncode == 0, "no reward needs one"


ENDLESS = """
import gymnasium as gym
from laurel.envs import EnvAdapter


class Endless(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(action), 0.0, False, False, {}


class EndlessAdapter(EnvAdapter):
    ids = ("NeverEnds-v0",)
    description = goal = "Stay."

    def caption(self, step):
        return "You stay."


gym.register("NeverEnds-v0", Endless)
"""


def test_an_environment_of_ones_own_without_a_limit_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_ends.py").write_text(ENDLESS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    changes: dict[str, Any] = {"env.id": "never_ends:NeverEnds-v0", "arms": ["extrinsic"]}
    note = "if they may never end, set env.max_episode_steps."
    assert note in lines(tmp_path, changes)
    assert note not in lines(tmp_path, {**changes, "env.max_episode_steps": 50})
    with pytest.raises(EnvError, match=r'"NeverEnd-v0"\. Did you mean "NeverEnds-v0"\?'):
        lines(tmp_path, {**changes, "env.id": "never_ends:NeverEnd-v0"})
    with pytest.raises(EnvError, match=r'no environment "CartPole-v9"\. The module never_ends does not register'):
        lines(tmp_path, {**changes, "env.id": "never_ends:CartPole-v9"})


def test_actions_that_a_policy_hardly_tries_are_named(tmp_path: Path) -> None:
    """PPO never learned to set a dial between 100 and 200 to 150: all its actions were clipped to 100."""

    class Dial(gym.Env[Any, Any]):
        observation_space = gym.spaces.Discrete(2)
        action_space = gym.spaces.Box(100, 200, (1,))

    gym.register("TestDial-v0", lambda **_: Dial(), max_episode_steps=5)
    try:
        changes: dict[str, Any] = {"env.id": "TestDial-v0", "arms": ["extrinsic", "random_policy"]}
        said = lines(tmp_path / "ours", changes)
        assert (
            "Agents of extrinsic hardly try most actions: their range is from 100 to 200, but policies start as" in said
        )
        assert "hardly try" not in lines(tmp_path / "sac", {**changes, "agent.engine": "sb3"})
        untrained = {"random_policy": {}, "two": {"reward": None, "agent": {"actor": "random"}}}
        assert "hardly try" not in lines(tmp_path / "untrained", {**changes, "arms": untrained})
    finally:
        del gym.registry["TestDial-v0"]
    assert "hardly try" not in lines(tmp_path / "pendulum", {**changes, "env.id": "Pendulum-v1"})
    texts: dict[str, Any] = {"env.id": "laurel/Completions-v0", "arms": ["extrinsic"], "agent.algorithm": "grpo"}
    assert "hardly try" not in lines(tmp_path / "texts", texts)  # tokens are drawn there, not bytes


def test_arms_that_no_reward_pays_are_named(tmp_path: Path) -> None:
    """With shaping.extrinsic 0 the arm of the environment's reward alone was trained on zeros without a word."""
    weightless = {"reward": "preference", "shaping": {"intrinsic": 0.0}}
    arms = {"extrinsic": {}, "preference": {}, "weightless": weightless, "paid": {"reward": None, "extrinsic": 1.0}}
    said = lines(tmp_path / "unpaid", {"arms": {**arms, "random_policy": {}}, "shaping.extrinsic": 0.0})
    assert "Agents of extrinsic, weightless learn from no reward at all: shaping.extrinsic" in said
    assert "Set arms.extrinsic.extrinsic to 1, for instance" in said
    assert "no reward at all" not in lines(tmp_path / "paid", {"arms": arms})


def test_online_labels_that_come_after_training_are_named(tmp_path: Path) -> None:
    ppo = {"agent.steps": 1000, "agent.ppo": {"n_envs": 4, "n_steps": 32}}  # 1,024 steps in updates of 128

    def said(name: str, **settings: int) -> str:
        return lines(tmp_path / name, {**ppo, "arms": {"on": {"reward": "online"}}, "rewards": {"online": settings}})

    assert "reward online would take effect after 1,024 environment steps, but agents of on are" in said("a", every=897)
    assert "would take effect after 1,024" in said("b", every=512, delay=2)
    assert "take effect" not in said("c", every=896)


def test_a_single_collected_step_is_one(tmp_path: Path) -> None:
    """As where nothing reads the collected steps, but agents are annotated while they train."""
    assert "collect      1 environment step (policy: random)" in lines(tmp_path, {"collect.steps": 1})


def notes(place: Path, changes: dict[str, Any]) -> list[str]:
    said = lines(place, changes).splitlines()
    return [line.removeprefix("note         ") for line in said if line.startswith("note ")]


def test_settings_that_do_nothing_are_named(tmp_path: Path) -> None:
    assert notes(tmp_path / "usual", {}) == []
    (few,) = notes(tmp_path / "few", {"collect.n_envs": 5000})
    assert few.startswith("collect.n_envs is 5,000, but there are only 3,000 steps in all: no environment gets beyond")
    (few,) = notes(tmp_path / "parts", {"collect.n_envs": 2000, "collect.parts": 2})
    assert "only 1,500 steps in all of each part" in few
    (weight,) = notes(tmp_path / "weight", {"arms": {"a": {"reward": {"preference": 0, "oracle": 1}}}})
    assert weight.startswith(
        "arms.a.reward gives preference the weight 0: it adds nothing, but it is made all the same"
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"shaping.gamma": 0.9}, ["shaping.gamma has no effect with form bonus."]),
        ({"shaping": {"gamma": 0.9, "form": "potential"}}, []),
        ({"shaping": {"beta": 1.0, "form": "potential"}}, ["shaping.beta has no effect with form potential."]),
        ({"shaping.gamma": 0.9, "arms": {"a": {"reward": "oracle", "shaping": {"form": "potential"}}}}, []),
        ({"shaping.gamma": 0.9, "arms": ["extrinsic"]}, []),
        (
            {"arms": {"a": {"reward": "oracle", "shaping": {"gamma": 0.9}}}},
            ["arms.a.shaping.gamma has no effect with form bonus."],
        ),
        (
            {
                "arms": {"a": {"reward": "online"}},
                "rewards": {"online": {"form": "retrieval", "encoder": "characters", "questions": 20}},
            },
            ["rewards.online.encoder has no effect with form retrieval."],
        ),
    ],
)
def test_settings_that_the_form_does_not_use_are_named(
    changes: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    assert notes(tmp_path, changes) == named


def test_the_cost_of_a_reward_of_hints_says_when_it_is_asked(tmp_path: Path) -> None:
    """Its line names the stage that makes rewards, which asks nothing."""
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    (line,) = (
        line
        for line in lines(tmp_path, {**asked, "arms": {"arm": {"reward": "llm_hints"}}}).splitlines()
        if line.startswith("train-reward llm_hints:")
    )
    assert "is asked about each distinct state once" in line
    assert line.endswith("; while agents are trained and evaluated")


def test_the_questions_of_a_curriculum_that_several_arms_share_are_told_once(tmp_path: Path) -> None:
    rooms = ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"]
    drawn = {"reward": None, "agent": {"curriculum": {"interest": "large"}}}
    judge = {"annotator": "openai", "openai": {"model": "tiny", "base_url": "http://127.0.0.1:1/v1"}}
    changes = {
        "env": {"id": "laurel/Tasks-v0", "kwargs": {"tasks": rooms}},
        "arms": {"one": drawn, "other": {**drawn, "extrinsic": 0.5}},
        "annotate.judges": {"large": judge},
    }
    told = lines(tmp_path, changes)
    assert "curriculum of one, other: tiny is asked about 2 pairs of tasks: 2 calls at most" in told
    assert told.count("pairs of tasks") == 1
    assert told.index("pairs of tasks") < told.index("\nevaluate"), "it is asked in training"


def test_what_hints_cost_is_listed_with_the_training(tmp_path: Path) -> None:
    asked = {"annotate.annotator": "openai", "annotate.openai": {"model": "gpt-5-mini"}}
    hinted = {"reward": None, "agent": {"ppo": {"hints": {}}}}
    player = {"reward": None, "agent": {"actor": "llm_policy"}}
    told = lines(tmp_path, {**asked, "arms": {"hinted": hinted, "player": player}})
    assert told.index("hinted, hints: ") < told.index("\nevaluate") < told.index("player: ")


def test_a_cost_that_another_packages_judge_does_not_estimate_is_not_called_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"env.id": "CartPole-v1", "annotate.annotator": "embedding", "arms": {"preference": None}}
    monkeypatch.setattr(AnnotatorKind, "estimates", False)
    said = lines(tmp_path, changes)
    assert "pairs of captions, at a cost that embedding does not estimate\n" in said
    assert "at no cost" not in said


def test_which_judges_estimate_their_cost() -> None:
    class Silent(AnnotatorKind):
        def make(self, *_: Any, **__: Any) -> Any:
            return None

    class Estimating(Silent):
        def estimate(self, *_: Any) -> None:
            return None

    params = AnnotateParams(annotator="embedding")
    kinds = (kind_of(params), Silent(params), Estimating(params))
    assert [kind.estimates for kind in kinds] == [True, False, True]
