"""An annotator of another package: one module, found by its entry point, with its own section of the params."""

from __future__ import annotations

import pytest

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError, ParamsError
from laurel.feedback.annotator import Pair, judge
from laurel.feedback.annotator_kind import AnnotatorKind, kind_of
from laurel.feedback.annotators import make_annotator
from laurel.params.annotation import AnnotateParams
from laurel.params.kinds import ANNOTATORS
from laurel.params.listing import listed

PAIRS = [Pair("long", "a"), Pair("a", "long"), Pair("same", "same")]


pytestmark = pytest.mark.usefixtures("examples")


def labels(params: AnnotateParams, adapter: EnvAdapter) -> list[float | None]:
    return [judgement.p_first for judgement in judge(make_annotator(params, adapter, 0), PAIRS)]


def test_it_judges_by_its_own_section(door_key: EnvAdapter) -> None:
    params = AnnotateParams.model_validate({"annotator": "length", "length": {"longest": 3}})
    assert labels(params, door_key) == [1.0, 0.0, 0.5]
    assert kind_of(params).estimate(door_key, PAIRS) is None
    assert not params.keeps_responses
    assert make_annotator(AnnotateParams(annotator="length"), door_key, 0).longest == 100  # type: ignore[attr-defined]


def test_its_section_is_dumped_and_read_back() -> None:
    params = AnnotateParams.model_validate({"annotator": "length", "length": {"longest": 3}})
    dumped = params.model_dump(mode="json")
    assert dumped["length"] == {"longest": 3}
    assert AnnotateParams.model_validate(dumped) == params
    changed = params.overridden({"annotator": "embedding", "length": {"longest": 4}}, "here")
    assert changed.model_dump(mode="json")["length"] == {"longest": 4}
    assert changed != params
    assert "length" not in AnnotateParams().model_dump(mode="json")


def test_what_does_not_fit_is_refused_in_a_sentence(door_key: EnvAdapter) -> None:
    for section, sentence in (
        ({"longest": 0}, r"has a section that is not allowed: annotate: length\.longest is 0, but must be"),
        ({"lnogest": 1}, r'length\.lnogest is unknown\. Did you mean "longest"\?'),
    ):
        with pytest.raises(ValueError, match=sentence):
            AnnotateParams.model_validate({"annotator": "length", "length": section})
    with pytest.raises(ValueError, match="lenght"):
        AnnotateParams.model_validate({"annotator": "length", "lenght": {}})
    with pytest.raises(ParamsError, match=r'must be one of .*length\. Did you mean "length"\?'):
        AnnotateParams().overridden({"annotator": "lenght"}, "here")
    params = AnnotateParams.model_validate({"annotator": "length", "length": {"longest": 1}})
    with pytest.raises(AnnotationError, match="all texts count as equally long"):
        kind_of(params).check(door_key)


def test_it_is_listed_with_its_parameters() -> None:
    (kind,) = listed("annotate.annotator")
    assert kind.allowed == "embedding | ensemble | huggingface | openai | scripted | length"
    (longest,) = listed("annotate.length.longest")
    assert (longest.allowed, longest.default) == ("whole number from 1", "default 100")


def test_it_votes_in_an_ensemble(door_key: EnvAdapter) -> None:
    members = [{"annotator": "length", "length": {"longest": 3}, "weight": 3}, {"annotator": "scripted"}]
    params = AnnotateParams.model_validate({"annotator": "ensemble", "ensemble": {"members": members}})
    assert [type(voter.section).__name__ for voter in params.voters] == ["LengthParams", "ScriptedParams"]
    assert labels(params, door_key)[0] == pytest.approx(0.875)
    wrong = [{"annotator": "length", "lenght": {}}, {"annotator": "scripted"}]
    with pytest.raises(ValueError, match=r'has lenght, which is unknown\. Did you mean "length"\?'):
        AnnotateParams.model_validate({"annotator": "ensemble", "ensemble": {"members": wrong}})


def test_all_that_are_built_in_are_files() -> None:
    assert ANNOTATORS.builtin() == ("embedding", "ensemble", "huggingface", "openai", "scripted")
    for kind in ANNOTATORS.builtin():
        assert issubclass(ANNOTATORS.load(kind, "annotate.annotator"), AnnotatorKind)
