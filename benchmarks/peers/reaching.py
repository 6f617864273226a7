"""The clock of all sides, and the criterion for solving CartPole: the mean of the last 100 training returns reaches
475.

Episodes are ordered by start, and an episode counts only after all earlier ones have ended: otherwise short episodes,
    which end first, would be over-represented.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

GOAL, EPISODES = 475.0, 100


class Clock:
    """Wall-clock and CPU time since its creation, and the returns of the last episodes of N environments."""

    def __init__(self, n_envs: int = 1) -> None:
        self._started, self._worked = time.perf_counter(), time.process_time()
        self._now, self._began = 0, [(0, i) for i in range(n_envs)]
        self._waiting: list[tuple[tuple[int, int], float]] = []
        """Finished episodes that wait for earlier ones, by start."""
        self._last: deque[float] = deque(maxlen=EPISODES)

    @property
    def mean(self) -> float:
        """The mean return of the last episodes."""
        return sum(self._last) / max(len(self._last), 1)

    @property
    def worked(self) -> float:
        """CPU time so far."""
        return time.process_time() - self._worked

    def reached(self, ended: Iterable[tuple[int, float]]) -> bool:
        """Record a step with the environment and return of each episode that ended in it; return whether the goal is
        reached.
        """
        self._now += 1
        for i, returned in ended:
            heappush(self._waiting, (self._began[i], returned))
            self._began[i] = (self._now, i)
        while self._waiting and self._waiting[0][0] < min(self._began):
            self._last.append(heappop(self._waiting)[1])
        return len(self._last) == EPISODES and self.mean >= GOAL

    def tell(self, steps: int) -> None:
        """Print the result after this many steps as JSON."""
        seconds, worked = time.perf_counter() - self._started, self.worked
        goal = seconds if len(self._last) == EPISODES and self.mean >= GOAL else None
        figures = {"steps": steps, "seconds": seconds, "cpu_seconds": worked, "seconds_to_goal": goal}
        sys.stdout.write(json.dumps(figures | {"last": self.mean}))
