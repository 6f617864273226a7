"""Laurel: language-model feedback as reward for reinforcement learning, end to end.

The public names are in `__all__`; each is imported on first use.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "RewardVecEnv": "laurel.library.vec_env",
    "RewardVectorWrapper": "laurel.library.vector",
    "RewardWrapper": "laurel.library.wrapper",
    "annotate": "laurel.library.judging",
    "load_agent": "laurel.library.agent",
    "load_reward": "laurel.library.reward",
    "read": "laurel.library.tables",
    "text_environment": "laurel.library.text_environment",
}
"""Name -> module; __init__.pyi says the same to type checkers."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public are: {', '.join(_HOMES)}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from laurel.extras import missing

        raise missing(error) or error from None


def __dir__() -> list[str]:
    return sorted(__all__)
