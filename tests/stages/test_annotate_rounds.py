"""The stage with samplers that go by the labels so far."""

from pathlib import Path
from typing import Any

import pytest

from laurel.data.captions import read_segments
from laurel.data.preferences import read_pairs, read_preferences
from laurel.errors import ParamsError
from laurel.stages import annotate, estimate_annotate
from laurel.stages.pipeline import STAGE
from tiny_project import UNTRACKED, Project, read_json


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with segments of two steps, which are more than the captions that a tiny world has."""
    changes = {**UNTRACKED, "caption.segment_length": 2, "annotate.round_pairs": 20}
    project = Project.create(tmp_path_factory.mktemp("captioned") / "p", changes)
    project.run("collect", "caption")
    return project


@pytest.fixture
def project(captioned: Project, tmp_path: Path) -> Project:
    """A project with captions but without preferences."""
    return captioned.copy(tmp_path / "p")


def judged(project: Project) -> dict[str, Any]:
    project.run("annotate")
    return read_json(project.output("annotate") / "manifest.json")


@pytest.mark.parametrize("sampler", ["information", "disagreement", "ranking", "nearby"])
def test_pairs_are_chosen_in_rounds(project: Project, sampler: str) -> None:
    project.change({"annotate.sampler": sampler, "annotate.n_pairs": 50})
    manifest = judged(project)
    out = project.output("annotate")
    pairs, preferences = read_pairs(out), read_preferences(out)
    n = len(read_segments(project.output("caption")))
    asked = {frozenset(pair) for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}
    assert len(pairs) == len(preferences) == len(asked) == min(50, n * (n - 1) // 2) > 40
    assert pairs.sampler == sampler
    assert manifest["counts"]["rounds"] == 3
    assert any(note.startswith(f"Pairs were chosen by annotate.sampler: {sampler}") for note in manifest["notes"])
    files = {name: (out / name).read_bytes() for name in ("pairs.parquet", "preferences.parquet")}
    judged(project)
    assert files == {name: (out / name).read_bytes() for name in files}, "same seed, same bytes"


def test_answers_decide_which_pairs_are_asked_next(project: Project) -> None:
    """Another goal, other pairs: after a first round that is the same."""
    asked = []
    for goal in ("The goal is seen.", "A wall."):
        project.change({"annotate.sampler": "ranking", "annotate.embedding.goal": goal, "annotate.n_pairs": 40})
        judged(project)
        pairs = read_pairs(project.output("annotate"))
        asked.append(list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)))
    assert asked[0][:20] == asked[1][:20]
    assert asked[0][20:] != asked[1][20:]


def test_the_manifest_says_after_how_many_pairs_it_ended_and_why(project: Project) -> None:
    project.change({"annotate.stop": {"rule": "rank", "tolerance": 0.9, "patience": 1}, "annotate.n_pairs": 45})
    manifest = judged(project)
    assert manifest["counts"]["pairs"] == 40 == 20 * manifest["counts"]["rounds"]
    (note,) = manifest["notes"]
    assert note.startswith("Annotation ended after 40 of at most ")
    assert "as annotate.stop.rule (rank) was met; rank correlation " in note


@pytest.mark.parametrize(
    ("changes", "which"),
    [
        ({"annotate.sampler": "ranking"}, "annotate.sampler ranking"),
        ({"annotate.stop": {"rule": "rank"}}, "annotate.stop.rule rank"),
    ],
)
def test_adaptive_samplers_refuse_shares_of_the_pairs(project: Project, changes: dict[str, Any], which: str) -> None:
    project.change(changes)
    with pytest.raises(ParamsError, match="A shard of the pairs cannot be judged separately"):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=project.path / "share",
            shard=(0, 2),
        )
    project.change({"pipeline": {"annotate_shards": 2}})
    with pytest.raises(ParamsError, match=f"has pipeline.annotate_shards 2, but {which} depends on all labels so far"):
        _ = project.params
    project.change({"pipeline": {"annotate_shards": 1}})
    assert project.params.pipeline.annotate_shards == 1


def test_an_estimate_says_that_an_adaptive_sampler_chooses_pairs_later(project: Project) -> None:
    project.change(
        {"annotate.annotator": "openai", "annotate.openai": {"model": "m", "base_url": "http://127.0.0.1:9"}}
    )
    project.change({"annotate.n_pairs": 30, "annotate.language_model.responses": str(project.path / "none.db")})
    captions = project.output("caption")
    assert "annotate.s" not in estimate_annotate.run(project.params, captions)
    project.change({"annotate.sampler": "information", "annotate.stop": {"rule": "rank"}})
    said = estimate_annotate.run(project.params, captions)
    assert "The sampler information depends on labels" in said
    assert "annotate.stop may end annotation earlier" in said
