"""An annotator of another package: one module, found by its entry point, with its own section of the params."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from laurel.arrays import BoolArray
from laurel.data.captions import read_vocabulary
from laurel.data.usage import UsageNote
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.tasks import tasks_of
from laurel.errors import AnnotationError, ParamsError, PluginError
from laurel.feedback import interest
from laurel.feedback.annotator import Pair, judge, usage_of
from laurel.feedback.annotator_kind import _REQUIRED, AnnotatorKind, check_annotator, kind_of
from laurel.feedback.annotators import make_annotator
from laurel.library.judging import annotate
from laurel.params import EnvParams, parse_params
from laurel.params.annotation import AnnotateParams
from laurel.params.kinds import ANNOTATORS
from laurel.params.listing import listed
from laurel.params.rewards import method_of
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.goals import GoalTable
from laurel.rewards.methods.outcome import OutcomeTable
from laurel.rewards.online_artefact import read_labels
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

PAIRS = [Pair("long", "a"), Pair("a", "long"), Pair("same", "same"), Pair("long", "longer")]


pytestmark = pytest.mark.usefixtures("examples")


def labels(params: AnnotateParams, adapter: EnvAdapter) -> list[float | None]:
    return [judgement.p_first for judgement in judge(make_annotator(params, adapter, 0), PAIRS)]


def test_it_judges_by_its_own_params_section(door_key: EnvAdapter) -> None:
    params = AnnotateParams.model_validate({"annotator": "length", "length": {"longest": 3}})
    assert labels(params, door_key) == [1.0, 0.0, 0.5, 0.5], "beyond 3 letters, texts count as equally long"
    assert kind_of(params).estimate(door_key, PAIRS) is None
    assert not params.keeps_responses
    assert make_annotator(AnnotateParams(annotator="length"), door_key, 0).longest == 100  # type: ignore[attr-defined]


def test_a_check_that_returns_its_refusal_instead_of_raising_it_is_named(
    door_key: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = AnnotateParams(annotator="length")
    check_annotator(kind_of(params), door_key)
    monkeypatch.setattr(type(kind_of(params)), "check", lambda self, adapter: "all texts count as equally long")
    needed = r"LengthKind: its check returned 'all texts count .* and raise a laurel\.errors\.LaurelError to refuse"
    with pytest.raises(PluginError, match=needed):
        check_annotator(kind_of(params), door_key)
    with pytest.raises(PluginError, match=needed):
        annotate([("a", "b")], annotator="length", goal="Long.")


def test_an_annotator_that_lacks_something_is_named(door_key: EnvAdapter) -> None:
    class Kind(AnnotatorKind):
        def make(self, *_: Any, **__: Any) -> Any:
            return object()

    params = AnnotateParams.model_validate({"annotator": "length"})
    with pytest.raises(AnnotationError, match=r"\(object\) has no name, simulated, usage, prepare, annotate\."):
        Kind(params).make(door_key, 0)


def test_amounts_of_a_usage_can_be_written_as_json() -> None:
    usage = {"calls": np.int64(3), "cost_usd": float("nan"), "seconds": np.float32(0.5), "tokens": None}
    written = json.dumps(usage_of(SimpleNamespace(name="odd", usage=usage)))
    assert written == '{"calls": 3, "cost_usd": null, "seconds": 0.5, "tokens": null}'


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("name", None, "has name None, but it must be text"),
        ("simulated", "no", "has simulated 'no', but it must be True or False"),
        ("usage", None, "has usage None, but it must map each resource"),
        ("usage", {"calls": "many"}, "has usage {'calls': 'many'}, but it must map each resource"),
        ("usage", {"calls": -1}, "has usage {'calls': -1}, but it must map each resource to a number from 0"),
        ("usage", {"cost_usd": float("inf")}, "has usage {'cost_usd': inf}, but it must map each resource"),
    ],
)
def test_an_annotator_whose_provenance_is_invalid_is_named(
    door_key: EnvAdapter, name: str, value: object, said: str
) -> None:
    params = AnnotateParams.model_validate({"annotator": "length"})
    made = make_annotator(params, door_key, 0)

    class Kind(AnnotatorKind):
        def make(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(**{field: getattr(made, field) for field in _REQUIRED} | {name: value})

    with pytest.raises(AnnotationError, match=said):
        Kind(params).make(door_key, 0)


@pytest.mark.parametrize(
    ("method", "given", "returned", "needed"),
    [
        ("notes", (), "A note.", "a list of texts"),
        ("missing_here", (), True, "a sentence, or None"),
        ("goal", (None,), 5, "a text"),
        ("estimate", (None, ()), "much", r"a laurel\.feedback\.estimate\.Estimate, or None"),
    ],
)
def test_what_its_methods_return_is_checked(method: str, given: tuple[Any, ...], returned: Any, needed: str) -> None:
    """A note became one for each of its letters."""
    kind = type("Kind", (type(kind_of(AnnotateParams(annotator="length"))),), {method: lambda self, *_: returned})
    with pytest.raises(
        PluginError, match=rf"^The annotator \S*Kind: its {method} returned {returned!r}, but it must return {needed}\."
    ):
        getattr(kind(AnnotateParams(annotator="length")), method)(*given)


def test_its_section_is_dumped_and_read_back() -> None:
    params = AnnotateParams.model_validate({"annotator": "length", "length": {"longest": 3}})
    dumped = params.model_dump(mode="json")
    assert dumped["length"] == {"longest": 3}
    assert AnnotateParams.model_validate(dumped) == params
    changed = params.overridden({"annotator": "embedding", "length": {"longest": 4}}, "here")
    assert changed.model_dump(mode="json")["length"] == {"longest": 4}
    assert changed != params
    assert "length" not in AnnotateParams().model_dump(mode="json")


def test_invalid_annotators_are_refused_in_one_sentence(door_key: EnvAdapter) -> None:
    for section, sentence in (
        ({"longest": 0}, r"^a\.yaml: annotate\.length\.longest is 0, but must be"),
        ({"lnogest": 1}, r'^a\.yaml: annotate\.length\.lnogest is unknown\. Did you mean "longest"\?'),
    ):
        with pytest.raises(ParamsError, match=sentence):
            parse_params({**MINIMAL, "annotate": {"annotator": "length", "length": section}}, "a.yaml")
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
    wrong[0] = {"annotator": "openai", "name": "a"}
    with pytest.raises(ValueError, match=r"Allowed: annotator, weight, .*, openai, huggingface\."):
        AnnotateParams.model_validate({"annotator": "ensemble", "ensemble": {"members": wrong}})


def test_all_that_are_built_in_are_files() -> None:
    assert ANNOTATORS.builtin() == ("embedding", "ensemble", "huggingface", "openai", "scripted")
    for kind in ANNOTATORS.builtin():
        assert issubclass(ANNOTATORS.load(kind, "annotate.annotator"), AnnotatorKind)


SERVED: dict[str, dict[str, Any]] = {
    "score": {},
    "goals": {},
    "outcome": {},
    "online": {"form": "retrieval", "questions": 20, "every": 64},
}
"""Rewards that ask about single texts."""


def test_it_serves_rewards_that_ask_about_single_texts(tmp_path: Path) -> None:
    """Each asks for the number that it gives a text; figures of quality say that no model judged."""
    longest = 40
    arms = {name: {"reward": name, "extrinsic": 0.0} for name in SERVED}
    judge = {"annotate.annotator": "length", "annotate.length": {"longest": longest}}
    small = {"agent.seeds": [0], "agent.steps": 512, "agent.workers": 1}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **judge, **small, "arms": arms, "rewards": SERVED})
    project.run("collect", "caption", "annotate", "train-reward", "train-agents")
    rewards, captions = project.output("train-reward"), read_vocabulary(project.output("caption")).texts
    for name in ("score", "goals", "outcome"):
        quality = read_json(rewards / name / "quality.json")
        assert quality["judge"].startswith("length")
        assert quality["simulated"]
    scores = ScoredCaptions.load(rewards / "score")[0].known
    capped = [min(len(text), longest) for text in captions]
    assert spearmanr([scores[text] for text in captions], capped).statistic == pytest.approx(1)
    long = {text for text in captions if len(text) > longest / 2}
    assert 0 < len(long) < len(captions)
    assert {*GoalTable.load(rewards / "goals").goals} == long
    answers = OutcomeTable.load(rewards / "outcome").answers
    assert answers == {text: float(text in long) for text in answers}
    place = project.output("train-agents") / "online/seed-0/reward/online"
    assert read_json(place / "online.json")["judge"] == "length"
    labels = {row["first"]: row["p"] for row in read_labels(place)}
    assert labels
    assert labels == {text: float(len(text) > longest / 2) for text in labels}


@pytest.mark.parametrize(
    ("reward", "cannot"),
    [("score", "gives no scores"), ("goals", "suggests no goals"), ("outcome", "cannot judge whether an outcome is")],
)
def test_missing_abilities_are_reported_before_collection(
    reward: str, cannot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = parse_params(
        {**MINIMAL, "annotate": {"annotator": "length"}, "arms": {"x": {"reward": reward}}}, "params.yaml"
    )
    context, method = RewardContext.of(params), method_of(params.rewards[reward])
    monkeypatch.setattr(type(kind_of(params.annotate)), "text_judge", AnnotatorKind.text_judge)
    with pytest.raises(AnnotationError, match=rf"^rewards\.{reward}: the annotator length judges pairs, and {cannot}"):
        method.check(context, context.adapter)
    online = parse_params(
        {**MINIMAL, "annotate": {"annotator": "length"}, "arms": {"x": {"reward": "online"}},
         "rewards": {"online": {"form": "retrieval"}}}, "params.yaml",
    )  # fmt: skip
    with pytest.raises(
        AnnotationError, match="the annotator length judges pairs, and cannot judge whether a single caption"
    ):
        method_of(online.rewards["online"]).check(RewardContext.of(online), context.adapter)


def test_it_may_compare_tasks_for_a_curriculum(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tasks = ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0", "MiniGrid-DoorKey-5x5-v0"]
    adapter = tasks_of(adapter_for(EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": tasks})), "here")
    params = AnnotateParams(annotator="length")
    with pytest.raises(AnnotationError, match="the annotator length judges pairs, and cannot compare tasks"):
        interest.check(adapter, params, "main")

    def alike(goals: Sequence[str]) -> BoolArray:
        return np.array([[len(goal) == len(other_goal) for other_goal in goals] for goal in goals])

    monkeypatch.setattr(type(kind_of(params)), "alike", lambda self: alike)
    interest.check(adapter, params, "main")
    found, _ = interest.boring(adapter, params, "main", UsageNote(tmp_path / "note.json"))
    assert found.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert kind_of(params).simulated, "which the notes of train-agents say"
