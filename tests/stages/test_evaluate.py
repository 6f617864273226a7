import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from laurel import __version__
from laurel.data.directory import Output
from laurel.errors import DataError
from laurel.evaluation.animation import record
from laurel.evaluation.episode import Moment
from laurel.evaluation.rendering import NotRenderedError
from laurel.params import TrackingParams
from laurel.params.resolved_arms import Arm
from laurel.params.training import AgentParams
from laurel.pool import Job
from laurel.rewards.model import RewardModel
from laurel.stages import evaluate, report_files
from laurel.training.engines import engine_of
from tiny_project import TINY, UNTRACKED, Project, lasting_content, read_json

FIGURES = {"arms", "calibration", "label_calibration", "return_curve", "reward_vs_return", "success_curve"}


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A project with agents that are still to be evaluated; quickly, and without pictures."""
    changes = {**UNTRACKED, "evaluate.animation_steps": 0, "evaluate.bootstrap": 20}
    return finished.copy(tmp_path / "p", changes, without=["evaluate"])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out."""
    monkeypatch.setattr("laurel.evaluation.plots.draw", lambda *_, **__: {})


@contextmanager
def here(job: Job, preload: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Run a job in this process, where it can be patched."""
    job.work(*job.args, lambda done: None)
    yield lambda: None


# -- the form of metrics.json, as README and DVC read it -------------------------------------------
def is_estimate(entry: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    assert set(entry) == {"mean", "ci95", "iqm"}
    lower, upper = entry["ci95"]
    return low <= lower <= entry["mean"] <= upper <= high


def test_metrics(finished: Project) -> None:
    metrics = read_json(finished.path / "reports/metrics.json")
    assert set(metrics) == {
        "schema", "env", "annotator", "algorithm", "headline", "order", "arms", "comparisons", "annotation",
        "reward", "distances",
    }  # fmt: skip
    assert metrics["schema"] == 3
    assert metrics["distances"]["epic"] == {}, "there is a single reward"
    assert metrics["distances"]["rank"]["environment"] == {"preference": None}, "few collected episodes return anything"
    assert metrics["distances"]["tied"]["environment"]["preference"] == pytest.approx(45 / 66, abs=1e-6), (
        "10 of 12 return 0"
    )
    assert metrics["headline"]["verdict"] == "unknown"
    assert "too few seeds" in " ".join(metrics["headline"]["sentences"])
    assert (metrics["env"], metrics["annotator"], metrics["algorithm"]) == ("MiniGrid-Empty-5x5-v0", "embedding", "ppo")
    assert metrics["order"] == ["extrinsic", "preference", "random_policy"]
    roles = {"extrinsic": "baseline", "preference": "method", "random_policy": "control"}
    assert {arm: entry["role"] for arm, entry in metrics["arms"].items()} == roles
    for arm, entry in metrics["arms"].items():
        assert set(entry) == {
            "role", "label", "rewards", "return", "success", "area", "solved", "steps_to_threshold", "env_steps",
            "episodes", "seeds",
        }  # fmt: skip
        assert is_estimate(entry["return"], 0, 1)
        assert is_estimate(entry["success"], 0, 1)
        assert entry["seeds"] == [0, 1]
        assert entry["episodes"] == 8
        assert entry["env_steps"] == (0 if arm == "random_policy" else 2048)
        assert entry["solved"]["of"] == 2
        assert entry["steps_to_threshold"] is None, "no agent finishes the 100 episodes that it is over"
        if arm == "random_policy":
            assert entry["area"] is None
        else:
            assert is_estimate(entry["area"], 0, 1)
    assert {over: set(found) for over, found in metrics["comparisons"]["preference"].items()} == {
        "extrinsic": {"return", "area"},
        "random_policy": {"return"},
    }
    for found in metrics["comparisons"]["preference"].values():
        for entry in found.values():
            assert set(entry) == {"probability", "ci95", "difference", "p", "p_holm", "seeds"}
            lower, upper = entry["ci95"]
            assert 0 <= lower <= entry["probability"] <= upper <= 1
    labels = read_json(finished.path / "data/preferences/quality.json")
    assert set(labels) == {"annotator", "tie_rate", "intransitivity", "oracle"}, "an encoder cannot be biased, nor fail"
    assert {key: metrics["annotation"].pop(key) for key in labels} == labels
    assert set(metrics["annotation"]) == {
        "pairs", "distinct_segments", "ok", "tie", "abstain", "incomplete", "parse_failed", "api_failed",
    }  # fmt: skip
    reward = metrics["reward"]
    quality = read_json(finished.path / "data/reward/preference/quality.json")
    assert {key: value for key, value in reward.items() if key != "kendall_tau_vs_return"} == quality
    assert 0 <= reward["heldout_agreement"] <= 1
    assert -1 <= reward["kendall_tau_vs_return"] <= 1
    text = (finished.path / "reports/metrics.json").read_text()
    assert not re.search(r"NaN|Infinity", text), "other programs read it, too"


def test_an_arm_whose_tasks_a_curriculum_chose_is_not_compared_while_training(
    project: Project, undrawn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arm, "draws_tasks", property(lambda arm: arm.name == "preference"))
    looked_for: list[Sequence[str]] = []
    monkeypatch.setattr("laurel.stages.reward_warnings.hacked", lambda _, arms, *__: looked_for.append(arms) or [])
    monkeypatch.setattr("laurel.evaluation.statistics.WINDOW", 1)
    project.run("evaluate")
    metrics = read_json(project.path / "reports/metrics.json")
    assert {over: set(found) for over, found in metrics["comparisons"]["preference"].items()} == {
        "extrinsic": {"return"},
        "random_policy": {"return"},
    }
    reached = {name: entry["steps_to_threshold"] is not None for name, entry in metrics["arms"].items()}
    assert reached == {"extrinsic": True, "preference": False, "random_policy": False}
    assert looked_for == [[]], "harder tasks look like reward hacking"


def test_metrics_are_those_of_the_episodes(finished: Project) -> None:
    results = pd.read_parquet(finished.path / "reports/results.parquet")
    assert len(results) == 3 * 2 * TINY["evaluate"]["episodes"]
    assert not results.duplicated(["arm", "seed", "episode"]).any()
    metrics = read_json(finished.path / "reports/metrics.json")
    for arm, entry in metrics["arms"].items():
        seeds = results[results["arm"] == arm].groupby("seed")[["return", "success"]].mean()
        assert entry["return"]["mean"] == pytest.approx(seeds["return"].mean())
        assert entry["success"]["mean"] == pytest.approx(seeds["success"].mean())
    assert ((results["return"] > 0) == results["success"]).all()


# -- the report -----------------------------------------------------------------------------------
class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_report_opens_from_disk(finished: Project) -> None:
    text = (finished.path / "reports/report.html").read_text(encoding="utf-8")
    page = Page(text)
    linked = [place[:40] for place in page.loaded if not place.startswith(("#", "data:image/"))]
    assert linked == ["run.html"], "a link to the page beside it, and nothing that is loaded"
    assert not re.search(r"@import|url\((?!#)", text)
    assert page.tags.count("script") == 1, "the page's own"
    assert not {"link", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == len(FIGURES) + 2, "curves of return and success over a logarithmic axis, too"
    assert page.tags.count("img") == 1 + 3, "before and after, and every arm"
    said = " ".join(page.words)
    for words in (
        "MiniGrid-Empty-5x5-v0",
        "extrinsic",
        "random policy",
        "preference",
        "3 arms",
        "2 seeds",
        "trained by ppo",
    ):
        assert words in said
    assert "episodes: 4" in said, "the parameters are there"
    assert "simulated teacher" not in said


def test_files_next_to_the_report(finished: Project) -> None:
    names = {path.relative_to(finished.path / "reports").as_posix() for path in (finished.path / "reports").rglob("*")}
    assert names == {
        ".run.json", "run.html", "live.html", "manifest.json", "metrics.json", "results.parquet", "curves.csv",
        "report.html", "episodes.webp", "figures",
        "arms", "arms/extrinsic.webp", "arms/preference.webp", "arms/random_policy.webp",
        *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "svg")),
    }  # fmt: skip
    assert "url=report.html" in (finished.path / "reports/live.html").read_text(), "it leads on to the report"
    assert read_json(finished.path / "reports/manifest.json")["counts"] == {"arms": 3, "agents": 6, "episodes": 24}


# -- what is played -------------------------------------------------------------------------------
@pytest.mark.usefixtures("undrawn")
def test_an_evaluation_may_leave_out_arms_and_seeds(project: Project) -> None:
    project.change({"arms": ["preference", "random_policy"], "agent.seeds": [1]})
    project.run("evaluate")
    metrics = read_json(project.path / "reports/metrics.json")
    assert list(metrics["arms"]) == ["preference", "random_policy"]
    for entry in metrics["arms"].values():
        assert entry["seeds"] == [1]
        assert entry["return"]["ci95"] is None, "a single seed has no interval"
    assert metrics["comparisons"]["preference"]["random_policy"]["return"]["p"] is None
    assert "has a single seed" in (project.path / "reports/report.html").read_text()
    assert not (project.path / "reports/episodes.webp").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"agent.seeds": [0, 1, 2]},
            "agents: holds no agent of the arm extrinsic with seed 2. Run laurel",
        ),
        ({"arms": ["oracle"]}, "agents: holds no agent of the arm oracle with seed 0. Run laurel train-agents"),
        ({"agent.steps": 4096}, "agents: was made with agent.steps 2048, but it is 4096. Run laurel train-agents"),
        ({"shaping.beta": 0.5}, "agents: was made with shaping.beta 3.0, but it is 0.5. Run laurel train-agents"),
        ({"annotate.n_pairs": 9}, "preferences: was made with annotate.n_pairs 200, but it is 9. Run laurel annotate"),
        ({"env.id": "FrozenLake-v1"}, "trajectories: was made with env.id"),
    ],
)
def test_agents_trained_with_other_params_are_refused(project: Project, changes: dict[str, Any], sentence: str) -> None:
    project.change(changes)
    with pytest.raises(DataError, match=re.escape(sentence)):
        project.run("evaluate")
    assert not project.output("evaluate").exists()


def test_agents_trained_on_another_reward_are_refused(project: Project) -> None:
    project.change({"rewards.preference.max_epochs": 2})
    project.run("train-reward")
    with pytest.raises(DataError, match=r"agents: was made with rewards\.preference\.max_epochs 30, but it is 2\."):
        project.run("evaluate")
    manifest = project.output("train-reward") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"max_epochs": 2', '"max_epochs": 30'))
    project.change({"rewards.preference.max_epochs": 30})
    with pytest.raises(DataError, match=r"agents: was not made from the reward in .*Run laurel train-agents again\."):
        project.run("evaluate")


@pytest.mark.usefixtures("undrawn")
def test_agents_that_were_played_are_not_played_again(project: Project, finished: Project) -> None:
    played: list[str] = []

    def stop(jobs: list[Any], *_: Any) -> None:
        played.extend(job.name for job in jobs)
        raise KeyboardInterrupt

    project.change({"evaluate.animation_steps": 2})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("laurel.stages.evaluate._log", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            project.run("evaluate")
    (partial,) = project.path.glob(".reports.*.partial")
    tables = sorted(path.name for path in (partial / "episodes").iterdir())
    assert len(tables) == 6
    (partial / "episodes" / "preference-1.parquet").rename(partial / "episodes" / "preference-1.partial")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("laurel.evaluation.play.run_jobs", stop)
        with pytest.raises(KeyboardInterrupt):
            project.run("evaluate")
    assert played == ["evaluation of preference seed 1"]
    project.run("evaluate")
    assert not (project.path / "reports/episodes").exists()
    assert list((project.path / "reports/arms").iterdir()), "films that were made already are made again"
    same = [lasting_content(p.output("evaluate"))["results.parquet"] for p in (project, finished)]
    assert same[0] == same[1]


@pytest.mark.usefixtures("undrawn")
def test_a_new_caption_in_an_episode_is_scored(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RewardModel.load(project.output("train-reward") / "preference")
    turn = whole.texts.index("You turn.")
    kept = [i for i in range(len(whole.texts)) if i != turn]
    without = {name: getattr(whole, name)[kept] for name in ("rewards", "spreads", "counts", "embeddings")}
    partial = replace(whole, texts=tuple(whole.texts[i] for i in kept), **without)
    monkeypatch.setattr(RewardModel, "load", lambda place: partial)  # files that another wrote are refused
    shown: list[Sequence[Moment]] = []

    def keep(before: Sequence[Moment], after: Sequence[Moment], path: Path) -> None:
        shown.extend((before, after))
        path.touch()

    monkeypatch.setattr("laurel.stages.films.side_by_side", keep)
    monkeypatch.setattr("laurel.stages.films.running_beside", here)
    project.change({"arms": ["preference"], "agent.seeds": [0], "evaluate.animation_steps": 20})
    project.run("evaluate")
    assert len(shown) == 2
    for episode in shown:
        said = {moment.caption: moment.learned for moment in episode}
        assert said["You turn."] == pytest.approx(float(whole.rewards[turn]), abs=1e-4)
        assert said["You turn."] != 0


@pytest.mark.usefixtures("undrawn")
def test_an_arm_that_cannot_be_filmed_costs_no_report(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    filmed = iter(["before", "after", "extrinsic"])

    def until_a_state_without_picture(*args: Any) -> list[Moment]:
        if next(filmed, None) is None:
            raise NotRenderedError("the render of Room-v0 raised ValueError.")
        return record(*args)

    monkeypatch.setattr("laurel.stages.films.record", until_a_state_without_picture)
    monkeypatch.setattr("laurel.stages.films.running_beside", here)
    project.change({"arms": ["extrinsic", "preference"], "agent.seeds": [0], "evaluate.animation_steps": 2})
    project.run("evaluate")
    reports = project.path / "reports"
    assert [film.name for film in (reports / "arms").iterdir()] == ["extrinsic.webp"]
    lack = "Some arms have no film: the render of Room-v0 raised ValueError."
    assert lack in read_json(reports / "manifest.json")["notes"]
    assert lack in (reports / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_notes_of_all_stages_reach_the_report(project: Project) -> None:
    notes = {"trajectories": "Note one.", "captions": "Note two.", "agents": "Note <three>."}
    for name, note in notes.items():
        file = project.inputs("evaluate")[name] / "manifest.json"
        file.write_text(file.read_text().replace('"notes": []', f'"notes": ["{note}"]'))
    of_reward = read_json(project.output("train-reward") / "manifest.json")["notes"]
    assert len(of_reward) == 1, "a small reward contradicts some of its labels"
    project.run("evaluate")
    report = (project.path / "reports/report.html").read_text()
    assert all(f"<li>{note}</li>" in report for note in ("Note one.", "Note two.", *of_reward, "Note &lt;three&gt;."))
    assert read_json(project.path / "reports/manifest.json")["notes"] == [
        "Note one.",
        "Note two.",
        *of_reward,
        "Note <three>.",
    ]


def test_random_policy_alone(project: Project) -> None:
    project.change({"arms": ["random_policy"]})
    shutil.rmtree(project.output("train-agents"))
    project.run("train-agents", "evaluate")
    metrics = read_json(project.path / "reports/metrics.json")
    assert list(metrics["arms"]) == ["random_policy"]
    assert "Nothing was trained, so there are no curves." in (project.path / "reports/report.html").read_text()


def test_versions_name_what_is_installed() -> None:
    agent = AgentParams(seeds=(0,), steps=1)
    versions = report_files._versions([engine_of(agent)])
    assert set(versions) == {"python", "laurel", *report_files.PACKAGES}
    both = [engine_of(agent), engine_of(agent.model_copy(update={"engine": "sb3"}))]
    assert set(report_files._versions(both)) - set(versions) == {
        "stable-baselines3",
        "sb3-contrib",
    }
    assert versions["laurel"] == __version__


def test_a_server_without_traces_has_the_best_agent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Server:
        @contextmanager
        def stage_run(self) -> Iterator[object]:
            yield object()

    def refuse(*_: object) -> None:
        raise OSError("no traces here")

    for name in ("_track", "_register_best"):
        monkeypatch.setattr(evaluate, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(evaluate, "_scores", lambda _: {})
    monkeypatch.setattr(evaluate, "track_late", lambda *_: {"reward": "a run"})
    monkeypatch.setattr(evaluate, "Tracker", lambda *_, **__: Server())
    monkeypatch.setattr(evaluate, "log_asked", refuse)
    sections = {"tracking": TrackingParams(), "env": None}
    manifests = {"agents": {"mlflow_agent_runs": {}}, "reward": {"mlflow_run_id": None}}
    subject: Any = SimpleNamespace(sections=sections, manifests=manifests, inputs={}, played=[], stored=None)
    found: Any = SimpleNamespace(results=None, metrics={})
    facts: Any = None
    with pytest.raises(OSError, match="no traces here"):
        evaluate._log(subject, found, facts, Output(Path()))
    assert done == ["_track", "_register_best"]
