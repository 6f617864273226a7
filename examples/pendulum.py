"""An adapter for an environment that Gymnasium has already: `env: {id: Pendulum-v1}`."""

from laurel.envs import EnvAdapter, Transition


class PendulumAdapter(EnvAdapter):
    """Where the pendulum points, in words."""

    ids = ("Pendulum-v*",)
    description = "A pendulum hangs from a motor."
    goal = "The pendulum points up."

    def caption(self, step: Transition) -> str:
        height = step.next_observation[0]  # the cosine of the angle: 1 is upright
        return "The pendulum points up." if height > 0.9 else "The pendulum rises." if height > 0 else "It hangs."
