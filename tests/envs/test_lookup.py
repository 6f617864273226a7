"""Finding the adapter of an id: in this package, in a file of the user's, in another package."""

from __future__ import annotations

import importlib.metadata
import logging
import pathlib
import sys

import gymnasium as gym
import numpy as np
import pytest

import laurel.envs
from laurel.envs import adapter_for, make_reference, reference_id, step_limit
from laurel.envs.base import EnvAdapter, Transition, Transitions
from laurel.envs.captioner import Captioner
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.params import EnvParams

CORRIDOR = """
import gymnasium as gym
from laurel.envs.base import EnvAdapter


class Corridor(gym.Env):
    observation_space = gym.spaces.Dict({"place": gym.spaces.Discrete(5), "wind": gym.spaces.Box(-1, 1, (1,))})
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._observation(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        end = self.place == self.length - 1
        return self._observation(), float(end), end, False, {}

    def _observation(self):
        return {"place": self.place, "wind": self.np_random.uniform(-1, 1, 1).astype("float32")}


gym.register("Corridor-v0", entry_point=Corridor)


class CorridorAdapter(EnvAdapter):
    ids = ("Corridor-v*",)
    description = "A corridor."
    goal = "You walk on."
    max_episode_steps = 30

    def caption(self, transition):
        if transition.terminated:
            return "You leave the corridor."
        way = transition.next_observation["place"] - transition.observation["place"]
        return f"You walk {way:+d} to {transition.next_observation['place']}." if way else ""
"""


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    (tmp_path / "my_room.py").write_text(CORRIDOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield EnvParams(id="my_room:Corridor-v0")
    sys.modules.pop("my_room", None)
    gym.registry.pop("Corridor-v0", None)


def test_a_adapter_in_the_users_own_file_needs_only_a_caption(corridor):
    adapter = adapter_for(corridor)
    assert type(adapter).__name__ == "CorridorAdapter"
    assert step_limit(corridor) == 30
    envs = make_vector(corridor, adapter, 2, 0)
    assert envs.backend == "gymnasium"
    captioner = Captioner(adapter, enumerate_events=True)
    said = []
    before = envs.reset()
    for t in range(40):
        action = np.array([1, 0]) if t < 10 else np.array([1, t % 2])
        step = envs.step(action)
        rows = Transitions(before, action, step.reward, step.observation, step.terminated, step.truncated)
        ids = captioner.ids(rows[step.valid])
        said += [captioner.texts[i] if i >= 0 else "" for i in ids]
        before = step.observation
    assert said[:8] == [
        "You walk +1 to 1.",
        "",
        "You walk +1 to 2.",
        "",
        "You walk +1 to 3.",
        "",
        "You leave the corridor.",
        "",
    ]
    assert {"You walk +1 to 1.", "You walk -1 to 0.", "", "You leave the corridor."} <= set(said)


def test_the_default_encoding_asks_once_for_each_distinct_transition(corridor, monkeypatch):
    adapter = adapter_for(corridor)
    asked = []
    original = type(adapter).caption
    monkeypatch.setattr(type(adapter), "caption", lambda self, t: asked.append(t) or original(self, t))
    observation = np.array([[0, 0.5], [0, 0.5], [1, 0.5]], dtype=adapter.observation_dtype)
    after = np.array([[1, 0.0], [1, 0.0], [0, 0.0]], dtype=adapter.observation_dtype)
    flags = np.zeros(3, dtype=bool)
    rows = Transitions(observation, np.array([1, 1, 0]), np.zeros(3, np.float32), after, flags, flags)
    assert [adapter.describe(event) for event in adapter.encode(rows)] == ["You walk +1 to 1."] * 2 + [
        "You walk -1 to 0."
    ]
    assert len(asked) == 2
    assert asked[0].observation == {"place": 0, "wind": np.float32(0.5)}
    assert (asked[0].action, asked[0].reward, asked[0].terminated) == (1, 0.0, False)
    assert adapter.encode(rows[:0]).shape == (0,)

    monkeypatch.setattr("laurel.envs.base.MOST_REMEMBERED", 0)
    assert len({int(event) for event in adapter.encode(rows)}) == 2
    assert len(adapter._seen) == 1


@pytest.mark.parametrize("ids", ["FrozenLake-v1", "FrozenLake-v*"])
def test_a_users_adapter_goes_before_the_one_of_the_package(ids, tmp_path, monkeypatch):
    (tmp_path / "lake_words.py").write_text(
        "from laurel.envs.base import EnvAdapter\n"
        "class MyLake(EnvAdapter):\n"
        f"    ids = ('{ids}',)\n"
        "    description = goal = 'Mine.'\n"
        "    def caption(self, transition):\n"
        "        return 'Ice.'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    ours = adapter_for(EnvParams(id="FrozenLake-v1"))
    every = laurel.envs._subclasses  # in a command, the user's file is imported before the package's adapters
    monkeypatch.setattr(laurel.envs, "_subclasses", lambda kind: every(kind)[::-1])
    mine = adapter_for(EnvParams(id="lake_words:FrozenLake-v1"))
    assert type(mine).__name__ == "MyLake"
    assert type(ours).__name__ == "FrozenLakeAdapter"
    assert type(adapter_for(EnvParams(id="FrozenLake8x8-v1"))).__name__ == "FrozenLakeAdapter"
    type(mine).ids = ()


def test_a_module_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        EnvError, match=r"names the module nowhere, but nowhere cannot be found\. Put nowhere\.py into the folder"
    ):
        adapter_for(EnvParams(id="nowhere:Corridor-v0"))
    with pytest.raises(EnvError, match="relative module"):
        adapter_for(EnvParams(id=".nowhere:Corridor-v0"))
    (tmp_path / "a_project_folder").mkdir()
    with pytest.raises(EnvError, match=r"a_project_folder is a folder here\. Run the command in the folder that holds"):
        adapter_for(EnvParams(id="a_project_folder:Corridor-v0"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("def f(:", r"the module defect cannot be imported: SyntaxError: invalid syntax"),
        ("1 / 0", r"the module defect cannot be imported: ZeroDivisionError: division by zero"),
        ("from numpy import nothing", r"the module defect cannot be imported: ImportError: cannot import name"),
        ("raise SystemExit(4)", r"the module defect cannot be imported: SystemExit: 4"),
        ("import nowhere.else_", r"the module defect needs nowhere, which is not installed"),
        ("", r'The module defect does not register that name: call gymnasium\.register\(id="Mine-v0"'),
    ],
)
def test_a_module_with_a_defect_is_named(tmp_path, monkeypatch, content, sentence):
    """A user sees one sentence, and their own traceback with --debug."""
    (tmp_path / "defect.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "defect", raising=False)
    with pytest.raises(EnvError, match=sentence):
        adapter_for(EnvParams(id="defect:Mine-v0"))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("MiniGrid-DorKey-5x5-v0", "MiniGrid-DoorKey-5x5-v0"),
        ("minigrid-empty-5x5", "MiniGrid-Empty-5x5-v0"),
    ],
)
def test_an_unknown_id_names_the_nearest(wrong, right):
    with pytest.raises(EnvError, match=f'knows no environment "{wrong}". Did you mean "{right}"'):
        adapter_for(EnvParams(id=wrong))


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {"gravity": 3}),
        ("FrozenLake-v1", {"map_name": "5x5"}),
        ("FrozenLake-v1", {"desc": []}),
        ("MiniGrid-Empty-5x5-v0", {"size": 2}),
    ],
)
def test_wrong_kwargs_are_named(env_id, kwargs):
    with pytest.raises(EnvError, match=f"env.kwargs: {env_id} cannot be made with"):
        adapter_for(EnvParams(id=env_id, kwargs=kwargs))


