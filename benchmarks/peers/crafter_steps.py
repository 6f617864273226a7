"""Crafter's side of crafting_steps.py: prints its figures as JSON. Called with the number of steps."""

import json
import sys
import time

import crafter
import numpy as np


def main() -> None:
    """Step one world with random actions, episode after episode, and time resets separately."""
    steps = int(sys.argv[1])
    env = crafter.Env(seed=0)
    actions = np.random.default_rng(0).integers(0, env.action_space.n, steps)
    begun = time.perf_counter()
    env.reset()
    reset, stepping = time.perf_counter() - begun, 0.0
    for action in actions:
        begun = time.perf_counter()
        done = env.step(action)[2]
        stepping += time.perf_counter() - begun
        if done:
            env.reset()
    sys.stdout.write(json.dumps({"steps_a_second": steps / stepping, "reset_seconds": reset}))


if __name__ == "__main__":
    main()
