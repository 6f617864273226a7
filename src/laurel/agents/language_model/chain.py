"""From a state in words to moves: the prompts to a language model, in one call or two, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from numpy.random import Generator

from laurel.agents.language_model.answers import Converter, Moves, Pattern, literal
from laurel.envs.base import EnvAdapter
from laurel.feedback.prompt import Form, Prompt, load_prompt, parse_prompt, quote
from laurel.llm.causal import check_room, texts_of, tokens_of, written_prompt
from laurel.llm.chat import RefusedError
from laurel.llm.local_model import LocalModel
from laurel.llm.sampling import Grammar, Sampled, sample
from laurel.llm.served_sampling import ServedModel
from laurel.params.language_actor import LanguageActorParams

MOVES = Form("moves", slots=("state",), optional=("options", "answer_form", "strategy"), choices=(), schema="{}")
STRATEGY = Form("strategy", slots=("state",), optional=("options",), choices=(), schema="{}")


class Turn(NamedTuple):
    """A prompt and its answer."""

    prompt: str
    """The prompt in the model's chat template."""
    answer: str


class Proposal(NamedTuple):
    """A chain's moves for a state."""

    turns: tuple[Turn, ...]
    moves: Moves | None
    """The moves of the answer; None where it cannot be read."""
    log_prob: float
    """Log-probability of all turns together."""
    tokens: int
    """Tokens that were written, with those that ended answers."""


class Reader(NamedTuple):
    """A language model, and the environment whose states it reads."""

    local: LocalModel
    adapter: EnvAdapter
    server: ServedModel | None = None
    """Samples instead of `local`, if there is one."""

    def draw(
        self,
        prompts: Sequence[Sequence[int]],
        rng: Generator,
        temperature: float,
        *,
        max_tokens: int,
        constraint: tuple[Grammar, Pattern] | None,
    ) -> Sampled:
        """Draw an answer to each prompt, constrained to what may be written: by tokens here, by a regex on a server."""
        if self.server is None:
            grammar = constraint[0] if constraint else None
            return sample(self.local, prompts, rng, max_tokens=max_tokens, temperature=temperature, grammar=grammar)
        pattern = constraint[1] if constraint else None
        limit = pattern.longest + 1 if pattern else max_tokens
        regex = pattern.regex if pattern else None
        return self.server.sample(prompts, rng, max_tokens=limit, temperature=temperature, regex=regex)


class Chain(Protocol):
    """Turns states into moves by a language model."""

    def propose(self, reader: Reader, states: Sequence[str], rng: Generator, temperature: float) -> list[Proposal]:
        """Propose moves for each state; equal states are read once."""
        ...

    def taught(self, reader: Reader, states: Sequence[str], moves: Sequence[Moves], rng: Generator) -> list[Proposal]:
        """Return the answers with these moves that the model should imitate, except for strategies in free words."""
        ...


@dataclass(frozen=True)
class StoredPrompt:
    """A prompt as text and the goal that it states: what policies keep on disk, so that they need no other file."""

    text: str
    goal: str | None
    form: ClassVar[dict[str, Form]] = {"moves": MOVES, "strategy": STRATEGY}

    def prompt(self, kind: str) -> Prompt:
        """Return the prompt of a kind."""
        return parse_prompt(kind, f"the prompt {kind}", self.text, self.form[kind])


class MovesChain:
    """State → moves, in one call.

    Args:
        constrained: whether only readable answers may be written.
        max_tokens: of an answer that is not constrained.
    """

    def __init__(self, ask: StoredPrompt, converter: Converter, *, constrained: bool, max_tokens: int) -> None:
        self._prompt, self._goal = ask.prompt("moves"), ask.goal
        self.converter, self._constrained, self._max_tokens = converter, constrained, max_tokens
        self._grammar: tuple[Grammar, int] | None = None
        self._written: dict[tuple[str, str], tuple[str, list[int]]] = {}

    def asked(self, reader: Reader, state: str, strategy: str = "") -> tuple[str, list[int]]:
        """Return the prompt about a state and its tokens; errors as in `Prompt.messages`."""
        if (state, strategy) not in self._written:
            if len(self._written) > MOST_PROMPTS:
                self._written.clear()
            names = ", ".join(self.converter.names)
            texts = {"state": quote(state), "options": names, "answer_form": self.converter.form.what}
            texts["strategy"] = quote(strategy) if strategy else ""
            prompt = _rendered(reader, self._prompt, texts, self._goal)
            self._written[state, strategy] = prompt, tokens_of(reader.local, prompt)
        return self._written[state, strategy]

    def _held(self, reader: Reader) -> tuple[Grammar | None, int]:
        """Return the grammar of answers, None if they are not constrained, and how many tokens an answer may have.

        Raises:
            RefusedError: the tokenizer names no end token.
            AnnotationError: it does not split answers at their moves.
        """
        if reader.local.tokenizer.eos_token_id is None:
            raise RefusedError(
                f"The tokenizer of {reader.local.identity.model} names no end token (eos_token); answers end with it."
            )
        if not self._constrained:
            return None, self._max_tokens
        self._grammar = self._grammar or self.converter.grammar(reader.local)
        return self._grammar

    def propose(
        self,
        reader: Reader,
        states: Sequence[str],
        rng: Generator,
        temperature: float,
        strategies: Sequence[str] | None = None,
    ) -> list[Proposal]:
        prompts = [self.asked(reader, *pair) for pair in zip(states, strategies or [""] * len(states), strict=True)]
        grammar, limit = self._held(reader)
        constraint = None if grammar is None else (grammar, self.converter.pattern)
        inputs = [tokens for _, tokens in prompts]
        check_room(reader.local, inputs, limit)
        drawn = reader.draw(inputs, rng, temperature, max_tokens=limit, constraint=constraint)
        answers = texts_of(reader.local, drawn.tokens)
        moves = {answer: self.converter.read(answer) for answer in set(answers)}
        return [
            Proposal((Turn(prompt, answer),), moves[answer], log_prob, len(all_tokens))
            for (prompt, _), answer, log_prob, all_tokens in zip(
                prompts, answers, drawn.log_prob.tolist(), drawn.whole, strict=True
            )
        ]

    def taught(
        self,
        reader: Reader,
        states: Sequence[str],
        moves: Sequence[Moves],
        rng: Generator,
        strategies: Sequence[str] | None = None,
    ) -> list[Proposal]:
        proposals, (_, limit) = [], self._held(reader)
        for state, own_moves, strategy in zip(states, moves, strategies or [""] * len(states), strict=True):
            prompt, tokens = self.asked(reader, state, strategy)
            check_room(reader.local, [tokens], limit)
            proposals.append(Proposal((Turn(prompt, self.converter.write(own_moves)),), own_moves, float("nan"), 0))
        return proposals