def test_two_limits_contradict_each_other():
    with pytest.raises(EnvError, match=r"both max_episode_steps and kwargs\.max_steps"):
        make_reference(EnvParams(id="MiniGrid-Empty-5x5-v0", max_episode_steps=5, kwargs={"max_steps": 7}))


def test_a_defect_of_the_environment_keeps_its_traceback():
    def broken():
        raise KeyError("own defect")

    gym.register("BrokenHouse-v0", entry_point=broken)
    try:
        with pytest.raises(EnvError, match=r"BrokenHouse-v0 cannot be made: KeyError: 'own defect'") as caught:
            adapter_for(EnvParams(id="BrokenHouse-v0"))
        assert isinstance(caught.value.__cause__, KeyError), "whose traceback --debug shows"
    finally:
        gym.registry.pop("BrokenHouse-v0")


def test_a_withdrawn_id_runs_on_its_successor():
    env = EnvParams(id="Taxi-v3")
    assert reference_id(env) == "Taxi-v4"
    assert adapter_for(env).env_id == "Taxi-v3"
    assert make_reference(env).spec.id == "Taxi-v4"


def test_limits():
    assert step_limit(EnvParams(id="CliffWalking-v1")) == 200
    assert step_limit(EnvParams(id="CliffWalkingSlippery-v1")) == 200
    assert step_limit(EnvParams(id="Blackjack-v1")) is None
    assert step_limit(EnvParams(id="CartPole-v1")) is None
    assert step_limit(EnvParams(id="CartPole-v1", max_episode_steps=7)) == 7
    assert make_reference(EnvParams(id="CliffWalking-v1")).spec.max_episode_steps == 200
    assert make_reference(EnvParams(id="MiniGrid-Empty-5x5-v0", max_episode_steps=7)).unwrapped.max_steps == 7


