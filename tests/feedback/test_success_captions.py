"""What the packaged encoder makes of success, with each environment's own goal: known answers for the default judge."""

from __future__ import annotations

import re

import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.captioner import Captioner
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.llm.encoder import SentenceEncoder
from laurel.params import EnvParams
from laurel.params.judges import EmbeddingParams

FIRST = (
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-MultiRoom-N2-S4-v0",
    "MiniGrid-SimpleCrossingS9N1-v0",
    "MiniGrid-LavaCrossingS9N1-v0",
    "MiniGrid-LavaGapS5-v0",
    "MiniGrid-DistShift1-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",
    "MiniGrid-Unlock-v0",
    "MiniGrid-UnlockPickup-v0",
    "MiniGrid-BlockedUnlockPickup-v0",
    "MiniGrid-RedBlueDoors-6x6-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "MiniGrid-ObstructedMaze-1Dl-v0",
    "MiniGrid-LockedRoom-v0",
    "MiniGrid-Fetch-5x5-N2-v0",
    "MiniGrid-GoToDoor-5x5-v0",
    "MiniGrid-GoToObject-6x6-N2-v0",
    "MiniGrid-PutNear-6x6-N2-v0",
    "MiniGrid-MemoryS7-v0",
    "BabyAI-GoToRedBall-v0",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "Taxi-v4",
    "MountainCar-v0",
    "Acrobot-v1",
    "LunarLander-v3",
)
KINDS_ABOVE = dict.fromkeys(FIRST, 0) | {"MiniGrid-DoorKey-8x8-v0": 1}
"""Kinds of caption, whatever the colour, that may rank above success. In DoorKey, whose goal is MiniGrid's mission
word for word, "You unlock the yellow door with the key." shares more of its words."""


def kind(caption: str) -> str:
    return re.sub(r"\b(red|green|blue|purple|yellow|grey)\b", "*", caption)


@pytest.fixture(autouse=True)
def _loaded_once(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laurel.feedback.annotators.embedding.load_encoder", lambda *_: encoder)


@pytest.mark.parametrize(("env_id", "allowed"), KINDS_ABOVE.items())
def test_success_ranks_first(env_id: str, allowed: int) -> None:
    adapter = adapter_for(EnvParams(id=env_id))
    captions = Captioner(adapter, enumerate_events=True).texts
    utility = EmbeddingAnnotator.load(EmbeddingParams(), adapter).utility(captions)
    success = np.array([adapter.says_success(caption) for caption in captions])
    assert success.any()
    best: dict[str, float] = {}
    for caption, value in zip(captions, utility.tolist(), strict=True):
        best[kind(caption)] = max(best.get(kind(caption), value), value)
    worst = min(value for text, value in best.items() if adapter.says_success(text))
    above = [text for text, value in best.items() if not adapter.says_success(text) and value > worst]
    assert len(above) <= allowed, above


def test_a_winning_hand_mostly_beats_a_hand() -> None:
    """Not always: the encoder does not read numbers, and 900 captions hold little else."""
    adapter = adapter_for(EnvParams(id="Blackjack-v1"))
    captions = Captioner(adapter, enumerate_events=True).texts
    utility = EmbeddingAnnotator.load(EmbeddingParams(), adapter).utility(captions)
    success = np.array([adapter.says_success(caption) for caption in captions])
    assert (utility[success][:, None] > utility[~success]).mean() > 0.95
