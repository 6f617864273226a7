"""The check of a run tells how often an online judge is asked at most, and what that costs."""

from pathlib import Path
from typing import Any

import pytest

from laurel.envs import adapter_for
from laurel.params import parse_params
from laurel.params.rewards import OnlineParams
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.online import Online
from minimal_params import MINIMAL

ONE = {"both_orders": False}
ALONE, KNOWN = (
    "per agent without follow-ups and cost an unknown amount",
    "at most 48 with known answers in all, which take",
)


@pytest.mark.parametrize(
    ("env_id", "form", "asking", "calls"),
    [
        ("CartPole-v1", "ranking", {}, f", which take 1,000 calls {ALONE}"),
        ("FrozenLake-v1", "ranking", {}, f", which take 1,000 calls {ALONE}, and before that {KNOWN} 96"),
        (
            "FrozenLake-v1",
            "ranking",
            ONE,
            f", which take 500 calls {ALONE}, and before that {KNOWN} 48",
        ),
        ("FrozenLake-v1", "retrieval", {"votes": 3}, f", which take 1,500 calls {ALONE}"),
    ],
)
def test_calls_per_question_are_shown_next_to_the_questions(
    tmp_path: Path, env_id: str, form: str, asking: dict[str, Any], calls: str
) -> None:
    """A budget counts calls, and a chat model is asked about a pair in both orders."""
    judge = {"annotator": "openai", "openai": {"model": "m", "temperature": 1.0}, "language_model": asking}
    content = {
        **MINIMAL,
        "env": {"id": env_id},
        "arms": {"a": {"reward": "online"}},
        "agent": {"seeds": [0, 1, 2], "steps": 1},
    }
    params = parse_params({**content, "annotate": {**judge, "feedback_seeds": 3}}, "a test")
    context = RewardContext.of(params)
    told = Online(OnlineParams.model_validate({"form": form})).estimate(context, None, adapter_for(params.env))
    what = "pairs of captions" if form == "ranking" else "captions"
    assert told == f"openai m is asked about {what} while agents are trained: at most 500 per agent{calls}"


@pytest.mark.parametrize(
    ("env_id", "form", "dollars"),
    [("FrozenLake-v1", "ranking", 1_000), ("FrozenLake-v1", "retrieval", 500), ("Pendulum-v1", "ranking", None)],
)
def test_what_questions_cost_is_estimated_from_listed_captions(
    tmp_path: Path, env_id: str, form: str, dollars: int | None
) -> None:
    """At a dollar an answer, as many dollars as calls."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("- {model: m, date: 2026-01-31, source: 'https://x', input: 0, output: 10000}")
    asking = {"model": "m", "max_tokens": 100}
    judge = {"annotator": "openai", "openai": asking, "budget": {"prices": str(prices)}}
    params = parse_params({**MINIMAL, "env": {"id": env_id}, "annotate": judge}, "a test")
    adapter = adapter_for(params.env)
    told = Online(OnlineParams.model_validate({"form": form})).estimate(RewardContext.of(params), None, adapter)
    assert told is not None
    if dollars is None:
        assert "cost" not in told
        assert not adapter.events()
    else:
        cost = f"${dollars:,}.00 per agent at most if they are as long as"
        assert f" {dollars:,} calls per agent without follow-ups and cost {cost}" in told


def test_a_model_in_this_process_has_no_cost() -> None:
    judge = {"annotator": "huggingface", "huggingface": {"model": "no/such-model"}}
    params = parse_params({**MINIMAL, "env": {"id": "FrozenLake-v1"}, "annotate": judge}, "a test")
    told = Online(OnlineParams()).estimate(RewardContext.of(params), None, adapter_for(params.env))
    assert told is not None
    assert " 1,000 calls per agent without follow-ups, and before that" in told
