"""BALROG's progression in NetHack (Paglieri et al. 2024, arXiv 2411.13543): how far an episode has come, from 0 to 1.

The benchmark took from games that people had played how many of those who reached a dungeon level, or an experience
level, went on to win the game. An episode's progression is the largest such share of what it reached, so that 0.0126 is
that of standing where every game begins. The shares are those of its file achievements.json, to four digits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BY_DEPTH = (
    0.0, 0.0126, 0.0154, 0.0175, 0.0212, 0.0265, 0.0354, 0.0485, 0.0696, 0.0977, 0.1256, 0.1613, 0.2061, 0.2566, 0.2925,
    0.3088, 0.3249, 0.3401, 0.3526, 0.3655, 0.3790, 0.3929, 0.4083, 0.4258, 0.4452, 0.4664, 0.5068, 0.5544, 0.6016,
    0.6465, 0.6913, 0.7101, 0.7176, 0.7232, 0.7284, 0.7328, 0.7369, 0.7421, 0.7471, 0.7537, 0.7610, 0.7674, 0.7725,
    0.7772, 0.7813, 0.7859, 0.7890, 0.7930, 0.7967, 0.8018, 0.8068,
)  # fmt: skip
_BY_EXPERIENCE = (
    0.0, 0.0126, 0.0185, 0.0208, 0.0242, 0.0291, 0.0369, 0.0508, 0.0745, 0.1170, 0.1791, 0.2548, 0.3326, 0.4144, 0.4940,
    0.5779, 0.6261, 0.6563, 0.6810, 0.7015, 0.7174, 0.7287, 0.7371, 0.7443, 0.7513, 0.7586, 0.7642, 0.7703, 0.7760,
    0.7783, 0.7805,
)  # fmt: skip
"""Share by level; nothing is reached at 0, which the status shows once a game is over."""


def progression(depth: npt.NDArray[np.int64], experience: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return the larger share of both (N,); levels that the benchmark does not know count nothing.

    Args:
        depth: dungeon levels below the surface (N,).
        experience: the player's experience levels (N,).
    """
    shares = []
    for levels, known in ((depth, _BY_DEPTH), (experience, _BY_EXPERIENCE)):
        inside = (levels >= 0) & (levels < len(known))
        shares.append(np.where(inside, np.array(known)[np.where(inside, levels, 0)], 0.0))
    return np.maximum(*shares).astype(np.float32)
