"""Pays a goal that the annotator suggested, once in an episode, where a caption reads like it.

After ELLM (Du et al. 2023, arXiv 2302.06692): a goal is reached where the similarity of the caption's embedding with
the goal's is at least a threshold, and pays that similarity. A goal counts from the step after it was suggested, and
once in an episode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.params.rewards import RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.method import QUALITY, Inputs, Method, RewardContext


class GoalsParams(RewardParams):
    """Settings of goals."""

    context: Literal["environment", "caption"] = "environment"
    """When goals are suggested. environment: once, for every episode from its beginning; caption: after each distinct
    caption, too, from the next step on. Annotators other than chat models suggest the same goals in any case."""
    threshold: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.9
    """Cosine similarity from which on a caption reads like a goal."""
    form: Literal["open", "closed"] = "open"
    """How a chat model suggests them. open: it writes goals of its own; closed: it is asked of each caption that was
    collected, or that the environment lists, whether that is a sensible goal. Other annotators choose among them."""
    least: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.5
    """In the closed form, the probability above which a caption is a goal."""
    prompt: str | None = None
    """Prompt of a chat model; one of `laurel prompt list`, or a .jinja file of your own; null: `suggest` in the open
    form, `yes_no` in the closed one."""
    goal: str | None = None
    """The task that a chat model is given; null: the environment's own goal."""


class Goals(Method[GoalsParams]):
    """Keeps the goals, the captions they were suggested after, and the similarity of each caption to each goal."""

    kind = "goals"
    summary = "goals that the annotator suggested, each once in an episode"
    Settings = GoalsParams
    asks = True
    reads = ("captions",)

    def check(self, params: RewardContext, adapter: EnvAdapter) -> str | None:
        from laurel.rewards.goals import check

        check(self.settings, params, adapter)
        return None

    def estimate(self, params: RewardContext, adapter: EnvAdapter, captions: Path) -> str | None:
        from laurel.data.captions import read_vocabulary
        from laurel.rewards.goals import estimated

        return estimated(read_vocabulary(captions).texts, self.settings, params, adapter)

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.captions import read_vocabulary
        from laurel.rewards.goals import GoalTable, suggested

        texts = list(read_vocabulary(inputs.captions).texts)
        judge, simulated, found = suggested(texts, self.settings, params, adapter)
        table = GoalTable.of(found, texts, params.annotate.embedding.model)
        table.save(place)
        quality = table.quality(self.settings.threshold, adapter)
        write_json(place / QUALITY, {"judge": judge, "simulated": simulated, **quality})

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.goals import GoalReward, GoalTable

        return GoalReward(GoalTable.load(place), self.settings.threshold)


METHOD = Goals
