from __future__ import annotations

import pytest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.llm.encoder import PACKAGED, SentenceEncoder, load_encoder
from laurel.params import EnvParams


@pytest.fixture(scope="session")
def encoder() -> SentenceEncoder:
    return load_encoder(PACKAGED)


@pytest.fixture(scope="session")
def door_key() -> EnvAdapter:
    return adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0"))
