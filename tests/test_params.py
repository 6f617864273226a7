"""Params: what is right is accepted, and what is wrong is answered with a sentence that helps."""

from __future__ import annotations

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from laurel.errors import ParamsError
from laurel.params import Params, PolicyShare, parse_params
from laurel.params.arm_infos import arm_infos
from laurel.params.arms import WELL_KNOWN, arm_of
from laurel.params.fields import Section
from minimal_params import MINIMAL, with_value


def value_at(params: Params, key: str) -> Any:
    found: Any = params
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def refusal(content: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        parse_params(content, "my.yaml")
    return str(caught.value)


def test_an_arm_is_the_same_in_whatever_order_its_mappings_are_written() -> None:
    written = {
        "reward": {"novelty": 0.5, "preference": 1.0},
        "shaping": {"quantile": 0.1, "beta": 1},
        "agent": {"dqn": {"gamma": 0.9, "batch_size": 32}, "algorithm": "dqn"},
    }
    turned = {name: dict(reversed(mapping.items())) for name, mapping in written.items()}
    first, second = (parse_params(with_value("arms", {"mix": arm}), "my.yaml") for arm in (written, turned))
    assert arm_infos(first.arms, first.rewards, first.agent) == arm_infos(second.arms, second.rewards, second.agent)
    assert list(first.arms[0].reward) == list(second.arms[0].reward) == ["preference", "novelty"]


# -- what is accepted -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("shaping.beta", 3, 3.0),
        ("shaping.beta", 0, 0.0),
        ("shaping.quantile", 0, 0.0),
        ("agent.ppo.gamma", 1, 1.0),
        ("arms", "full", tuple(map(arm_of, WELL_KNOWN))),
        ("arms", ["oracle"], (arm_of("oracle"),)),
        ("agent.seeds", [2**31 - 1], (2**31 - 1,)),
        ("agent.workers", None, None),
        ("agent.ppo.hidden", [32, 16], (32, 16)),
        ("agent.ppo.hidden", [], ()),
        ("rewards.preference.hidden", [32], (32,)),
        ("env.max_episode_steps", None, None),
        ("env.kwargs", {"map": ["SF", "FG"], "p": {"q": [1, 2.5, None, True]}}, None),
        ("collect.policies", [{"kind": "checkpoint", "path": "data/x"}], None),
        ("collect.policies", [{}], (PolicyShare(),)),
    ],
)
def test_accepted(key: str, value: Any, expected: Any) -> None:
    found = value_at(parse_params(with_value(key, value), "my.yaml"), key)
    if key == "env.kwargs":
        assert found == value
    elif key == "collect.policies" and expected is None:
        assert found == (PolicyShare(kind="checkpoint", path=Path("data/x")),)
    else:
        assert found == expected
        assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ({}, "ppo"),
        ({"algorithm": "tabular", "tabular": {"method": "sarsa"}}, "sarsa"),
        ({"algorithm": "bandit", "bandit": {"method": "ucb"}}, "ucb (bandit)"),
        ({"algorithm": "bandit", "engine": "sb3", "sb3": {"algorithm": "TD3"}}, "TD3 (sb3)"),
    ],
)
def test_reports_name_what_trained(agent: dict[str, Any], name: str) -> None:
    params = parse_params({**MINIMAL, "agent": {**MINIMAL["agent"], **agent}}, "params.yaml")
    assert params.agent.trainer == name


def test_optional_sections_have_defaults() -> None:
    params = parse_params(MINIMAL, "my.yaml")
    assert params.seed == 0
    assert params.annotate.annotator == "embedding"
    assert params.collect.policies == (PolicyShare(),)


def test_params_cannot_be_changed() -> None:
    params = parse_params(MINIMAL, "my.yaml")
    with pytest.raises(ValidationError, match="frozen"):
        params.shaping.beta = 1.0  # type: ignore[misc]


def test_the_content_is_not_changed() -> None:
    content = with_value("arms", "full")
    kept = copy.deepcopy(content)
    parse_params(content, "my.yaml")
    assert content == kept


