"""The well-known arms as the report sees them."""

from __future__ import annotations

from laurel.params import parse_params
from laurel.params.arm_infos import ArmInfo, arm_infos
from minimal_params import MINIMAL

_PARAMS = parse_params({**MINIMAL, "arms": "full"}, "params")
KNOWN: dict[str, ArmInfo] = {info.name: info for info in arm_infos(_PARAMS.arms, _PARAMS.rewards, _PARAMS.agent)}
