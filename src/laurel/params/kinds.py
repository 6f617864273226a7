"""Groups of plug-ins whose kinds parameters name; what a kind is, its own package says."""

from __future__ import annotations

from typing import Any

from laurel.plugins import Plugins

ANNOTATORS = Plugins[Any]("annotator", group="laurel.annotators", package="laurel.feedback.annotators")
ALGORITHMS = Plugins[Any]("algorithm", group="laurel.algorithms", package="laurel.agents.algorithms")
ACTORS = Plugins[Any]("actor", group="laurel.actors", package="laurel.agents.actors")


def known_actor(kind: str) -> str:
    """Refuse an actor that is neither one of ours nor another package's."""
    if kind not in ACTORS.kinds():
        raise ValueError(f'is "{kind}", but must be one of {", ".join(ACTORS.kinds())}.')
    return kind
