"""Answers of language-model agents: how they are constrained, read, and put together to proposals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from move_lists import GRID

from laurel.agents.actor import View
from laurel.agents.algorithms import initial_policy
from laurel.agents.language_model.answers import FORMS, Converter
from laurel.agents.language_model.chain import Reader, chain_settings
from laurel.agents.language_model.policy import LanguageModelPolicy
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.sequences import Sequences
from laurel.llm.causal import tokens_of
from laurel.llm.local_model import LocalModel
from laurel.llm.sampling import Sampled
from laurel.params.language_actor import LanguageActorParams

NAMES = ("up the hill", "up", "à gauche")


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(GRID)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "action"])
def test_constrained_answers_can_all_be_read(adapter: EnvAdapter, form: str) -> None:
    settings = LanguageActorParams.model_validate({"answer": form})
    policy = initial_policy(adapter, settings, 0, 0)
    assert isinstance(policy, LanguageModelPolicy)
    states = View(adapter, np.zeros((64, 1), dtype=np.int32)).text
    proposals = policy.propose(adapter, states, np.random.default_rng(0))
    converter = Converter(form, policy.names, policy.longest)
    assert all(
        proposal.moves is not None and converter.write(proposal.moves) == proposal.turns[0].answer
        for proposal in proposals
    )
    assert len({proposal.moves for proposal in proposals}) > 4


@pytest.mark.parametrize("form", FORMS)
def test_a_grammar_and_a_pattern_allow_every_answer_and_no_other(form: str) -> None:
    """Names of several tokens, one of them a prefix of another."""
    chain = chain_settings(LanguageActorParams())
    local = LanguageModelPolicy(1, "tiny", None, 0, "float32", NAMES, 3, chain, 1.0).local
    converter = Converter(form, NAMES, 3)
    lists = Sequences(len(NAMES), converter.longest)
    written = [converter.write(lists.moves(number)) for number in range(lists.count)]
    grammar, longest = converter.grammar(local)
    found, paths = [], [(0, [])]
    while paths:
        state, tokens = paths.pop()
        for token, after in grammar.edges[state].items():
            assert (after == grammar.END) == (token in local.stops)
            paths += [] if after == grammar.END else [(after, [*tokens, token])]
            found += [tokens] if after == grammar.END else []
    assert sorted(found) == sorted(tokens_of(local, answer) for answer in written)
    assert longest == max(map(len, found)) + 1
    assert all(re.fullmatch(converter.pattern.regex, answer) for answer in written)
    more = converter.form.begin + converter.form.between.join(["up"] * (converter.longest + 1)) + converter.form.end
    assert not re.fullmatch(converter.pattern.regex, more)
    assert converter.pattern.longest == max(len(answer.encode()) for answer in written)


@pytest.mark.parametrize(
    ("form", "answer", "moves"),
    [
        ("moves", "Left, up.", (0, 3)),
        ("moves", "left, north", None),
        ("moves", "left, left, left", None),
        ("code", "I go.\n```text\nup\nup\n```", (3, 3)),
        ("code", "```\nleft\n```\nNo, up:\n```\nup\n```", (3,)),
        ("code", "up", None),
        ("json", '{"explain": "It is above.", "moves": ["up"]}', (3,)),
        ("json", '{"moves": "up"}', None),
        ("json", '{"moves": [1]}', None),
        ("action", "down", (1,)),
        ("action", "down, down", None),
    ],
)
def test_answers_are_read_and_never_guessed(form: str, answer: str, moves: tuple[int, ...] | None) -> None:
    assert Converter(form, ("left", "down", "right", "up"), 2).read(answer) == moves


def test_answers_that_are_cut_off_have_no_more_tokens_than_the_limit(adapter: EnvAdapter) -> None:
    settings = LanguageActorParams(constrained=False, max_tokens=2, strategy="free")
    policy = initial_policy(adapter, settings, 0, 0)
    assert isinstance(policy, LanguageModelPolicy)
    states = View(adapter, np.zeros((64, 1), dtype=np.int32)).text
    proposals = policy.propose(adapter, states, np.random.default_rng(0))
    assert max(proposal.tokens for proposal in proposals) == 4, "of two answers"


def test_a_proposal_is_all_that_its_chain_read_and_wrote(adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both answers with the tokens that ended them, at the temperature of the settings."""
    menu = ("go down first", "go right first")
    settings = LanguageActorParams(
        strategy="menu", strategies=menu, goal="Find the exit.", prompt="instruct", temperature=0.7
    )
    policy = initial_policy(adapter, settings, 0, 0)
    assert isinstance(policy, LanguageModelPolicy)
    answers, temperatures = [tokens_of(policy.local, text) for text in (menu[1], "left")], []

    def drawn(local: LocalModel, prompts: list[list[int]], rng: object, *, temperature: float, **_: object) -> Sampled:
        temperatures.append(temperature)
        tokens = answers[len(temperatures) - 1]
        return Sampled([tokens] * len(prompts), np.full(len(prompts), -1.5, np.float32), [0] * len(prompts))

    monkeypatch.setattr("laurel.agents.language_model.chain.sample", drawn)
    states = View(adapter, np.zeros((2, 1), dtype=np.int32)).text
    proposal, _ = policy.propose(adapter, states, np.random.default_rng(0))
    assert (proposal.moves, proposal.log_prob, proposal.tokens) == ((0,), -3.0, sum(map(len, answers)) + 2)
    assert temperatures == [0.7, 0.7]
    reader = Reader(policy.local, adapter)
    (taught,) = policy.asks.taught(reader, states[:1], [(0,)], np.random.default_rng(0))
    for turns in (proposal.turns, taught.turns):
        assert turns[0].answer in menu
        assert [turn.answer for turn in turns[1:]] == ["left"]
        assert all("Find the exit." in turn.prompt for turn in turns)
        assert turns[0].answer in turns[1].prompt