class StrategyChain:
    """State → strategy → moves, in two calls.

    Args:
        menu: strategies to choose from; empty: the model writes its own.
        moves: the second call.
        max_tokens: of a strategy that the model writes itself.
    """

    def __init__(self, ask: StoredPrompt, menu: Sequence[str], moves: MovesChain, max_tokens: int) -> None:
        self._prompt, self._goal = ask.prompt("strategy"), ask.goal
        self._menu, self._moves, self._max_tokens = tuple(menu), moves, max_tokens
        self._options = "; ".join(menu)
        self._grammar: Grammar | None = None

    def _prompt_for(self, reader: Reader, state: str) -> str:
        texts = {"state": quote(state), "options": self._options}
        return _rendered(reader, self._prompt, texts, self._goal)

    def propose(self, reader: Reader, states: Sequence[str], rng: Generator, temperature: float) -> list[Proposal]:
        prompts = {state: self._prompt_for(reader, state) for state in dict.fromkeys(states)}
        constraint, limit = None, self._max_tokens
        if self._menu:
            if self._grammar is None:
                self._grammar = Grammar()
                for strategy in sorted(self._menu, key=len):
                    self._grammar.end(self._grammar.add(tokens_of(reader.local, strategy)), reader.local.stops)
            limit = max(len(tokens_of(reader.local, strategy)) for strategy in self._menu) + 1
            longest = max(len(strategy.encode()) for strategy in self._menu)
            constraint = self._grammar, Pattern("|".join(map(literal, self._menu)), longest)
        tokens_about = {state: tokens_of(reader.local, prompt) for state, prompt in prompts.items()}
        inputs = [tokens_about[state] for state in states]
        check_room(reader.local, inputs, limit)
        drawn = reader.draw(inputs, rng, temperature, max_tokens=limit, constraint=constraint)
        named = [answer.strip() for answer in texts_of(reader.local, drawn.tokens)]
        moved = self._moves.propose(reader, states, rng, temperature, named)
        return [
            Proposal(
                (Turn(prompts[state], strategy), *after.turns),
                after.moves,
                log_prob + after.log_prob,
                len(all_tokens) + after.tokens,
            )
            for state, strategy, all_tokens, log_prob, after in zip(
                states, named, drawn.whole, drawn.log_prob.tolist(), moved, strict=True
            )
        ]

    def taught(self, reader: Reader, states: Sequence[str], moves: Sequence[Moves], rng: Generator) -> list[Proposal]:
        if not self._menu:  # there is no list to choose its text from
            named = [proposal.turns[0].answer for proposal in self.propose(reader, states, rng, 1.0)]
        else:
            named = [self._menu[draw] for draw in rng.integers(0, len(self._menu), len(states)).tolist()]
        proposals = self._moves.taught(reader, states, moves, rng, named)
        if not self._menu:
            return proposals
        return [
            proposal._replace(turns=(Turn(self._prompt_for(reader, state), strategy), *proposal.turns))
            for state, strategy, proposal in zip(states, named, proposals, strict=True)
        ]


def chain_settings(settings: LanguageActorParams) -> dict[str, Any]:
    """Return the settings that `make_chain` takes, as JSON values.

    Raises:
        PromptError: there is no such prompt.
    """
    options: dict[str, Any] = {
        "moves": load_prompt(settings.prompt_name, MOVES).text,
        "goal": settings.goal,
        "answer": settings.answer,
        "constrained": settings.constrained,
        "max_tokens": settings.max_tokens,
    }
    if settings.strategy != "none":
        name = settings.prompt_name if settings.prompt_name in STRATEGY.packaged else "instruct"
        options |= {"strategy": load_prompt(name, STRATEGY).text, "strategies": list(settings.strategies)}
    return options


def make_chain(settings: Mapping[str, Any], names: Sequence[str], longest: int) -> Chain:
    """Make the chain that settings describe."""
    goal, limit = settings["goal"], settings["max_tokens"]
    converter = Converter(settings["answer"], names, longest)
    moves = MovesChain(
        StoredPrompt(settings["moves"], goal), converter, constrained=settings["constrained"], max_tokens=limit
    )
    if "strategy" not in settings:
        return moves
    return StrategyChain(StoredPrompt(settings["strategy"], goal), settings["strategies"], moves, limit)


MOST_PROMPTS = 50_000
"""Size of the prompt cache."""


def _rendered(reader: Reader, prompt: Prompt, texts: dict[str, str], goal: str | None) -> str:
    """Return the text that the model reads."""
    *system, user = prompt.messages(texts, reader.adapter, goal)
    return written_prompt(reader.local, user.content.strip(), system[0].content.strip() if system else None)