@pytest.fixture
def warnings_of_environments(caplog):
    """What adapters warn of; stages silence it for a process in which it was said before."""
    with caplog.at_level(logging.WARNING, logger="laurel.envs"):
        yield caplog


def test_without_an_adapter_the_generic_one_logs_a_warning(warnings_of_environments):
    caplog = warnings_of_environments
    adapter = adapter_for(EnvParams(id="Pendulum-v1"))
    assert adapter.generic
    assert "Pendulum-v1 has no adapter, so" in caplog.text
    caplog.clear()
    adapter_for(EnvParams(id="CartPole-v1"))
    assert not caplog.records


def test_a_mission_that_varies_and_is_not_read_is_warned_about(warnings_of_environments):
    caplog = warnings_of_environments
    for env_id in ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-Fetch-5x5-N2-v0", "BabyAI-GoToLocal-v0"):
        adapter_for(EnvParams(id=env_id))
    assert not caplog.records
    adapter_for(EnvParams(id="MiniGrid-Playground-v0"))
    assert "its mission may vary" in caplog.text


def test_texts_that_a_users_adapter_cannot_read_are_warned_about(corridor, warnings_of_environments):
    with_text = CORRIDOR.replace(
        '"place": gym.spaces.Discrete(', '"mission": gym.spaces.Text(9), "place": gym.spaces.Discrete('
    )
    assert with_text != CORRIDOR
    pathlib.Path("my_room.py").write_text(with_text)
    adapter = adapter_for(corridor)
    assert adapter.unpack(adapter.blank()[0])["mission"] == ""
    assert [record.getMessage() for record in warnings_of_environments.records] == [
        "my_room:Corridor-v0: the adapter CorridorAdapter reads empty texts in mission, since observations are stored "
        "as numbers, and agents do not observe them. Give what varies as numbers, e.g. as Discrete."
    ]


@pytest.mark.usefixtures("examples")
def test_adapters_of_another_package():
    adapter = adapter_for(EnvParams(id="Pendulum-v1"))
    assert isinstance(adapter, EnvAdapter)
    assert (type(adapter).__name__, adapter.goal) == ("PendulumAdapter", "The pendulum points up.")
    env = gym.make("Pendulum-v1")
    env.reset(seed=0)
    env.unwrapped.state = np.array([1.0, 2.0])  # above the hinge, and falling
    observation, *_ = env.step(np.zeros(1))
    assert observation[0] > 0
    assert observation[2] > 2
    falling = Transition(np.zeros(3), np.zeros(1), 0.0, observation, False, False)
    assert adapter.caption(falling) == "The pendulum points sideways and up."


def test_a_package_of_adapters_may_register_its_environment_too(monkeypatch, tmp_path):
    (tmp_path / "far_corridor.py").write_text(CORRIDOR.replace("Corridor-v", "FarCorridor-v"))
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint("far", "far_corridor", laurel.envs.ENTRY_POINTS)
    monkeypatch.setattr(laurel.envs, "installed", lambda group: [entry])
    laurel.envs._load_adapters.cache_clear()
    try:
        assert adapter_for(EnvParams(id="FarCorridor-v0")).goal == "You walk on."
    finally:
        sys.modules.pop("far_corridor").CorridorAdapter.ids = ()
        gym.registry.pop("FarCorridor-v0", None)
        laurel.envs._load_adapters.cache_clear()


