"""Silences training libraries, whose messages and progress bars would disturb Laurel's own output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_alone() -> Iterator[None]:
    """Let transformers log only errors."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@contextmanager
def no_bars() -> Iterator[None]:
    """Disable the progress bar of TRL's reference probabilities, for which it has no setting."""
    previous = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = previous
