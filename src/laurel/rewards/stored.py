"""The rewards of a run: their directories, making and loading them, and summing them to the reward of an arm.

DIR/rewards.json          name -> settings, and the seeds that it was made for (null: one for all)
DIR/NAME/                 the artefact of a reward, whose content its method defines
DIR/NAME/seed-N/          if made separately for each agent's seed
DIR/NAME/set-N/           if learned from several label sets, for each but the first

A copy of an artefact elsewhere, e.g. in MLflow, has a file reward.json with its entry of rewards.json and its
environment.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import checked_manifest
from laurel.data.preferences import set_of
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, ParamsError
from laurel.params import CaptionParams, EnvParams, parse_sections
from laurel.params.annotation import MAIN
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import RewardParams, judge_of, method_of, resolved, settings_of
from laurel.pool import prepare_worker
from laurel.rewards.base import Reward, require_reward
from laurel.rewards.functions import WeightedSum, limit
from laurel.rewards.method import QUALITY, AgentsReward, Inputs, LearningMethod, PayTable, Program, RewardContext
from laurel.seeding import seed_folder

INDEX = "rewards.json"
CARD = "reward.json"
OWN = "reward"
"""Folder of an agent with the rewards that were learned during its training."""
STAGE = "train-reward"


@dataclass(frozen=True)
class StoredRewards:
    """Rewards in a directory."""

    path: Path
    settings: Mapping[str, RewardParams]
    seeds: Mapping[str, Sequence[int] | None]
    sets: Mapping[str, int]
    """Number of label sets of each; an agent with seed s uses set number s modulo this."""

    @classmethod
    def read(cls, path: Path) -> StoredRewards:
        """Read the list of rewards.

        Raises:
            DataError: the list is missing or damaged.
        """
        if not (path / INDEX).exists():
            raise DataError(f"{path}: has no {INDEX}. Run laurel train-reward again.")
        content = read_json(path / INDEX)
        try:
            settings = {name: entry["settings"] for name, entry in content.items()}
            seeds = {name: entry["seeds"] for name, entry in content.items()}
            return cls(
                path, resolved(settings, ()), seeds, {name: entry.get("sets", 1) for name, entry in content.items()}
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(f"{path / INDEX}: is damaged. Run laurel train-reward again.") from None

    @staticmethod
    def write(path: Path, rewards: Mapping[str, tuple[RewardParams, Sequence[int] | None, int]]) -> None:
        """Write the list of rewards, each with its seeds and label sets."""
        content: dict[str, Any] = {
            name: {
                "settings": settings.model_dump(mode="json"),
                "seeds": seeds and list(seeds),
                **({"sets": sets} if sets > 1 else {}),
            }
            for name, (settings, seeds, sets) in rewards.items()
        }
        write_json(path / INDEX, content)

    def load(self, name: str, seed: int, adapter: EnvAdapter, quantile: float) -> Reward:
        """Load a reward; `seed` selects among rewards made separately for each seed.

        Raises:
            DataError: it is missing or damaged.
        """
        place, settings = self.place(name, seed), self.settings[name]
        return method_of(settings).load(place, adapter, quantile)

    def place(self, name: str, seed: int) -> Path:
        """Return the folder of a reward's artefact, for an agent's seed; errors as in `load`."""
        seeds = self.seeds.get(name, ())
        if seeds is not None and seed not in seeds:
            description = name if name not in self.seeds else f"{name} for seed {seed}"
            remedy = f"It has the seeds {', '.join(map(str, seeds))}: name one of them, or run" if seeds else "Run"
            raise DataError(f"{self.path}: holds no reward {description}. {remedy} laurel train-reward again.")
        return self.path / name / seed_folder(seed) if seeds is not None else self._of_set(name, seed)

    def table(self, name: str, quantile: float, seed: int = 0) -> PayTable | None:
        """Return a reward's table for an agent's seed; None if it has none, or one for each seed."""
        settings = self.settings[name]
        if self.seeds[name] is not None:
            return None
        return method_of(settings).table(self._of_set(name, seed), quantile)

    def qualities(self) -> dict[str, list[dict[str, Any]]]:
        """Return name -> the quality of a reward for each of its label sets; rewards without quality are left out.

        Raises:
            DataError: one cannot be read, or is not a mapping.
        """
        by_reward = {}
        for name in self.settings:
            files = [set_of(self.path / name, number) / QUALITY for number in range(self.sets[name])]
            if files[0].exists():
                by_reward[name] = sets = [read_json(file) for file in files]
                if not all(isinstance(quality, dict) for quality in sets):
                    raise DataError(f"{files[0]}: is not a mapping, as the quality of a reward is. Fix its method.")
        return by_reward

    def set_of_seed(self, name: str, seed: int) -> int:
        """Return the number of the label set for an agent's seed."""
        return seed % self.sets[name]

    def label_set_tag(self, name: str, seed: int) -> dict[str, str]:
        """Return the tag, in a registry, of a reward's version for an agent's seed; none where it has one label set."""
        return {"label_set": str(self.set_of_seed(name, seed))} if self.sets[name] > 1 else {}

    def reward_owner(self, names: Iterable[str], seeds: Sequence[int]) -> str:
        """Name the owner of the rewards of an arm's first seed, a label set or that seed; empty if all seeds are paid
        the same.
        """
        owner = ""
        for name in names if len(seeds) > 1 else ():
            if self.seeds[name] is not None or isinstance(method_of(self.settings[name]), LearningMethod):
                return f"seed {seeds[0]}"
            if len({self.set_of_seed(name, seed) for seed in seeds}) > 1:
                owner = f"label set {self.set_of_seed(name, seeds[0])}"
        return owner

    def _of_set(self, name: str, seed: int) -> Path:
        return set_of(self.path / name, self.set_of_seed(name, seed))

    def programs(self) -> dict[str, Program]:
        """Return the rewards that are code, by name; errors as in `load`."""
        by_reward = {name: method_of(settings).program(self.path / name) for name, settings in self.settings.items()}
        return {name: program for name, program in by_reward.items() if program is not None}

    def simulated(self) -> dict[str, str]:
        """Return the rewards made by a simulated judge instead of a language model: name -> judge."""
        return {name: str(sets[0]["judge"]) for name, sets in self.qualities().items() if sets[0].get("simulated")}