TASK = {"description": "A pole.", "goal": None}


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"description": "A pole."}, "sets no goal. Set goal to a text, or None if none is known"),
        ({"goal": None}, "sets no description. Set description to a text ("),
        ({"description": "A pole.", "goal": 5}, "has goal 5. Set goal to a text"),
        ({**TASK, "encoder_goal": ""}, "has encoder_goal ''. Set encoder_goal to"),
        ({**TASK, "info_fields": ["x"]}, "has info_fields ['x']. Set info_fields to"),
        ({**TASK, "info_fields": {"x": "int65"}}, "has info_fields {'x': 'int65'}."),
        ({**TASK, "info_fields": {"x": "object"}}, "has info_fields {'x': 'object'}."),
        (
            {**TASK, "success_words": "Won."},
            'has the text "Won." as success_words, which is a tuple: write success_words',
        ),
        (
            {**TASK, "action_names": "left"},
            'has the text "left" as action_names, which is a tuple: write action_names =',
        ),
        (TASK, "defines neither caption nor encode, so its steps have no words"),
        ({"inspect": lambda self, env: env.unwrapped.map}, "Unfinished raised AttributeError: "),
    ],
)
def test_an_adapter_that_is_not_finished_is_named(own, says, monkeypatch):
    unfinished = type("Unfinished", (EnvAdapter,), {"ids": ("tests/Unfinished-v0",), **own})
    monkeypatch.setattr(laurel.envs, "_adapter_class", lambda _: unfinished)
    with pytest.raises(EnvError) as refused:
        adapter_for(EnvParams(id="CartPole-v1"))
    assert says in str(refused.value)
    assert "Unfinished" in str(refused.value)


def test_ids_that_are_a_text_are_named(monkeypatch):
    class Forgetful(EnvAdapter):
        ids = "tests/Forgetful-v0"

    try:
        with pytest.raises(
            EnvError,
            match=r'^env\.id: the adapter Forgetful has the text "tests/Forgetful-v0" as ids, .* write ids = \(',
        ):
            adapter_for(EnvParams(id="CartPole-v1"))
    finally:
        Forgetful.ids = ()


def test_a_package_of_adapters_that_raises_is_named(monkeypatch, tmp_path):
    (tmp_path / "adapters_with_a_typo.py").write_text("def caption(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    broken = importlib.metadata.EntryPoint("typo", "adapters_with_a_typo", laurel.envs.ENTRY_POINTS)
    monkeypatch.setattr(laurel.envs, "installed", lambda group: [broken])
    laurel.envs._load_adapters.cache_clear()
    with pytest.raises(EnvError, match=r'adapters "typo" .* cannot be loaded: SyntaxError: .*\. Fix or uninstall'):
        adapter_for(EnvParams(id="CartPole-v1"))


def test_a_broken_package_of_adapters_is_named(monkeypatch):
    broken = importlib.metadata.EntryPoint("broken", "no_such_adapters", laurel.envs.ENTRY_POINTS)
    monkeypatch.setattr(laurel.envs, "installed", lambda group: [broken])
    laurel.envs._load_adapters.cache_clear()
    with pytest.raises(EnvError, match=r'adapters "broken" \(no_such_adapters\) of another package cannot be loaded'):
        adapter_for(EnvParams(id="CartPole-v1"))


@pytest.mark.parametrize(
    "env_id",
    ["Ant-v3", "Ant-v5", "GymV21Environment-v0", "phys2d/CartPole-v0", "tabular/Blackjack-v0", "BipedalWalker-v3"],
)
def test_an_id_whose_package_is_missing_is_refused_in_a_sentence(env_id: str) -> None:
    """One of each kind that Gymnasium registers; with its package installed, there is nothing to refuse."""
    said = f"env.id: {env_id} "
    try:
        make_reference(EnvParams(id=env_id)).close()
    except EnvError as error:
        said = str(error)
    assert said.startswith(f"env.id: {env_id} ")
    assert "\n" not in said


@pytest.mark.parametrize("name", ["Transition", "Transitions", "EnvAdapter", "Feature", "Example"])
def test_what_an_adapter_is_written_with_is_in_one_place_and_in_the_reference(name):
    assert getattr(laurel.envs, name) is getattr(laurel.envs.base, name)
    reference = pathlib.Path(__file__).parents[2] / "docs/reference/plug-ins.md"
    assert f"::: laurel.envs.base.{name}\n" in reference.read_text()
