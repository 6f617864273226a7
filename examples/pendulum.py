"""An adapter for an environment that Gymnasium already has: `env: {id: Pendulum-v1}`."""

from laurel.envs import EnvAdapter, Transition


class PendulumAdapter(EnvAdapter):
    """Where the pendulum points, in words."""

    ids = ("Pendulum-v*",)
    description = "A pendulum hangs from a motor."
    goal = "The pendulum points up."

    def caption(self, step: Transition) -> str:
        height = step.next_observation[0]  # the cosine of the angle: 1 is upright
        where = "up" if height > 0.9 else "sideways and up" if height > 0 else "down"
        return f"The pendulum points {where}."
