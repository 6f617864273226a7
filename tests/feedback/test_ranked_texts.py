"""Tasks in words whose texts are ranked by hand: their pairs follow the ranks, and they repeat no environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from laurel.envs import adapter_for
from laurel.errors import ParamsError
from laurel.feedback.ranked_texts import RankedTask, by_rank, load_ranked
from laurel.params import EnvParams
from laurel.params.file import parse_yaml

KITE = """
tasks:
  - description: A kite.
    goal: The kite climbs.
    worst_to_best:
      - The kite lies on the meadow.
      - ["The kite is low and {sinks|climbs}.", "The kite is above the grass."]
      - The kite is far up.
"""
SHOWN = (
    "Acrobot-v1", "Blackjack-v1", "CartPole-v1", "CliffWalking-v1", "FrozenLake-v1", "LunarLander-v3", "MountainCar-v0",
    "Taxi-v3", "MiniGrid-DoorKey-8x8-v0", "MiniGrid-MultiRoom-N2-S4-v0", "laurel/BallGame-v0", "laurel/Crafting-v0",
)  # fmt: skip


def test_pairs_follow_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(KITE)
    (task,) = load_ranked(tmp_path / "mine.yaml")
    subject = by_rank(task, 100, seed=0)
    assert (subject.adapter.description, subject.adapter.goal) == ("A kite.", "The kite climbs.")
    rank = {text: rank for rank, texts in task.levels().items() for text in texts}
    assert rank["The kite is low and climbs."] == rank["The kite is above the grass."] == 1
    assert len(subject.pairs) == 3 + 1 + 3, "every pair of texts of different ranks"
    for (first, second), p_first in subject.pairs:
        assert (rank[first] > rank[second]) == (p_first == 1)
    assert by_rank(task, 4, seed=0).pairs == by_rank(task, 4, seed=0).pairs != by_rank(task, 4, seed=1).pairs


def test_own_tasks_repeat_no_caption_of_an_environment() -> None:
    tasks = load_ranked()
    texts = [text for task in tasks for level in task.levels().values() for text in level]
    assert all(len(task.worst_to_best) >= 4 for task in tasks)
    for env in SHOWN:
        adapter = adapter_for(EnvParams(id=env))
        assert not {adapter.describe(event) for event in adapter.events()} & set(texts)
        assert adapter.goal not in {task.goal for task in tasks}
    assert all(text.endswith(".") and "{" not in text and "  " not in text for text in texts)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("- The kite is far up.", "- []"), "tasks[0].worst_to_best[2] is empty, but must have at least one entry."),
        (("The kite is far up.", "The kite is low and sinks."), 'ranks "The kite is low and sinks." twice; keep one'),
        (
            ("- The kite is far up.", "- 3"),
            "worst_to_best[2] is 3, but must be a text or a list of texts that are equally",
        ),
        (("goal: The kite climbs.", "aim: The kite climbs."), "goal"),
    ],
)
def test_faulty_files_are_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(KITE.replace(*change))
    with pytest.raises(ParamsError, match=r"mine\.yaml") as refused:
        load_ranked(file)
    assert sentence in str(refused.value)


def test_a_task_has_two_ranks_and_a_description_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least two entries"):
        RankedTask.model_validate({"description": "A kite.", "goal": "It climbs.", "worst_to_best": ["It lies."]})
    file = tmp_path / "mine.yaml"
    twice = KITE + KITE.partition("tasks:\n")[2]
    assert len(parse_yaml(twice)["tasks"]) == 2
    file.write_text(twice)
    with pytest.raises(ParamsError, match="A kite"):
        load_ranked(file)
