"""An environment in words, played by TRL's GRPOTrainer through its own contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import laurel
from laurel.errors import EnvError
from laurel.llm.causal import load_causal
from laurel.llm.tiny_model import write_tiny_model

GRID = {"size": 3, "goal": [1, 1], "heading": True, "actions": "sequence", "max_moves": 4, "slip": 0.0}


def test_grpo_trainer_plays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each completion calls the tool, as a model that has learned it would."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    import trl
    from datasets import Dataset

    make, played = laurel.text_environment("laurel/GridWorld-v0", kwargs=GRID, max_episode_steps=1), []
    local = load_causal(str(write_tiny_model(tmp_path / "tiny", ["forward"], width=16, context=2048)))
    template = Path(trl.__file__).with_name("chat_templates") / "qwen2_5.jinja"
    local.tokenizer.chat_template = template.read_text()
    moves = iter([["forward"], ["left", "forward"], ["right"], ["up"]] * 2)

    class Calls(trl.GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: object) -> object:
            played.extend(self.processing_class.batch_decode(prompt_ids))
            called = [json.dumps({"name": "act", "arguments": {"moves": next(moves, [])}}) for _ in prompt_ids]
            texts = [f"<tool_call>\n{call}\n</tool_call>" for call in called]
            return [
                [*self.processing_class(text)["input_ids"], self.processing_class.eos_token_id] for text in texts
            ], None

    rewards: list[float] = []

    def seen(environments: list[object], **_: object) -> list[float]:
        rewards.extend(environment.get_reward() for environment in environments)  # type: ignore[attr-defined]
        return [0.0] * len(environments)

    trainer = Calls(
        model=local.model,
        processing_class=local.tokenizer,
        environment_factory=make,
        reward_funcs=[seen],
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "Reach the goal. "}], "seed": 7}]),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "out"),
            num_generations=4,
            per_device_train_batch_size=4,
            max_steps=1,
            max_completion_length=64,
            max_tool_calling_iterations=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    assert rewards == pytest.approx([-0.04, -0.04, -0.04, 0.0])  # "up" is no move, which ends nothing
    assert all(prompt == played[0] and "Reach the goal. A grid" in prompt for prompt in played[:4])
    assert '"name": "act"' in played[0]


def test_moves_are_checked() -> None:
    play = laurel.text_environment("laurel/GridWorld-v0", kwargs=GRID, max_episode_steps=1)()
    assert play.reset(seed=7) == play.reset(seed=7, prompt="another column")
    for moves in ([], ["up"], ["left"] * 5, ["left", 3], "left"):
        with pytest.raises(EnvError, match="moves are"):
            play.act(moves)  # type: ignore[arg-type]  # a model may write anything
    assert play.act(["Left", "right"]).endswith("The episode is over.")
    with pytest.raises(EnvError, match="over"):
        play.act(["left"])
    assert play.get_reward() == pytest.approx(-0.04)


def test_an_environment_without_named_actions_is_refused() -> None:
    with pytest.raises(EnvError, match=r"Pendulum-v1 has actions Box.*, but a model names Discrete ones"):
        laurel.text_environment("Pendulum-v1")()
