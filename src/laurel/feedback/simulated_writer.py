"""A simulated writer of reward functions, for tests and demonstrations; always marked as simulated.

It draws from a few hand-written functions: good, wrong, broken and hostile ones. It ignores the results of earlier
rounds: good functions simply become more probable in later rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.question import Reading
from laurel.feedback.questions.code import Assignment, CodeQuestion, Written
from laurel.seeding import generator

_HEAD = "def reward(observation, action, next_observation):\n"
_CARTPOLE = {
    "good": (
        """    upright = 1.0 - abs(next_observation["pole_angle"]) / 0.2095
    centred = 1.0 - abs(next_observation["cart_position"]) / 2.4
    return upright + 0.5 * centred, {"upright": upright, "centred": centred}
""",
        """    steady = math.exp(-abs(next_observation["pole_angular_velocity"]))
    upright = math.cos(6.0 * next_observation["pole_angle"])
    return steady + upright, {"steady": steady, "upright": upright}
""",
    ),
    "wrong": (
        """    fast = abs(next_observation["cart_velocity"])
    return fast, {"fast": fast}
""",
        """    leaning = abs(next_observation["pole_angle"]) / 0.2095
    return leaning, {"leaning": leaning}
""",
    ),
}
_MOUNTAIN_CAR = {
    "good": (
        """    height = math.sin(3.0 * next_observation["position"])
    speed = 100.0 * next_observation["velocity"] ** 2
    return height + speed, {"height": height, "speed": speed}
""",
        """    energy = math.sin(3.0 * next_observation["position"]) * 0.0025 + 0.5 * next_observation["velocity"] ** 2
    before = math.sin(3.0 * observation["position"]) * 0.0025 + 0.5 * observation["velocity"] ** 2
    gain = 1000.0 * (energy - before)
    return gain, {"gain": gain}
""",
    ),
    "wrong": (
        """    rest = -abs(next_observation["velocity"])
    return rest, {"rest": rest}
""",
        """    left = -next_observation["position"]
    return left, {"left": left}
""",
    ),
}
_BANK: Mapping[str, Mapping[str, Sequence[str]]] = {"CartPole": _CARTPOLE, "MountainCar": _MOUNTAIN_CAR}
_BROKEN = (
    "    return observation['speed_of_light']\n",
    "    return 1.0 / 0\n",
    "    return float('nan')\n",
    "    return 'very good'\n",
    "    return (1.0\n",
    "    import numpy as np\n    return np.sin(1.0)\n",
)
_HOSTILE = (
    "    while True:\n        pass\n",
    "    return 10 ** 10 ** 9\n",
    "    return len(open('/etc/passwd').read())\n",
    "    return len(().__class__.__base__.__subclasses__())\n",
    "    return 1e300\n",
)
_CHANCES = {False: (0.2, 0.3, 0.3, 0.2), True: (0.6, 0.2, 0.1, 0.1)}
"""Whether it is a later round -> probabilities of good, wrong, broken, hostile."""


class SimulatedWriter:
    """Writes functions for CartPole and MountainCar.

    Raises:
        AnnotationError: it has no functions for the environment.
    """

    name = "a simulated writer (no language model)"
    simulated = True
    remark = "it ignores the results of earlier rounds, which a chat model is shown"

    def __init__(self, adapter: EnvAdapter, seed: int, samples: int) -> None:
        family = next((name for name in _BANK if adapter.env_id.startswith(name)), None)
        if family is None:
            raise AnnotationError(
                f"rewards of kind code: the simulated writer (annotator scripted) has functions for "
                f"{', '.join(_BANK)} only, and none for {adapter.env_id}. Take the annotator openai or huggingface."
            )
        bank = _BANK[family]
        self._kinds = bank["good"], bank["wrong"], _BROKEN, _HOSTILE
        self._seed, self._samples = seed, samples

    def write(self, number: int, assignment: Assignment) -> list[Reading[Written] | None]:
        """Return the functions of a round, in the form of parsed answers."""
        rng = generator(self._seed, "writer", number)
        drawn = rng.choice(len(self._kinds), size=self._samples, p=_CHANCES[number > 0])
        bodies = [self._kinds[kind][int(rng.integers(len(self._kinds[kind])))] for kind in drawn]
        return [CodeQuestion.parse(f"Simulated.\n```python\n{_HEAD}{body}```\n") for body in bodies]