@dataclass(frozen=True)
class Described:
    """A stored reward, with everything needed to use it anywhere."""

    place: Path
    """The artefact."""
    name: str
    settings: RewardParams
    env: EnvParams
    """The environment that it was made for."""
    with_action: bool
    """Whether its captions name the action."""
    judge: str
    """The judge whose preferences it was made from, if from any: `main`, or one of annotate.judges."""

    def card(self) -> dict[str, Any]:
        """Return the content of CARD, for a copy of the artefact."""
        return {
            "rewards": {self.name: self.settings.model_dump(mode="json")},
            "env": self.env.model_dump(mode="json"),
            "caption": {"with_action": self.with_action},
            "judge": self.judge,
        }

    @classmethod
    def of(cls, place: Path, card: Mapping[str, Any], source: Path) -> Described:
        """Describe an artefact as `card` does.

        Raises:
            DataError: `card`, which `source` holds, does not describe a reward.
        """
        try:
            sections = parse_sections({"env": card["env"], "caption": card["caption"]}, str(source))
            ((name, content),) = card["rewards"].items()
            settings = settings_of(name, content)
        except ParamsError as error:
            raise ParamsError(f"{source}: {str(error).removeprefix(f'{source}: ')}") from None
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(f"{source}: does not describe a reward. Run laurel {STAGE} again.") from None
        caption: CaptionParams = sections["caption"]
        judge = str(card.get("judge", MAIN))  # earlier versions did not name it
        return cls(place, name, settings, sections["env"], caption.with_action, judge)


