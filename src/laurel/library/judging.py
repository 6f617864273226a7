"""Labels of pairs of any texts, without an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.annotator import Pair, judge
from laurel.feedback.annotator_kind import check_annotator, kind_of
from laurel.library.tables import Table
from laurel.params import parse_sections
from laurel.params.annotation import AnnotateParams

COLUMNS = ("status", "p_first", "votes", "swap_consistent")


def annotate(
    pairs: Iterable[tuple[str, str]],
    annotator: str = "embedding",
    *,
    goal: str,
    anti_goal: str | None = None,
    description: str = "",
    seed: int = 0,
    **settings: Any,
) -> Table:
    """Ask an annotator which of two texts is better, for each pair.

    Answers of chat models are cached in responses/responses.db of the working directory, so none is paid for twice.

    Args:
        pairs: (first, second).
        annotator: as `annotate.annotator` in params.yaml: embedding, openai, huggingface, ensemble, or a plug-in's.
        goal: description of a good text, or the aim.
        anti_goal: what a useless text reads like; None: "Nothing useful happens."
        description: the task, for a chat model.
        seed: for everything drawn at random.
        settings: other entries of the section `annotate`, e.g. openai={"model": "gpt-5-mini"}, budget={"max_cost": 1}.

    Returns:
        A row per pair: first, second, status (`laurel.data.preferences.STATUSES`; unasked where the budget did not
        allow it), p_first (probability that the first is better, NaN without a label), votes, swap_consistent and
        annotator.

    Raises:
        AnnotationError: the model cannot be loaded or asked.
        ParamsError: a setting is not allowed, or a pair is not two texts.
    """
    if isinstance(pairs, str | Mapping | pd.DataFrame) or not isinstance(pairs, Iterable):
        raise ParamsError(
            f"laurel.annotate: pairs is a {type(pairs).__name__}, but must be rows of two texts, such as "
            "[(first, second)], or of a DataFrame: frame[['first', 'second']].to_numpy()."
        )
    given = [_pair(number, pair) for number, pair in enumerate(pairs)]
    content = {"n_pairs": max(len(given), 1), **settings, "annotator": annotator}
    params: AnnotateParams = parse_sections({"annotate": content}, "laurel.annotate")["annotate"]
    kind = kind_of(params)
    task = _Task(goal, anti_goal, description)
    check_annotator(kind, task)
    kind.check_here()
    asked = kind.make(task, seed, {text for pair in given for text in pair})
    asked.prepare([pair for pair in given if pair.first != pair.second])
    rows = [
        {**pair._asdict(), **{name: getattr(judgement, name) for name in COLUMNS}, "annotator": asked.name}
        for pair, judgement in zip(given, judge(asked, given), strict=True)
    ]
    return Table(rows, columns=["first", "second", *COLUMNS, "annotator"]).astype({"p_first": "float64"})


def _pair(number: int, pair: Any) -> Pair:
    if (
        not isinstance(pair, tuple | list | np.ndarray)
        or len(pair) != 2
        or not all(isinstance(text, str) for text in pair)
    ):
        raise ParamsError(f"laurel.annotate: pair {number} is {pair!r:.80}, but must be two texts: (first, second).")
    return Pair(*pair)


class _Task(EnvAdapter):
    """A task defined only by its description."""

    def __init__(self, goal: str, anti_goal: str | None, description: str) -> None:
        super().__init__("the texts", gym.spaces.Discrete(1), gym.spaces.Discrete(1))
        self.goal, self.description = goal, description
        self.anti_goal = anti_goal or self.anti_goal