# -- what is refused: file, key, value, what is allowed -----------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        # unknown keys
        ("agnet", {}, 'agnet is unknown. Did you mean "agent"? Allowed here: seed, env, '),
        ("agent.ppo.gama", 0.9, 'agent.ppo.gama is unknown. Did you mean "gamma"? Allowed here: n_envs, n_steps, '),
        ("annotate.scripted.eror_rate", 0.9, 'annotate.scripted.eror_rate is unknown. Did you mean "error_rate"?'),
        ("collect.policies", [{"knd": "random"}], 'collect.policies[0].knd is unknown. Did you mean "kind"?'),
        ("xyz", 1, "xyz is unknown. Allowed here: seed, env, "),
        # wrong types
        ("agent.steps", "many", 'agent.steps is "many", but must be a whole number.'),
        ("agent.device", "gpu",
         'agent.device is "gpu", but must be one of cpu, cuda, auto: write cuda, or auto for a GPU if there is one.'),
        ("collect.steps", "1000", 'collect.steps is "1000", but must be a whole number.'),
        ("agent.ppo.n_envs", 1.5, "agent.ppo.n_envs is 1.5, but must be a whole number."),
        ("agent.ppo.n_envs", True, "agent.ppo.n_envs is true, but must be a whole number."),
        ("agent.steps", 1e6, "agent.steps is 1000000.0, but must be a whole number: write 1000000."),
        ("agent.steps", None, "agent.steps is null, but must be a whole number."),
        ("seed", [0], "seed is a list of 1, but must be a whole number."),
        ("shaping.beta", True, "shaping.beta is true, but must be a number such as 0.1 or 3e-4."),
        ("shaping.beta", "three", 'shaping.beta is "three", but must be a number such as 0.1 or 3e-4.'),
        ("caption.enumerate", "yes", 'caption.enumerate is "yes", but must be true or false.'),
        ("tracking.enabled", 1, "tracking.enabled is 1, but must be true or false."),
        ("env.id", 3, "env.id is 3, but must be text."),
        ("agent.seeds", 3, "agent.seeds is 3, but must be a list."),
        ("agent.seeds", "0, 1", 'agent.seeds is "0, 1", but must be a list.'),
        ("agent.seeds", [0, "1"], 'agent.seeds[1] is "1", but must be a whole number.'),
        ("agent.ppo.hidden", [64, 1.5], "agent.ppo.hidden[1] is 1.5, but must be a whole number."),
        ("env.kwargs", [1], "env.kwargs is a list of 1, but must be a mapping."),
        ("env.kwargs", {"a": {1, 2}}, "env.kwargs.a is {1, 2}, but must be made of null, true, false, numbers, text, "),
        ("collect.policies", [{"path": 3}], "collect.policies[0].path is 3, but must be a path."),
        # sections that are no mappings
        ("env", "CartPole-v1", 'env is "CartPole-v1", but must be a mapping with keys id, kwargs, '),
        ("shaping", None,
         "shaping is null, but must be a mapping with keys quantile, beta, intrinsic, extrinsic, form, gamma."),
        ("collect.policies", [3], "collect.policies[0] is 3, but must be a mapping with keys kind, share, "),
        ("collect.policies", {"kind": "random"}, "collect.policies is a mapping of 1, but must be a list."),
        # out of range
        ("collect", {"steps": 2, "parts": 3}, "collect has 3 parts, but only 2 steps: set collect.parts to fewer."),
        ("shaping.quantile", 1.0, "shaping.quantile is 1.0, but must be less than 1."),
        ("shaping.beta", -1, "shaping.beta is -1, but must be greater than or equal to 0."),
        ("agent.ppo.learning_rate", 0, "agent.ppo.learning_rate is 0, but must be greater than 0."),
        ("agent.ppo.gamma", 1.01, "agent.ppo.gamma is 1.01, but must be less than or equal to 1."),
        ("agent.steps", 0, "agent.steps is 0, but must be greater than or equal to 1."),
        ("agent.seeds", [0, -1], "agent.seeds[1] is -1, but must be greater than or equal to 0."),
        ("rewards.preference.ensemble", 1, "rewards.preference.ensemble is 1, but must be greater than or equal to 2."),
        ("rewards.preference.label_smoothing", 0.5,
         "rewards.preference.label_smoothing is 0.5, but must be less than 0.5."),
        # huge, infinite, not a number
        ("agent.steps", 10**30, f"agent.steps is {10**30}, but must be less than 2147483648."),
        ("seed", 2**31, "seed is 2147483648, but must be less than 2147483648."),
        ("evaluate.animation_steps", 2**40, "evaluate.animation_steps is 1099511627776, but must be less than"),
        ("shaping.beta", 10**400, "shaping.beta is a number of hundreds of digits, but must be a number"),
        ("shaping.beta", math.inf, "shaping.beta is inf, but must be a finite number."),
        ("annotate.max_failure_rate", math.nan, "annotate.max_failure_rate is nan, but must be a finite number."),
        # one of a few
        ("env.backend", "envpol",
         'env.backend is "envpol", but must be one of auto, envpool, gymnasium. Did you mean "e'),
        ("annotate.annotator", "scriptd",
         'annotate.annotator is "scriptd", but must be one of embedding, ensemble, huggingface, openai, scripted.'),
        ("annotate.annotator", False,
         "annotate.annotator is false, but must be one of embedding, ensemble, huggingface, openai, scripted."),
        (
            "agent.algorithm",
            "dqm",
            'agent.algorithm is "dqm", but must be one of a2c, bandit, dqn, glam, grpo, language_model, ppo, '
            "reinforce, rloo, subgoals, tabular. Did",
        ),
        ("agent.algorithm", "sac",
         'agent.algorithm is "sac", an algorithm of Stable-Baselines3: write engine: sb3 and sb3: {algorithm: SAC}'),
        (
            "agent.sb3.algorithm",
            "SACC",
            'agent.sb3.algorithm is "SACC", but must be one of A2C, DDPG, DQN, PPO, SAC, TD3, CrossQ, QRDQN, TQC, '
            'TRPO. Did you mean "SAC"?',
        ),
        ("agent.sb3.algorithm", "RecurrentPPO",
         "agent.sb3.algorithm is RecurrentPPO, which is not supported: Laurel's agents with this engine have no "),
        ("agent.dqn", {"buffer_size": 500},
         "agent.dqn has learning_starts 1000, but a replay buffer of only 500 (buffer_size), so learning "),
        ("agent.sb3.kwargs", {"seed": 3}, "agent.sb3.kwargs has seed, which is not set here; see agent.seeds."),
        ("arms", ["oracel"], 'arms[0] is "oracel", but must be one of extrinsic, preference, '),
        ("arms", "ful", 'arms is "ful", but must be full or a list of extrinsic, preference, '),
        (
            "arms",
            "oracle",
            'arms is "oracle", but must be full or a list of extrinsic, preference, intrinsic_only, random_reward, '
            "shuffled_labels, similarity, oracle, random_policy. Write [oracle].",
        ),
        ("arms", {"both": {"reward": ["preference", "oracle"]}},
         "arms.both.reward is a list of 2, but must be a name or a weighted sum: {preference: 1, oracle: 1}."),
        ("collect.policies", [{"kind": "rnd"}], 'collect.policies[0].kind is "rnd", but must be one of checkpoint, '),
        # entries
        ("arms", [], "arms is empty, but must have at least one entry."),
        ("agent.seeds", [], "agent.seeds is empty, but must have at least one entry."),
        ("collect.policies", [], "collect.policies is empty, but must have at least one entry."),
        ("arms", ["oracle", "oracle"], "arms names oracle twice; list it once."),
        ("agent.seeds", [3, 0, 3], "agent.seeds names 3 twice; list it once."),
        ("collect.policies", [{}, {"kind": "checkpoint"}],
         'collect.policies[1] is of kind "checkpoint" and so needs `path`, the directory of a trained agent.'),
        ("collect.policies", [{"kind": "epsilon_random"}], "collect.policies[0] is of kind"),
        # keys that are no text
        ("env.kwargs", {1: 2}, "key 1 in env.kwargs must be text; write it in quotes."),
        ("shaping", {True: 2}, "key true in shaping must be text; write it in quotes."),
        ("arms", {8: {}}, "arms has an arm named 8, but names must be text; write it in quotes."),
    ],
)  # fmt: skip
def test_refused_with_one_sentence(key: str, value: Any, says: str) -> None:
    message = refusal(with_value(key, value))
    assert message.startswith(f"my.yaml: {says}")
    assert "\n" not in message
    assert len(message) < 400
    assert message.endswith((".", "?"))


