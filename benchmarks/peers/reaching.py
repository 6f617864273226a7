"""The clock of all sides, and when CartPole is solved: the mean of the last 100 returns in training reaches 475.

Knows no side.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Iterable

GOAL, EPISODES = 475.0, 100


class Clock:
    """Time and processor time since it was made, and the returns of the last episodes."""

    def __init__(self) -> None:
        self._started, self._worked = time.perf_counter(), time.process_time()
        self._last: deque[float] = deque(maxlen=EPISODES)

    @property
    def mean(self) -> float:
        """The mean return of the last episodes."""
        return sum(self._last) / max(len(self._last), 1)

    @property
    def worked(self) -> float:
        """Processor time so far."""
        return time.process_time() - self._worked

    def reached(self, returns: Iterable[float]) -> bool:
        """Note episodes that have ended; tell whether the goal has been reached."""
        self._last.extend(returns)
        return len(self._last) == EPISODES and self.mean >= GOAL

    def tell(self, steps: int) -> None:
        """Print what was reached after so many steps, as JSON."""
        seconds, worked = time.perf_counter() - self._started, self.worked
        goal = seconds if len(self._last) == EPISODES and self.mean >= GOAL else None
        figures = {"steps": steps, "seconds": seconds, "cpu_seconds": worked, "seconds_to_goal": goal}
        sys.stdout.write(json.dumps(figures | {"last": self.mean}))
