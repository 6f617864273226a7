"""OpenEnv serves a grid world in words: python serve_openenv.py, after pip install openenv.

Its clients play it at http://127.0.0.1:8000, and so does verifiers, by its task set `openenv`.
"""

from openenv.core import Action, Environment, Observation, State, create_app

import laurel
from laurel.errors import EnvError

make = laurel.text_environment("laurel/GridWorld-v0", kwargs={"size": 4, "slip": 0.0})


class Moves(Action):
    """What a model does."""

    moves: list[str]


class Words(Observation):
    """What it reads."""

    text: str


class InWords(Environment[Moves, Words, State]):
    """An episode for each client."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.play, self._state = make(), State()

    state = property(lambda self: self._state)

    def reset(self, seed=None, episode_id=None, **row):
        self._state = State(episode_id=episode_id)
        return Words(text=self.play.reset(seed), reward=0.0)

    def step(self, action, timeout_s=None, **more):
        before = self.play.get_reward()
        try:
            text = self.play.act(action.moves)
        except EnvError as error:  # no such move: the model reads why
            text = str(error)
        self._state.step_count += 1
        return Words(text=text, reward=self.play.get_reward() - before, done=self.play.over)


app = create_app(InWords, Moves, Words, env_name="grid_world")

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=8000)
