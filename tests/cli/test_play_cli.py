"""`laurel play` from the user's side: players, display modes, and one sentence per error."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from laurel.agents.algorithms import initial_policy
from laurel.agents.checkpoint import save_policy
from laurel.cli.app import main
from laurel.envs import adapter_for
from laurel.evaluation.performance import _why_unfit
from laurel.params import EnvParams
from laurel.params.algorithms import PPOParams
from tiny_project import Project

pytestmark = pytest.mark.usefixtures("own_process")
Play = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def stage(rewarded: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a reward model and two untrained agents."""
    project = rewarded.copy(tmp_path_factory.mktemp("play") / "p")
    adapter = adapter_for(project.params.env)
    for seed in (0, 3):
        network = initial_policy(adapter, PPOParams(hidden=(16,)), 0, seed)
        save_policy(project.path / f"data/agents/preference/seed-{seed}", network)
    return project.path


@pytest.fixture
def play(stage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    def play(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(stage)
        code = main(["play", "--steps", "6", *arguments])
        return code, *capsys.readouterr()

    return play


def test_without_a_terminal_each_step_is_a_line(play: Play) -> None:
    code, out, err = play()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["preference, seed 0, FrozenLake-v1", "step 0: the episode begins"]
    number = r"[+-]\d+\.\d\d"
    form = (
        rf"step \d: (left|down|right|up)\. You .+\. \(reward {number}, learned {number}, shaped {number}, return .+\)"
    )
    assert all(re.match(form, line) for line in lines[2:])
    assert "\x1b" not in out


def test_who_plays(play: Play, tmp_path: Path) -> None:
    def first(*arguments: str) -> str:
        return play(*arguments)[1].splitlines()[0]

    assert first("preference", "3") == "preference, seed 3, FrozenLake-v1"
    assert first("random_policy") == "random policy, FrozenLake-v1"
    assert first("data/agents/preference/seed-3") == "data/agents/preference/seed-3, FrozenLake-v1"
    assert first("--episodes", "2").endswith("episode 1 of 2")


def test_the_seed_makes_the_episodes(play: Play) -> None:
    first, again, other = (play("random_policy", "--seed", seed, "--episodes", "3")[1] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other
    episodes = first.split("random policy")[1:]
    assert len({episode.split("\n", 1)[1] for episode in episodes}) > 1, "and each is another"


def test_greedy_or_sampled(play: Play) -> None:
    def actions(*arguments: str) -> list[str]:
        return re.findall(r"step 1: (\w+)", play("--episodes", "9", *arguments)[1])

    assert len(set(actions("--greedy"))) == 1, "all episodes begin on the same square"
    assert len(set(actions("--no-greedy"))) > 1, "an untrained policy is all but uniform"


def test_a_gif(play: Play, tmp_path: Path) -> None:
    for name in ("a.gif", "b.gif"):
        code, out, _ = play("-o", str(tmp_path / name), "--episodes", "2")
        assert (code, out[-len(name) - 1 :]) == (0, f"{name}\n")
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames > 2  # type: ignore[attr-defined]


def test_the_learned_reward_is_that_of_the_agents_seed(play: Play, rewarded: Project, tmp_path: Path) -> None:
    """As the seeds of an arm with several label sets, or with rewards drawn at random, are paid different ones."""
    arms = {"own": {"reward": "random_reward", "role": "method"}}
    project = rewarded.copy(tmp_path / "p", {"arms": arms})
    network = initial_policy(adapter_for(project.params.env), PPOParams(hidden=(16,)), 0, 0)
    for seed in (0, 1):
        save_policy(project.path / f"agents/own/seed-{seed}", network)
    where = ("--agents", str(project.path / "agents"), "--params", str(project.path / "params.yaml"))
    first, second = (play("own", seed, "--seed", "5", *where)[1].splitlines()[1:] for seed in ("0", "1"))
    taken, learned = (
        [[re.sub(pattern, "", line) for line in lines] for lines in (first, second)]
        for pattern in (r"learned .*", r".*(?=learned)")
    )
    assert taken[0] == taken[1], "the same network in the same episode"
    assert learned[0] != learned[1]


def test_a_control_shows_the_reward_that_it_was_paid(play: Play, rewarded: Project, tmp_path: Path) -> None:
    """And not the first method's, by which evaluation scores all agents."""
    project = rewarded.copy(tmp_path / "p")
    network = initial_policy(adapter_for(project.params.env), PPOParams(hidden=(16,)), 0, 0)
    for arm in ("preference", "random_reward"):
        save_policy(project.path / f"agents/{arm}/seed-0", network)
    where = ("--agents", str(project.path / "agents"), "--reward", str(project.path / "data/reward"))
    method, control = (
        re.findall(r"learned (\S+),", play(arm, "0", "--seed", "5", *where)[1])
        for arm in ("preference", "random_reward")
    )
    assert len(method) == len(control) > 0, "the same network in the same episode"
    assert method != control


def test_without_a_learned_reward(play: Play, stage: Path, tmp_path: Path) -> None:
    (stage / "data/reward").rename(tmp_path / "reward")
    try:
        code, out, err = play()
    finally:
        (tmp_path / "reward").rename(stage / "data/reward")
    assert (code, err) == (0, "laurel: no learned reward is shown: data/reward does not exist.\n")
    assert "learned" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["prefrence"],
            r'neither a directory, nor an arm \(.*\), nor an actor such as random\. Did you mean "preference"',
        ),
        (["preference", "7"], r"seed-7: no such agent; name one of seed-0, seed-3, or run"),
        (["oracle"], r"data/agents holds no agent of oracle\. Run laurel train-agents\.$"),
        (["--agents", "nowhere"], r"nowhere: holds no agents\. Run laurel train-agents first"),
        (["data/agents/preference/seed-0", "1"], r"is an agent's directory, so leave out the seed \(1\)"),
        (["random_policy", "3"], r"random_policy has no trained agents, so leave out the seed \(3\)"),
        (["data"], r"data: holds no agent: config\.json is missing\. Name the folder of an arm's seed"),
        (["--reward", "nowhere"], r"nowhere: no such directory"),
        (["-o", "x.mp4"], r"x\.mp4: must end in one of \.gif, \.webp"),
        (["-o", "nowhere/x.gif"], r"there is no directory nowhere"),
        (["-o", "x.gif", "--as", "terminal"], r"needs --as gif"),
        (["--params", "nowhere.yaml"], r"nowhere\.yaml"),
    ],
)
def test_mistakes(play: Play, arguments: list[str], sentence: str) -> None:
    code, out, err = play(*arguments)
    assert (code, out) == (2, "")
    assert re.search(sentence, err), err
    assert err.count("\n") == 1