@pytest.mark.parametrize("key", ["env", "env.id", "collect.steps", "agent", "arms", "agent.seeds"])
def test_a_missing_key_is_named(key: str) -> None:
    content = copy.deepcopy(MINIMAL)
    section, _, name = key.rpartition(".")
    del (content[section] if section else content)[name]
    assert refusal(content) == f"my.yaml: {key} is missing; it has no default."


def test_every_mistake_gets_its_sentence() -> None:
    content = with_value("agent.steps", "many") | {"agnet": 1, 7: 1, "shaping": {"beta": -1}}
    assert {line.split()[1] for line in refusal(content).splitlines()} == {
        "agent.steps",
        "agnet",
        "key",
        "shaping.beta",
    }


def test_long_values_are_cut() -> None:
    assert len(refusal(with_value("agent.steps", "x" * 10_000))) < 200


@pytest.mark.parametrize("char", ["\n", "\x1b", "\x1e", "\u2028", "\ud800"])
def test_unprintable_characters_are_escaped(char: str) -> None:
    message = refusal(with_value("agent.steps", char) | {char: 1, "shaping": {char: 1}, "arms": char})
    assert all(line.startswith("my.yaml: ") and line.isprintable() for line in message.splitlines())
    assert char.encode("unicode_escape").decode() in message


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://a.example:99999/v1", "http://a.example:x/v1"])
def test_a_malformed_address_is_refused_with_what_is_allowed(url: str) -> None:
    message = refusal(with_value("annotate.openai", {"model": "m", "base_url": url}))
    assert "annotate.openai.base_url must be an address such as" in message


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"collect": {"accelerator": "L5"}}, 'resources.collect.accelerator is "L5", but must be one of T4, P4,'),
        ({"collect": {"accelerator": "L4", "accelerators": 0}}, "collect asks for 0 accelerators of type L4"),
        ({"collect": {"accelerators": 2}}, "collect asks for 2 accelerators without a type: name one"),
        ({"collect": {"memory": "16 GB"}}, 'collect.memory is "16 GB", but must be a quantity such as 16G'),
        ({"collect": {"cpu": 0}}, "collect.cpu is 0, but must be greater than 0"),
        ({"colect": {}}, 'resources names "colect", which is not a step. Did you mean "collect"?'),
    ],
)
def test_resources_that_make_no_sense(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParamsError, match=re.escape(sentence)):
        parse_params({**MINIMAL, "pipeline": {"resources": wanted}}, "test")