def described(path: Path, seed: int | None = None) -> Described:
    """Describe the reward in a folder.

    Args:
        path: an artefact, a copy of one, or the output of train-reward where that holds a single method's reward.
        seed: of a reward that is made separately for each seed; None: the first.

    Raises:
        DataError: it is not a reward, or damaged.
    """
    if (path / CARD).exists():
        return Described.of(path, read_json(path / CARD), path / CARD)
    folder = next(
        (parent for parent in (path, *list(path.resolve().parents)[:2]) if (parent / INDEX).exists()),
        None,
    )
    if folder is None:
        raise DataError(
            f"{path}: is not a reward. Name one that laurel {STAGE} wrote, such as data/reward/preference. A copy of "
            f"that folder lacks {INDEX}, which lies above it: copy data/reward as a whole, or what `laurel export hub "
            "--reward data/reward/preference` writes as hub/model."
        )
    params, stored = checked_manifest(folder, STAGE)["params"], StoredRewards.read(folder)
    parts = path.resolve().relative_to(folder.resolve()).parts
    if not parts:
        if not stored.settings:
            raise DataError(f"{path}: holds no reward, as no arm of that run has one besides the environment's.")
        methods = [name for name, settings in stored.settings.items() if method_of(settings).role == "method"]
        if len(methods) != 1:
            raise DataError(f"{path}: holds several rewards. Name the folder of one: {', '.join(stored.settings)}.")
        parts = (methods[0],)
    name, *part = parts
    seeds = stored.seeds.get(name)
    place = path if part else stored.place(name, (seeds[0] if seeds else 0) if seed is None else seed)
    sections = {"rewards": {name: params["rewards"].get(name)}, "env": params["env"], "caption": params["caption"]}
    if name in stored.settings:
        sections["judge"] = judge_of(name, stored.settings) or MAIN
    return Described.of(place, sections, folder / INDEX)


def reward_of(arm: Arm, seed: int, context: RewardContext, adapter: EnvAdapter, inputs: Inputs) -> Reward | None:
    """Return an arm's reward besides the environment's; None where it has none.

    A reward that is made separately for each seed is made here if train-reward did not know the seed, as in a search. A
    reward that is learned during its agent's training is new, or in its final state if `inputs.agents` is given.

    Raises:
        DataError: a reward is missing or damaged.
    """
    if not arm.reward:
        return None
    stored = StoredRewards.read(inputs.reward)

    def load(name: str) -> Reward:
        method = method_of(stored.settings[name]) if name in stored.settings else None
        if isinstance(method, LearningMethod):
            agent_reward = AgentsReward(name, arm.name, seed, arm.shaping.quantile, inputs.judge)
            if inputs.agents is None:
                return method.learning_reward(agent_reward, context, adapter)
            trained = inputs.agents / arm.name / seed_folder(seed)  # the reward is final
            return method.load(own_reward(trained, name), adapter, agent_reward.quantile)
        seeds = stored.seeds.get(name)
        if seeds is None or seed in seeds:
            return stored.load(name, seed, adapter, arm.shaping.quantile)
        settings = stored.settings[name]
        its_inputs = context.inputs_of(settings, seed % context.label_sets(settings), inputs)
        with ExitStack() as files:
            place = Path(files.enter_context(TemporaryDirectory(prefix="laurel-")))
            method_of(settings).fit(context, its_inputs, adapter, seed, place)
            reward: Reward = method_of(settings).load(place, adapter, arm.shaping.quantile)
            weakref.finalize(reward, files.pop_all().close)  # some rewards read their files when first needed
            return reward

    parts: list[tuple[Reward, float]] = [
        (require_reward(name, load(name)), weight) for name, weight in sorted(arm.reward.items())
    ]
    combined = parts[0][0] if len(parts) == 1 and parts[0][1] == 1 else WeightedSum(parts)
    limit(combined, context.annotate.budget)
    return combined


def own_reward(agent: Path, name: str) -> Path:
    """Return the directory of a reward that was learned during an agent's training."""
    return agent / OWN / name


def make_reward(
    context: RewardContext,
    name: str,
    seed: int,
    inputs: Inputs,
    place: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Write a reward into a directory; runs in a separate process."""
    prepare_worker()
    place.mkdir(parents=True)
    settings = context.rewards[name]
    method_of(settings).fit(context, inputs, context.adapter, seed, place)
    advance(1)
