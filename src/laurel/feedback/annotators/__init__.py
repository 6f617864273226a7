"""Annotators, a file each; see `laurel.feedback.annotator_kind`. Each is imported on first use."""

from __future__ import annotations

from collections.abc import Collection

from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Annotator
from laurel.feedback.annotator_kind import kind_of
from laurel.llm.budget import Budget
from laurel.params.annotation import AnnotateParams


def make_annotator(
    params: AnnotateParams,
    adapter: EnvAdapter,
    seed: int,
    captions: Collection[str] = (),
    *,
    budget: Budget | None = None,
) -> Annotator:
    """Make the annotator that the params name, ready to be asked; arguments and errors as in `AnnotatorKind.make`."""
    return kind_of(params).make(adapter, seed, captions, budget=budget)
