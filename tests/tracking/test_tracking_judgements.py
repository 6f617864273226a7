"""What a language model was asked, in MLflow: prompts in the registry, and a sample of pairs as traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from laurel.data.asked import MOST
from laurel.data.gold import GoldFile, Task
from laurel.envs import EnvAdapter, adapter_for
from laurel.feedback.annotator import Answer
from laurel.feedback.asked import AskedSample, prompt_of
from laurel.feedback.questions.goals import GoalsQuestion
from laurel.feedback.questions.pair import PairQuestion
from laurel.params import EnvParams
from laurel.tracking import judgements
from laurel.tracking.judgements import log_asked, log_pairs, log_prompt
from laurel.tracking.run import Run
from laurel.tracking.server import connect

OWN = "---\ndescription: Mine.\nanswer: choice\n---\n{% block user %}{{ first }} or {{ second }}?MORE{% endblock %}" + (
    "{% block follow_up %}Which?{% endblock %}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}")
        client, experiment = connect("judgements")
        yield Run(client, client.create_run(experiment).info.run_id, experiment)


@pytest.fixture
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id="FrozenLake-v1"))


def answered(number: int, first: str, second: str) -> dict[str, Any]:
    answers = [
        {"swapped": swapped, "vote": 0, "verdict": "first", "answer_p_first": 1.0, "annotator": "a", "answer": said}
        for swapped, said in ((False, "1"), (True, "2"))
    ]
    pair = {"pair": number, "first": first, "second": second, "status": "ok", "p_first": 1.0, "swap_consistent": True}
    return {**pair, "answers": answers}


def test_a_prompt_is_in_the_registry_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "my own.jinja"
    versions = []
    for text in (OWN.replace("MORE", ""), OWN, OWN.replace("MORE", "")):
        file.write_text(text)
        log_prompt(run, prompt_of(PairQuestion.load_prompt(str(file))))
        current = run.client.get_prompt_version_by_alias("pair.my-own", "current")
        assert current.template == text, "the alias follows what is asked now"
        versions.append(current.version)
    assert versions == [1, 2, 1]


def test_a_sample_of_pairs_is_traced_with_a_persons_labels(run: Run, adapter: EnvAdapter, tmp_path: Path) -> None:
    gold = GoldFile(tmp_path / "gold.jsonl", Task(adapter.env_id, "Reach the goal."))
    gold.add("b0", "a0", "first", "uniform")  # the other way round than it was asked
    gold.add("a1", "b1", "tie", "uniform")
    question = PairQuestion(PairQuestion.load_prompt("concise"), adapter)
    unanswered = {**answered(99, "x", "y"), "answers": []}
    log_pairs(run, [unanswered, *(answered(i, f"a{i}", f"b{i}") for i in range(MOST + 5))], question, gold)
    found = run.client.search_traces([run.experiment], f"attributes.run_id = '{run.id}'", max_results=MOST + 5)
    traces = {trace.data.spans[0].name: trace for trace in found}
    assert set(traces) == {f"pair {i}" for i in range(MOST)}
    labels = {name: trace.info.assessments[0].value for name, trace in traces.items() if trace.info.assessments}
    assert labels == {"pair 0": "second", "pair 1": "tie"}
    assert traces["pair 0"].info.assessments[0].source.source_type == "HUMAN"
    root, *spans = traces["pair 0"].data.spans
    assert root.outputs == {"status": "ok", "p_first": 1.0, "swap_consistent": True}
    for span, (swapped, said) in zip(spans, ((False, "1"), (True, "2")), strict=True):
        texts = ("b0", "a0") if swapped else ("a0", "b0")
        asked = span.inputs["messages"][-1]["content"]
        assert asked.index(f'"{texts[0]}"') < asked.index(f'"{texts[1]}"')
        assert span.outputs["content"] == said


def test_questions_of_any_kind_are_traced_with_their_prompts(run: Run, adapter: EnvAdapter) -> None:
    """What an asker keeps of goals, say; the same item of two agents is one trace."""
    other = Run(run.client, run.client.create_run(run.experiment).info.run_id, run.experiment)
    question = GoalsQuestion(GoalsQuestion.load_prompt("suggest"), adapter)
    samples = AskedSample("a model", question)
    for number, text in enumerate(("You slip.", "You walk.")):
        samples.add(text, [Answer(0, vote, "goals", ("Reach it.", f"{vote}"), f"key {number}") for vote in (0, 1)])
    (sample,) = samples.read(lambda keys: {key: f"of {key}" for key in keys})
    log_asked(other, [sample, sample])
    found = run.client.search_traces([run.experiment], f"attributes.run_id = '{other.id}'")
    traces = {trace.data.spans[0].name: trace.data.spans for trace in found}
    assert set(traces) == {"goals 0", "goals 1"}
    root, first, second = traces["goals 1"]
    assert root.outputs["answers"][1] == {"verdict": "goals", "value": ["Reach it.", "1"]}
    assert "You walk." in first.inputs["messages"][-1]["content"]
    assert (second.outputs["content"], second.attributes["vote"]) == ("of key 1", "1")
    registered = run.client.get_prompt_version_by_alias("goals.suggest", "current")
    assert registered.template == question.prompt.text


def test_traces_that_do_not_arrive_are_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgements, "_trace", lambda *_: "tr-nowhere")
    other = Run(run.client, run.client.create_run(run.experiment).info.run_id, run.experiment)
    with pytest.raises(MlflowException, match="0 of 1 traces arrived"):
        log_pairs(other, [answered(0, "a", "b")], None, None)
