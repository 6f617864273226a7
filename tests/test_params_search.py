"""Search spaces, and messages for errors in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from laurel.errors import ParamsError
from laurel.params import Params, load_params
from laurel.params.search import Searched, Sweep, is_whole, read_space, value_of, with_values
from tiny_project import REPOSITORY


@pytest.fixture(scope="module")
def params() -> Params:
    return load_params(REPOSITORY / "params.yaml")


def test_forms(params: Params) -> None:
    entries = [
        "shaping.intrinsic=log:0.01:1",
        "shaping.beta=0:4",
        "agent.ppo.n_epochs=1:8",
        "agent.ppo.gamma=0.9,9.9e-1",
        "agent.ppo.hidden=[64, 64],[128]",
        "agent.ppo.anneal=true,false",
    ]
    assert read_space(entries, params, "preference") == {
        "shaping.intrinsic": Searched(low=0.01, high=1.0, log=True),
        "shaping.beta": Searched(low=0.0, high=4.0),
        "agent.ppo.n_epochs": Searched(low=1.0, high=8.0),
        "agent.ppo.gamma": Searched(choices=(0.9, 0.99)),
        "agent.ppo.hidden": Searched(choices=([64, 64], [128])),
        "agent.ppo.anneal": Searched(choices=(True, False)),
    }


@pytest.mark.parametrize("entry", ["shaping.beta=log:1e-7:3", "agent.ppo.hidden=[64],[8]", "agent.algorithm=ppo,dqn"])
def test_a_space_is_shown_as_it_may_be_given(params: Params, entry: str) -> None:
    ((name, searched),) = read_space([entry], params, "preference").items()
    assert read_space([f"{name}={searched.text}"], params, "preference") == {name: searched}


def test_a_file_says_the_same(params: Params, tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("shaping.intrinsic: {low: 0.01, high: 1, log: true}\nagent.ppo.hidden: {choices: [[64], [8]]}\n")
    options = ["shaping.intrinsic=log:0.01:1", "agent.ppo.hidden=[64],[8]"]
    assert read_space([str(file)], params, "preference") == read_space(options, params, "preference")
    with pytest.raises(ParamsError, match=r"shaping\.intrinsic is given twice"):
        read_space([str(file), "shaping.intrinsic=0:1"], params, "preference")


def test_the_default_is_allowed_and_fits_the_arm(params: Params) -> None:
    space = read_space([], params, "preference")
    assert {"shaping.intrinsic", "shaping.quantile", "shaping.beta", "agent.ppo.learning_rate"} <= set(space)
    assert all(searched.holds(value_of(params, name)) for name, searched in space.items()), "so they are tried first"
    assert not any(name.startswith("shaping.") for name in read_space([], params, "extrinsic"))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "reinforce", "a2c", "tabular", "bandit", "subgoals", "glam"])
def test_the_default_fits_the_algorithm(params: Params, algorithm: str) -> None:
    chosen = with_values(params, {"agent.algorithm": algorithm})
    space = read_space([], chosen, "preference")
    assert all(not name.startswith("agent.") or name.startswith(f"agent.{algorithm}.") for name in space)
    assert "shaping.intrinsic" in space
    whole = f"agent.{algorithm}.n_envs"
    assert is_whole(whole, read_space([f"{whole}=1:8"], chosen, "preference")[whole])
    for name, searched in space.items():
        if searched.low is not None and searched.high is not None:
            with_values(chosen, {name: searched.low})


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("shaping.intrinsik=0:1", 'shaping.intrinsik is unknown. Did you mean "intrinsic"? Allowed here: '),
        ("shapping.intrinsic=0:1", 'shapping is unknown. Did you mean "shaping"?'),
        ("shaping.quantile=0:1", "shaping.quantile is 1.0, but must be less than 1."),
        ("shaping.intrinsic=-1:1", "shaping.intrinsic is -1.0, but must be greater than or equal to 0."),
        ("shaping.intrinsic=1:0.1", "shaping.intrinsic is a range from 1 to 0.1, but low must be less than high."),
        (
            "shaping.intrinsic=log:0:1",
            "shaping.intrinsic is a range from 0 with log, but a logarithm needs low above 0.",
        ),
        ("shaping.intrinsic=lg:0:1", "must have one of the forms NAME=LOW:HIGH,"),
        ("shaping.intrinsic=a:b", "must have one of the forms NAME=LOW:HIGH,"),
        ("shaping.intrinsic=[", "is not valid YAML."),
        ("shaping.intrinsic=", "is empty, but must have at least one entry."),
        ("agent.ppo.n_epochs=0.5:3", "agent.ppo.n_epochs is 0.5, but must be a whole number."),
        ("agent.ppo.hidden=1:3", "agent.ppo.hidden is 1.0, but must be a list."),
        ("agent.ppo.anneal=0:1", "agent.ppo.anneal is 0.0, but must be true or false."),
        ("agent.ppo=0:1", "agent.ppo is 0.0, but must be a mapping"),
        ("agent.ppo.gamma.x=0:1", "agent.ppo.gamma is not a section"),
        ("agent.steps=1:2", "agent.steps sets the training budget or placement"),
        (
            "rewards.preference.learning_rate=0:1",
            "rewards.preference.learning_rate is not used in training agents",
        ),
        ("agent.dqn.gamma=0:1", "agent.algorithm is ppo, which does not read agent.dqn.gamma."),
        ("agent.ppo={gamma: 0.9}", "must have one of the forms NAME=LOW:HIGH,"),
        ("agent.ppo.hidden={a}", "must have one of the forms NAME=LOW:HIGH,"),
        ("agent.sb3.noise=0:1", "agent.algorithm is ppo, which does not read agent.sb3.noise."),
        ("nowhere.yaml", "nowhere.yaml: no such file. A space is a YAML file"),
    ],
)
def test_mistakes(params: Params, entry: str, sentence: str) -> None:
    with pytest.raises(ParamsError) as error:
        read_space([entry], params, "preference")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def of_sb3(params: Params) -> Params:
    return with_values(params, {"agent.engine": "sb3", "agent.sb3.algorithm": "PPO"})


def test_the_default_fits_the_engine(of_sb3: Params) -> None:
    space = read_space([], of_sb3, "preference")
    assert "shaping.intrinsic" in space
    assert [name for name in space if name.startswith("agent.")] == ["agent.sb3.kwargs.learning_rate"]
    assert value_of(of_sb3, "agent.sb3.kwargs.learning_rate") is None
    assert value_of(with_values(of_sb3, {"agent.sb3.kwargs.gamma": 0.9}), "agent.sb3.kwargs.gamma") == 0.9


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("shaping.beta: {low: 0}", "shaping.beta needs low and high, or choices."),
        ("shaping.beta: {high: 1}", "shaping.beta needs low and high, or choices."),
        ("shaping.beta: {choices: [0.5], low: 0}", "shaping.beta has choices and a range: leave out one of them."),
        ("shaping.beta: {choices: [0.5], high: 1}", "shaping.beta has choices and a range: leave out one of them."),
        ("shaping.beta: {choices: [0.5], log: true}", "shaping.beta has choices and a range: leave out one of them."),
        (
            "shaping.beta: {low: 0, high: .inf}",
            "shaping.beta is a range from 0 to inf, but low must be less than high.",
        ),
        ("agent.ppo: {choices: [{gamma: 0.9}]}", "agent.ppo is a section; name one of its parameters."),
        ("agent.ppo.network: {low: 0, high: 1}", "agent.ppo.network is 0.0, but must be one of auto, mlp, cnn."),
    ],
)
def test_mistakes_in_a_file(params: Params, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "space.yaml").write_text(content)
    with pytest.raises(ParamsError) as error:
        read_space([str(tmp_path / "space.yaml")], params, "preference")
    assert sentence in str(error.value)


def test_what_a_space_holds() -> None:
    searched = Searched(low=0.5, high=2.0)
    assert [searched.holds(value) for value in (0.5, 1, 2.0, 0.4, 2.1, "1", None)] == [True] * 3 + [False] * 4
    assert [Searched(choices=("a", [1])).holds(value) for value in ("a", [1], "b", 1)] == [True, True, False, False]


def test_parameters_of_another_engine_are_searched(params: Params) -> None:
    chosen = with_values(params, {"agent.engine": "sb3", "agent.sb3": {"kwargs": {"tau": 0.01}}})
    entries = ["agent.sb3.noise=0:0.5", "agent.sb3.n_envs=1:8", "agent.sb3.kwargs.learning_rate=log:1e-4:1e-2"]
    entries += ["agent.sb3.kwargs.tau=0.005,0.01", "agent.sb3.kwargs.policy_kwargs.net_arch=[16],[32, 32]"]
    space = read_space(entries, chosen, "preference")
    assert [value_of(chosen, name) for name in space] == [0.0, 8, None, 0.01, None]
    net = {"agent.sb3.kwargs.policy_kwargs.net_arch": [16]}
    assert with_values(chosen, net).agent.sb3.kwargs == {"tau": 0.01, "policy_kwargs": {"net_arch": [16]}}
    for entry in ("agent.ppo.gamma=0.9:0.99", "agent.algorithm=ppo,dqn"):
        with pytest.raises(ParamsError, match=r"agent\.engine is sb3, which does not read agent\."):
            read_space([entry], chosen, "preference")


def test_what_an_arm_does_not_depend_on(params: Params) -> None:
    with pytest.raises(ParamsError, match=r"the arm extrinsic does not depend on shaping\.beta"):
        read_space(["shaping.beta=0:1"], params, "extrinsic")


def test_only_values_are_changed(params: Params) -> None:
    changed = with_values(params, {"shaping.beta": 1.5, "agent.ppo.hidden": [8]})
    assert (changed.shaping.beta, changed.agent.ppo.hidden) == (1.5, (8,))
    assert with_values(changed, {"shaping.beta": 3.0, "agent.ppo.hidden": [64, 64]}) == params


def test_values_are_written_short_and_stay_inside() -> None:
    searched = Searched(low=0.01, high=0.0987654)
    assert searched.rounded(0.0375829) == 0.03758
    assert searched.rounded(0.0987653) == 0.0987654
    assert Searched(choices=(0.123456,)).rounded(0.123456) == 0.123456
    whole, fraction = Searched(low=1.0, high=8.0), Searched(low=1.0, high=8.5)
    assert is_whole("agent.ppo.n_epochs", whole)
    assert not is_whole("shaping.beta", whole)
    assert is_whole("agent.sb3.kwargs.batch_size", whole)
    assert not is_whole("agent.sb3.kwargs.tau", fraction)


def test_a_sweep_reads_back(params: Params) -> None:
    entries = ["agent.ppo.hidden=[8],[16]", "shaping.beta=0:4"]
    sweep = Sweep("preference", (7, 8), 512, read_space(entries, params, "preference"))
    assert Sweep.read(sweep.write()) == sweep
