"""The search with real training, and what it leaves."""

from __future__ import annotations

import csv
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from PIL import Image

from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import RUN, read_manifest
from laurel.errors import DataError, ParamsError
from laurel.llm.spending import shared_budget
from laurel.params import load_params, parse_params
from laurel.params.sb3 import SB3Params
from laurel.params.search import Sweep, read_space, with_values
from laurel.progress import Advance, progress
from laurel.rewards.method import Inputs
from laurel.stages import pick_best, try_candidate, tune
from laurel.stages.pipeline import STAGE
from laurel.stages.tune import jobs_of
from laurel.training.checkpoint import usage_note
from laurel.tuning.candidates import candidates
from laurel.tuning.plan import Search, narrowed, sweep_of
from laurel.tuning.study import Study
from laurel.tuning.trials import TRIALS, Trial, read_trials
from tiny_project import VOLATILE, Project, changed
from tracked import make_params

ENTRIES = ("shaping.intrinsic=log:0.01:1", "agent.ppo.hidden=[8],[16]")
SMALL = {"entries": ENTRIES, "steps": 512, "prune": False, "sampler": "sobol"}


@pytest.fixture(scope="module")
def searched(rewarded: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = rewarded.copy(tmp_path_factory.mktemp("searched") / "p", {"env.backend": "gymnasium"})
    file = project.path / "params.yaml"
    file.write_text(f"# of mine\n{file.read_text()}")
    (project.path / "said").write_text(searching(project, trials=3, text=file.read_text()))
    return project


def searching(project: Project, text: str | None = None, output: str = "tune", **search: object) -> str:
    given = Search(storage=project.path / "studies.db", **{**SMALL, **search})  # type: ignore[arg-type]
    return tune.run(
        project.params, **project.inputs("train-agents"), output=project.path / output, search=given, text=text
    )


def test_the_best_is_a_params_file_that_differs_in_what_was_searched(searched: Project) -> None:
    trials = read_trials(searched.path / "tune" / TRIALS)
    assert [trial.values for trial in trials] == candidates(
        read_space(ENTRIES, searched.params, "preference"), searched.params, 3, "sobol", 0
    )
    chosen = max(trials, key=lambda trial: trial.score or 0.0)
    best = searched.path / "tune" / "best.yaml"
    assert load_params(best) == with_values(searched.params, chosen.values)
    lines = best.read_text().splitlines()
    assert lines[0].startswith(f"# laurel tune: the best of 3 trials (trial {chosen.number}) for the arm preference")
    assert lines[1].startswith(
        "# laurel tune: Chosen on the seeds 1000, 1001, each trained for at least 512 environment steps;"
    )
    assert lines[2] == "# of mine"


def test_a_trial_is_what_training_its_candidate_gives(searched: Project, tmp_path: Path) -> None:
    from laurel.stages import train_agents
    from laurel.tuning.objective import area, read_curve

    trial = read_trials(searched.path / "tune" / TRIALS)[1]
    candidate = narrowed(with_values(searched.params, trial.values), "preference", (1000, 1001), 512)
    train_agents.run(
        **STAGE["train-agents"].given(candidate), **searched.inputs("train-agents"), output=tmp_path / "agents"
    )
    curves = [read_curve(tmp_path / "agents" / "preference" / f"seed-{seed}") for seed in (1000, 1001)]
    assert trial.seed_scores == tuple(area(curve) for curve in curves)


def test_a_search_writes_its_trials_and_figures(searched: Project) -> None:
    place = searched.path / "tune"
    with (place / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    trials = read_trials(place / TRIALS)
    assert [float(row["score"]) for row in rows] == [trial.score for trial in trials]
    assert [row["agent.ppo.hidden"] for row in rows] == [str(trial.values["agent.ppo.hidden"]) for trial in trials]
    for name in ("history", "parameters"):
        with Image.open(place / "figures" / f"{name}.png") as image:
            assert image.width > 700
    manifest = read_manifest(place, "tune")
    assert manifest["counts"] == {"trials": 3, "complete": 3, "pruned": 0, "failed": 0}
    assert any("on the seeds 1000, 1001 is biased upwards: evaluate it on agent.seeds" in n for n in manifest["notes"])
    assert any("Importance is left out" in note for note in manifest["notes"])
    said = (searched.path / "said").read_text()
    assert all(note in said for note in manifest["notes"])
    assert f"cp {place / 'best.yaml'} params.yaml && laurel run" in said
    assert "Trials were trained for at least 512 environment steps, but agent.steps is 2,048: other values" in said
    assert not list(searched.path.glob(".studies*.partial")), "what was trained is gone"


def test_a_finished_study_is_shown_again_and_gives_the_same(searched: Project) -> None:
    searching(searched, trials=2, output="again", text=(searched.path / "params.yaml").read_text())
    first, again = (read_manifest(searched.path / name) for name in ("tune", "again"))
    assert {k: v for k, v in first.items() if k not in VOLATILE} == {
        k: v for k, v in again.items() if k not in VOLATILE
    }


def test_candidates_tried_in_separate_steps_give_the_same_best(searched: Project, tmp_path: Path) -> None:
    params = searched.params
    sweep = Sweep.read(sweep_of(params, Search(**SMALL)).write())  # type: ignore[arg-type]
    inputs = searched.inputs("train-agents")
    shards = [tmp_path / name for name in ("a", "b", "c")]
    for number, values in enumerate(candidates(sweep.space, params, 3, "sobol", 0)):
        try_candidate.run(params, **inputs, output=shards[number], sweep=sweep, number=number, values=values)
        write_json(shards[number] / RUN, {**read_json(shards[number] / RUN), "usage": {"calls": number}})
    pick_best.run(params, **inputs, shards=shards[::-1], output=tmp_path / "picked", sweep=sweep)
    assert read_trials(tmp_path / "picked" / TRIALS) == read_trials(searched.path / "tune" / TRIALS)
    assert load_params(tmp_path / "picked" / "best.yaml") == load_params(searched.path / "tune" / "best.yaml")
    assert read_manifest(tmp_path / "picked")["usage"] == {"calls": 0 + 1 + 2}
    assert not list(tmp_path.rglob("*.safetensors"))

    with pytest.raises(DataError, match=r"The trials \[0, 1, 1\] must include each candidate exactly once"):
        pick_best.run(params, **inputs, shards=[*shards[:2], shards[1]], output=tmp_path / "x", sweep=sweep)
    other = Sweep(sweep.arm, (5,), sweep.steps, sweep.space)
    with pytest.raises(DataError, match="holds a trial of another sweep"):
        pick_best.run(params, **inputs, shards=shards, output=tmp_path / "x", sweep=other)
    assert not (tmp_path / "x").exists()


def test_another_study_under_the_same_name(searched: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DataError, match=r"was started with steps 512, but now it is 600\. Name another one with --study"
    ):
        searching(searched, trials=3, steps=600)
    project = Project(searched.path)
    beta = changed(project.params, shaping={"beta": 1.0})
    given = Search(storage=project.path / "studies.db", trials=3, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"was started with params\.shaping\.beta 3\.0, but now it is 1\.0"):
        tune.run(beta, **project.inputs("train-agents"), output=project.path / "x", search=given)
    changed_params = changed(project.params, shaping={"intrinsic": 0.5})  # what is searched may differ
    tune.run(changed_params, **project.inputs("train-agents"), output=project.path / "own", search=given)
    monkeypatch.setattr(tune, "contents_named", lambda used: {"mine.py": "b"})
    with pytest.raises(DataError, match=r'was started with files\.mine\.py null, but now it is "b"'):
        tune.run(changed_params, **project.inputs("train-agents"), output=project.path / "mine", search=given)


def test_seeds_are_not_those_of_the_evaluation(rewarded: Project) -> None:
    params = changed(rewarded.params, agent={"seeds": (0, 1000)})
    assert sweep_of(params, Search()).seeds == (1001, 1002)
    with pytest.raises(ParamsError, match=r"--seeds names 1000, which is one of agent\.seeds"):
        sweep_of(params, Search(seeds=[7, 1000]))


def test_arguments_that_stable_baselines3_does_not_take(rewarded: Project) -> None:
    pytest.importorskip("stable_baselines3")
    params = changed(rewarded.params, agent={"engine": "sb3", "sb3": SB3Params(algorithm="PPO")})
    assert list(sweep_of(params, Search()).space)[-1] == "agent.sb3.kwargs.learning_rate"
    with pytest.raises(ParamsError, match=r'PPO has no argument learnin_rate. Did you mean "learning_rate"'):
        sweep_of(params, Search(entries=["agent.sb3.kwargs.learnin_rate=0.1:1"]))
    unfit = changed(rewarded.params, agent={"engine": "sb3", "sb3": SB3Params(algorithm="SAC")})
    assert sweep_of(unfit, Search(entries=["agent.sb3.algorithm=PPO,A2C"])), "SAC is none of them"
    with pytest.raises(ParamsError, match="SAC needs Box spaces"):
        sweep_of(params, Search(entries=["agent.sb3.algorithm=PPO,SAC"]))


def test_arms(rewarded: Project) -> None:
    params = rewarded.params
    assert sweep_of(params, Search()).arm == "preference"
    assert sweep_of(params.narrowed("extrinsic"), Search()).arm == "extrinsic"
    beside = parse_params({**params.dump(), "arms": {"online": {"reward": "online"}}}, "a test")
    with pytest.raises(ParamsError, match="--arm: the reward online of the arm online is learned from an online judge"):
        sweep_of(beside, Search(arm="online"))
    tasks = {"id": "laurel/Tasks-v0", "kwargs": {"tasks": ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"]}}
    drawn = {"drawn": {"reward": None, "agent": {"curriculum": {}}}, "turns": {"reward": None}}
    of_tasks = parse_params({**params.dump(), "env": tasks, "arms": drawn}, "a test")
    assert sweep_of(of_tasks, Search(arm="turns")).arm == "turns"
    with pytest.raises(ParamsError, match="--arm: a curriculum chooses the tasks of the arm drawn while it is trained"):
        sweep_of(of_tasks, Search(arm="drawn"))
    with pytest.raises(ParamsError, match=r'--arm is "oracel", but must be one of .*Did you mean "oracle"'):
        sweep_of(params, Search(arm="oracel"))
    with pytest.raises(ParamsError, match='--arm is "random_policy"'):
        sweep_of(params, Search(arm="random_policy"))


def test_training_that_diverges_is_a_failed_trial(
    searched: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    totals: list[int] = []

    def noted(total: int, *words: str) -> AbstractContextManager[Advance]:
        totals.append(total)
        return progress(total, *words)

    monkeypatch.setattr("laurel.stages.tune.progress", noted)
    # what a stopped search had begun and this one, with fewer trials, does not resume
    usage_note(searched.path / ".studies.d.partial" / "trial-7-abc" / "seed-77").write([{"asker": "one", "calls": 3}])
    entries = ("agent.ppo.learning_rate=0.002,1.0e+300",)
    said = searching(searched, output="diverged", study="d", trials=9, sampler="grid", entries=entries, seeds=[77])
    assert "tune: the grid has 2 combinations, so these are all trials." in capsys.readouterr().err
    assert totals == [2]
    assert read_manifest(searched.path / "diverged")["usage"] == {"calls": 3}
    trials = read_trials(searched.path / "diverged" / TRIALS)
    assert [trial.state for trial in trials] == ["complete", "failed"]
    assert "training diverged after" in trials[1].note
    assert f"1 trial failed, e.g. trial 1: {trials[1].note}" in said


def test_seeds_of_a_single_candidate_are_divided_among_processes(rewarded: Project, tmp_path: Path) -> None:
    params = changed(rewarded.params, agent={"workers": 2})
    sweep, inputs = sweep_of(params, Search(seeds=(7, 8, 9))), rewarded.inputs("train-agents")
    for alone, processes in ((False, 1), (True, 2)):
        jobs, _ = jobs_of(params, sweep, Inputs(**inputs), alone=alone)({}, tmp_path)
        assert list(jobs) == [tmp_path / f"seed-{seed}" for seed in (7, 8, 9)]
        assert len({id(job) for job in jobs.values()}) == processes


def test_values_that_do_not_go_together_are_a_failed_trial(searched: Project, tmp_path: Path) -> None:
    entries = ("agent.ppo.recurrent=true,false", "agent.ppo.hidden=[],[8]")
    sweep = sweep_of(searched.params, Search(**{**SMALL, "entries": entries}))  # type: ignore[arg-type]
    values = {"agent.ppo.recurrent": True, "agent.ppo.hidden": []}
    inputs = searched.inputs("train-agents")
    try_candidate.run(searched.params, **inputs, output=tmp_path / "a", sweep=sweep, number=0, values=values)
    (trial,) = read_trials(tmp_path / "a" / TRIALS)
    assert (trial.state, trial.score) == ("failed", None)
    assert "hidden must have at least one width" in trial.note


def test_a_study_resumes_whatever_the_unused_settings(searched: Project) -> None:
    project = searched.copy(searched.path.with_name("unread"), {"agent.dqn": {"gamma": 0.5}})
    assert "3 complete" in searching(project, trials=3)


def test_a_study_resumes_with_a_raised_limit(searched: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the error of a spent budget advises; the limits change no trial."""
    project = searched.copy(searched.path.with_name("raised"), {"annotate.budget": {"max_calls": 999}})
    monkeypatch.setattr(tune, "read_inputs", lambda _, inputs: {key: read_manifest(inputs[key]) for key in inputs})
    monkeypatch.setattr(tune, "publish", lambda *_, **__: "resumed")
    assert searching(project, trials=3) == "resumed"


def test_a_study_of_an_earlier_version_goes_on(searched: Project) -> None:
    """It noted the limits, too."""
    params, space = searched.params, sweep_of(searched.params, Search(entries=ENTRIES)).space
    storage = searched.path.with_name("earlier.db")
    used = params.used("seed", "annotate")
    assert "budget" in used["annotate"]
    for about in ({"params": used}, {"params": tune.without_limits(used)}):
        Study(storage, "x", space, params, about, sampler="tpe")
    with pytest.raises(DataError, match=r"was started with params.seed"):
        Study(storage, "x", space, params, {"params": {**tune.without_limits(used), "seed": 99}}, sampler="tpe")


def test_all_trials_share_a_budget(rewarded: Project, tmp_path: Path) -> None:
    params = with_values(rewarded.params, {"annotate.budget.max_calls": 5})
    sweep, inputs = sweep_of(params, Search(entries=ENTRIES)), Inputs(**rewarded.inputs("train-agents"))
    with shared_budget(params.annotate) as asking:
        make_jobs = jobs_of(params, sweep, inputs, asking=asking)
        for number, intrinsic in enumerate((0.1, 0.2)):
            jobs, _ = make_jobs({"shaping.intrinsic": intrinsic}, tmp_path / str(number))
            for job in jobs.values():
                context = job.args[1]
                assert context.annotate.budget.ledger == asking.budget.ledger is not None
                assert context.annotate.budget.max_calls == 5


def test_seconds_and_what_trials_asked_count_also_those_of_an_earlier_search(
    searched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    monkeypatch.setattr("laurel.tuning.search.used_by", lambda agent: {str(agent): {"calls": 2, "cost_usd": 0.5}})
    project = searched.copy(searched.path.with_name("asking"))
    took = 0.0
    for trials in (1, 2):
        began = time.monotonic()
        searching(project, trials=trials, study="asking")
        took += time.monotonic() - began
        study = optuna.load_study(study_name="asking", storage=f"sqlite:///{project.path}/studies.db")
        trained = sum(trial.duration.total_seconds() for trial in study.trials if trial.duration)
        seconds = read_manifest(project.path / "tune")["seconds"]
        assert 0.9 * trained < seconds <= took + 0.01
        asked = {"calls": 4 * trials, "cost_usd": float(trials)}
        assert read_manifest(project.path / "tune")["usage"] == asked, "two agents a trial"


def test_trials_are_runs_below_the_study(searched: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{searched.path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    project = searched.copy(searched.path.with_name("tracked"), {"tracking.enabled": True})
    searching(project, trials=3)
    client = MlflowClient(uri)
    run = client.get_run(read_manifest(project.path / "tune")["mlflow_run_id"])
    trials = read_trials(project.path / "tune" / TRIALS)
    assert run.data.metrics["best_score"] == max(trial.score or 0.0 for trial in trials)
    assert run.data.tags["arm"] == "preference"
    assert run.data.params["tune.search.shaping.intrinsic"] == "log:0.01:1.0"
    assert run.data.params["tune.search.agent.ppo.hidden"] == "[8],[16]"
    assert (run.data.params["tune.steps"], run.data.params["tune.seeds"]) == ("512", "[1000, 1001]")
    children = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
    by_number = {int(child.data.tags["trial"]): child.data for child in children}
    assert sorted(by_number) == [0, 1, 2]
    for trial in trials:
        logged = by_number[trial.number]
        assert logged.params == {name: str(value) for name, value in trial.values.items()}
        assert logged.metrics["score"] == trial.score
        assert logged.tags["state"] == "complete"


def test_trials_have_the_annotator_of_their_arms_reward(database: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    params = make_params(
        arms={"extrinsic": {}, "taught": {"reward": "taught"}},
        rewards={"taught": {"kind": "preference", "judge": "teacher"}},
        annotate={"annotator": "embedding", "judges": {"teacher": {"annotator": "scripted"}}},
    )
    sweep = sweep_of(params, Search(arm="taught", entries=["shaping.beta=0:1"]))
    trials = [Trial(0, {"shaping.beta": 0.5}, "complete", 1.0, (1.0, 1.0), 1.0)]
    tune.publish(params, sweep, trials, {}, tmp_path / "tune", {})
    client = MlflowClient(database)
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert {run.data.tags.get("trial"): run.data.tags["annotator"] for run in runs} == dict.fromkeys(
        [None, "0"], "scripted"
    )