@pytest.mark.parametrize("name", ["T4", "t4", "NVIDIA_TESLA_T4"])
def test_accelerators_by_their_names_on_vertex(name: str) -> None:
    params = parse_params({**MINIMAL, "pipeline": {"resources": {"collect": {"accelerator": name}}}}, "test")
    assert params.pipeline.resources["collect"].accelerator == "T4"


@pytest.mark.parametrize(
    ("engine", "used", "unused"),
    [("laurel", {"algorithm", "ppo"}, {"sb3", "dqn", "a2c"}), ("sb3", {"sb3"}, {"algorithm", "ppo", "dqn"})],
)
def test_settings_of_untrained_arms_make_no_difference(engine: str, used: set[str], unused: set[str]) -> None:
    params = parse_params(with_value("agent.engine", engine), "my.yaml")
    found = set(params.used("agent")["agent"])
    assert used | {"engine", "steps"} <= found
    assert found & (unused | {"workers"}) == set()


def test_a_path_may_begin_in_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a folder called ~ beside params.yaml."""
    monkeypatch.setenv("HOME", "/home/someone")
    content = {**MINIMAL, "annotate": {"gold": "~/gold.jsonl", "language_model": {"responses": "~/answers.db"}}}
    asked = parse_params(content, "params.yaml").annotate
    assert asked.gold == Path("/home/someone/gold.jsonl")
    assert asked.language_model.responses == Path("/home/someone/answers.db")
    with pytest.raises(ParamsError, match=r"annotate\.gold is ~no_such_user/a, but there is no such user's home"):
        parse_params({**content, "annotate": {"gold": "~no_such_user/a"}}, "params.yaml")


def test_a_default_that_does_not_fit_its_own_type_is_refused_like_a_given_value() -> None:
    class Mistyped(Section):
        bonus: float = "x"  # type: ignore[assignment]

    with pytest.raises(ValidationError, match="valid number"):
        Mistyped.model_validate({})