def test_a_window_without_a_display(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = play("--as", "window")
    assert code == 2
    assert "--as window needs a display" in err
    assert "--as gif" in err


def test_a_window_shows_the_moments(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a display to see it on: SDL's dummy driver, and a user who closes the window at once."""
    import pygame

    shown = []
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(pygame.display, "flip", lambda: shown.append(pygame.display.get_surface().get_size()))
    monkeypatch.setattr(pygame.event, "get", lambda: [pygame.event.Event(pygame.QUIT)] if len(shown) > 2 else [])
    assert play("--as", "window", "--fps", "100")[0] == 0
    assert len(shown) == 3
    assert len(set(shown)) == 1


def test_an_agent_of_another_environment(play: Play, tmp_path: Path) -> None:
    network = initial_policy(adapter_for(EnvParams(id="CartPole-v1")), PPOParams(hidden=(4,)), 0, 0)
    save_policy(tmp_path / "agent", network)
    code, _, err = play(str(tmp_path / "agent"))
    assert code == 2
    assert "an agent with 4 features and 2 actions, but FrozenLake-v1 has 16 and 4" in err
    assert "compare env.id and env.kwargs" in err, "agents of other maps are of FrozenLake-v1, too"


def test_an_environment_without_pictures(stage: Path, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium.envs.toy_text.FrozenLakeEnv.render", lambda self: None)
    code, _, err = play("-o", "x.gif")
    assert code == 2
    assert "FrozenLake-v1 renders no rgb_array" in err
    assert not (stage / "x.gif").exists()


def in_terminal(folder: Path, **changes: str) -> str:
    """Run the command in a terminal of its own; return all that it wrote there."""
    leader, follower = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLORTERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "laurel", "play", "--steps", "3", "--fps", "100"],
        cwd=folder, stdin=follower, stdout=follower, stderr=follower,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30", **changes},
    )  # fmt: skip
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other side is closed
            break
        written += piece
    os.close(leader)
    assert process.wait() == 0, written.decode()
    return written.decode()


def test_in_a_terminal(stage: Path) -> None:
    text = in_terminal(stage)
    assert text.startswith("\x1b[?25l")
    assert text.endswith("\x1b[?25h"), "the cursor is given back"
    assert "\x1b[41m" in text, "the lake in its own letters and colours"
    assert text.count("FrozenLake-v1") >= 2
    assert re.search(r"\x1b\[\d+A\r\x1b\[J", text), "drawn over the last one"


def test_a_terminal_without_graphics_gets_text_and_the_reason(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = in_terminal(stage, NO_COLOR="1")
    assert re.search(r"laurel: only text is shown, because NO_COLOR is set\.", text)
    assert "step 1: " in text
    assert "\x1b" not in text

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _why_unfit() is None
    for name, value, why in (
        ("TERM", "dumb", "the terminal is a dumb one (TERM)"),
        ("COLUMNS", "30", "the terminal is smaller than 40 columns and 10 lines"),
    ):
        monkeypatch.setenv(name, value)
        assert _why_unfit() == why
