"""The key of an answer changes exactly if the request changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.envs import adapter_for
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.keys import QuestionKeys
from laurel.feedback.prompt import LONGEST, Prompt
from laurel.feedback.questions.pair import FORM, PairQuestion, load_prompt
from laurel.llm.chat import Identity, Sampling
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams

TEMPLATE = """---
answer: {answer}
---
{{% block system %}}{system}{{% endblock %}}
{{% block user %}}
Task: {{{{ description }}}}
{{% if "door" in {{{{first}}}} %}}Aim: {{{{ goal }}}}{{% endif %}}
1: {{{{ first }}}} 2: {{{{ second }}}}
{{% endblock %}}
{{% block follow_up %}}{follow_up}{{% endblock %}}
""".replace("{{{{first}}}}", "first")


IDENTITY, SAMPLING = Identity("m", "r", "http://e"), Sampling()


@dataclass(frozen=True)
class Run:
    """All that the answers of a run depend on."""

    prompt: Prompt
    adapter: Any
    goal: str | None = None
    identity: Identity = IDENTITY
    sampling: Sampling = SAMPLING
    scored: bool = False

    @property
    def question(self) -> PairQuestion:
        return PairQuestion(self.prompt, self.adapter, self.goal, scored=self.scored)

    @property
    def keys(self) -> QuestionKeys[Pair]:
        return QuestionKeys(self.identity, self.question, self.sampling)

    def sent(self, first: str, second: str, vote: int, unread: str | None = None) -> str:
        """Render a question; return everything that the server receives, and the server."""
        messages = self.question.messages(Pair(first, second))
        if unread is not None:
            messages = self.prompt.follow_up(messages, unread)
        sampling = replace(self.sampling, seed=vote or None)
        content = [asdict(message) for message in messages], asdict(sampling), self.question.choices, self.prompt.schema
        return json.dumps([*content, asdict(self.identity)])


def adapter(description: str = "A maze.", goal: str = "You reach the door.", anti_goal: str = "Nothing.") -> Any:
    return SimpleNamespace(
        description=description,
        goal=goal,
        anti_goal=anti_goal,
        goals={},
        example=None,
        with_action=True,
        env_id="Maze-v0",
    )


def prompt(path: Path, answer: str = "json", system: str = "You judge.", follow_up: str = "Which?") -> Prompt:
    path.mkdir(exist_ok=True)
    file = path / f"p{len(list(path.iterdir()))}.jinja"
    file.write_text(TEMPLATE.format(answer=answer, system=system, follow_up=follow_up))
    return load_prompt(file)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    run = Run(prompt(tmp_path), adapter())
    return [
        run,
        replace(run, prompt=prompt(tmp_path, answer="choice")),
        replace(run, prompt=prompt(tmp_path, system="You judge well.")),
        replace(run, adapter=adapter(description="A pond.")),
        replace(run, adapter=adapter(goal="You leave.")),
        replace(run, goal="You keep the door shut."),
        replace(run, identity=Identity("n", "r", "http://e")),
        replace(run, identity=Identity("m", "s", "http://e")),
        replace(run, identity=Identity("m", "r", "http://f")),
        replace(run, sampling=Sampling(temperature=0.5)),
        replace(run, sampling=Sampling(top_p=0.5)),
        replace(run, sampling=Sampling(max_tokens=9)),
        replace(run, prompt=prompt(tmp_path, answer="choice"), scored=True),
    ]


CAPTIONS = ("You open the door.", "", "é\ud800", "a", "1:a", "x" * (LONGEST + 1))


def asked(runs: list[Run]) -> Iterator[tuple[str, str]]:
    """Yield what is sent, and its key."""
    for run in runs:
        keys = run.keys
        for first, second, vote in product(CAPTIONS, CAPTIONS, (0, 1)):
            key = keys.of(Pair(first, second), 0, vote)
            yield run.sent(first, second, vote), key
            for unread in ("Hm.", "", "Hm"):
                yield run.sent(first, second, vote, unread), keys.follow_up(key, unread)


def test_a_key_identifies_one_request(runs: list[Run]) -> None:
    by_key: dict[str, str] = {}
    for sent, key in asked(runs):
        assert by_key.setdefault(key, sent) == sent
    assert len(by_key) == len(runs) * len(CAPTIONS) ** 2 * 2 * 4, "each run's keys are its own"


def test_keys_are_the_same_in_a_new_run(runs: list[Run]) -> None:
    again = [Run(**{field: getattr(run, field) for field in run.__dataclass_fields__}) for run in runs]
    assert list(asked(runs[:3])) == list(asked(again[:3]))


def test_stored_answers_keep_their_keys(tmp_path: Path) -> None:
    """The schema was rewritten since; it allows the same answers."""
    assert Run(prompt(tmp_path), adapter()).keys.of(Pair("a", "b")) == "7134fe8e3a2fcb64fdddbd366b6e5dc7"


def test_words_that_a_prompt_does_not_use_do_not_change_keys(tmp_path: Path) -> None:
    run = Run(prompt(tmp_path), adapter())
    other = replace(run, adapter=adapter(anti_goal="You drown."))
    assert run.sent("a", "b", 0) == other.sent("a", "b", 0)
    assert run.keys.of(Pair("a", "b")) == other.keys.of(Pair("a", "b"))


def test_conditions_of_a_template_on_captions_change_keys(tmp_path: Path) -> None:
    """The prompt states the goal only if a caption mentions a door, which no sample caption is certain to reveal."""
    run = Run(prompt(tmp_path), adapter())
    other = replace(run, adapter=adapter(goal="You leave."))
    assert run.sent("a", "b", 0) == other.sent("a", "b", 0)
    assert run.sent("the door", "b", 0) != other.sent("the door", "b", 0)
    assert run.keys.of(Pair("the door", "b")) != other.keys.of(Pair("the door", "b"))


def test_the_way_captions_are_quoted_changes_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(prompt(tmp_path), adapter())
    before = run.keys.of(Pair("a", "b"))
    for name, value in (("LONGEST", LONGEST - 1), ("quote", json.dumps), ("SILENCE", "…")):
        with monkeypatch.context() as changed:
            changed.setattr(f"laurel.feedback.{'questions.pair' if name == 'quote' else 'prompt'}.{name}", value)
            assert run.keys.of(Pair("a", "b")) != before, name


@given(st.lists(st.tuples(st.text(st.characters(codec=None)), st.text(st.characters(codec=None))), unique=True))
def test_pairs_are_distinguished(pairs: list[tuple[str, str]]) -> None:
    keys = QuestionKeys(Identity("m"), PairQuestion(load_prompt("motif"), adapter()), Sampling())
    made = {keys.of(Pair(first, second), 0, vote) for first, second in pairs for vote in (0, 1)}
    assert len(made) == 2 * len(pairs)


@pytest.mark.parametrize(("mode", "keys"), [("score", 1), ("generate", 3)])
def test_settings_of_generation_do_not_change_the_keys_of_scores(mode: str, keys: int) -> None:
    adapter, found = adapter_for(EnvParams(id="CartPole-v1")), set()
    for changed in ({}, {"max_tokens": 1024}, {"temperature": 0.7}):
        judge = {"annotator": "huggingface", "huggingface": {"mode": mode, **changed}}
        kind = kind_of(AnnotateParams.model_validate({**judge, "language_model": {"prompt": "concise"}}))
        assert isinstance(kind, ChatAnnotator)
        keys_of = QuestionKeys(Identity("m"), kind.pair_question(adapter), kind.sampling)
        found.add(keys_of.of(Pair("a", "b")))
    assert len(found) == keys


@pytest.mark.parametrize("name", FORM.packaged)
def test_every_packaged_prompt_has_keys(name: str) -> None:
    real = adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"), with_action=True)
    keys = QuestionKeys(Identity("m"), PairQuestion(load_prompt(name), real, scored=False), Sampling())
    assert keys.of(Pair("a", "b")) != keys.of(Pair("b", "a")) == keys.of(Pair("a", "b"), 1)
