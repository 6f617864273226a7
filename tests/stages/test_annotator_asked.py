"""The annotator that a report names is one that was asked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from laurel.params import parse_params
from laurel.stages.evaluate import annotator_asked
from minimal_params import MINIMAL


@pytest.mark.parametrize(
    ("arms", "rewards", "named"),
    [
        (["extrinsic", "random_policy"], {}, None),
        ({"extrinsic": {}, "new": {"reward": "novelty"}}, {}, None),
        ({"scored": {"reward": "score"}}, {"score": {}}, "embedding"),
        ({"ends": {"reward": "outcome"}}, {"outcome": {}}, "embedding"),
        ({"ends": {"reward": "outcome"}}, {"outcome": {"judge": "truth"}}, None),
        ({"ends": {"reward": "outcome"}}, {"outcome": {"judge": "supervised", "labels": 10}}, None),
    ],
)
def test_no_annotator_is_named_if_none_was_asked(arms: Any, rewards: Any, named: str | None) -> None:
    params = parse_params({**MINIMAL, "arms": arms, "rewards": rewards}, "params.yaml")
    sections = {name: getattr(params, name) for name in ("annotate", "arms", "rewards", "shaping", "agent")}
    assert annotator_asked(cast(Any, sections)) == named
