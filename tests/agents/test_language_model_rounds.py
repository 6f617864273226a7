"""What rounds of a language model's training learn from: scores by hand, each setting, and rounds without examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from move_lists import GRID, SMALL, begun, paid

from laurel.agents.actor import View, initial_observations
from laurel.agents.actors import make_actor
from laurel.agents.actors.language_model import BaseModel
from laurel.agents.algorithms import initial_policy, weights_seed
from laurel.agents.algorithms.language_model import LanguageModelAlgorithm
from laurel.agents.language_model.chain import Proposal, Turn
from laurel.agents.language_model.critic import TableCritic
from laurel.agents.language_model.learner import FITS, Proposals
from laurel.agents.language_model.pairs import Scored
from laurel.agents.language_model.policy import LanguageModelActor, LanguageModelPolicy
from laurel.agents.learner import PolicyNetwork
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import TrainingError
from laurel.evaluation.rollout import roll_out
from laurel.llm.chat import RefusedError
from laurel.llm.trl_tuning import Group, Tuning
from laurel.params.language_actor import LanguageActorParams


@pytest.fixture(scope="module")
def adapter() -> EnvAdapter:
    return adapter_for(GRID)


@pytest.mark.parametrize(
    "settings",
    [
        {"refresh_critic": True, "gae_lambda": 0.8, "critic": "encoder"},
        {"score": "return"},
        {"strategy": "free", "max_tokens": 6},
        {"pairing": "all", "memory_rounds": 2},
        {"answer": "json"},
        {"answer": "code"},
    ],
    ids=lambda settings: next(iter(settings)) + "-" + str(next(iter(settings.values()))),
)
def test_every_way_to_score_ask_and_pair_learns(adapter: EnvAdapter, settings: dict[str, Any]) -> None:
    random, taught, *_, last = paid(*begun(adapter, n_envs=128, **settings), 4)
    assert abs(random - taught) < 0.3
    assert last > taught + 0.15


GAMMA, VALUES = 0.5, (0.1, 0.4, 0.8)
"""Discount, and values of the states 0 to 2."""


def three_walks() -> Proposals:
    """Two steps of three environments: one ends, one is truncated and reset, one continues."""
    states = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    written = [[Proposal((Turn(f"{t}", f"{n}"),), (0,), 0.0, 1) for n in range(3)] for t in range(2)]
    return Proposals(
        observation=np.array(states, dtype=np.int32)[:, :, None],
        action=np.zeros((2, 3), dtype=np.int64),
        extrinsic=np.zeros((2, 3), dtype=np.float32),
        reward=np.array([[-0.04, 0.2, 0.0], [1.0, 0.0, 0.3]], dtype=np.float32),
        terminated=np.array([[False, False, False], [True, False, False]]),
        truncated=np.array([[False, True, False], [False, False, False]]),
        valid=np.array([[True, True, True], [True, False, True]]),
        written=[written[0], [written[1][0], None, written[1][2]]],
    )


@pytest.mark.parametrize(
    ("score", "by_hand"),
    [
        (
            "advantage",  # r + gamma V(s') - V(s), without V(s') where the episode terminated
            [
                -0.04 + GAMMA * 0.4 - 0.1,
                0.2 + GAMMA * 0.8 - 0.4,
                0.0 + GAMMA * 0.1 - 0.8,
                1.0 - 0.4,
                0.3 + GAMMA * 0.4 - 0.1,
            ],
        ),
        (
            "return",  # to the end of the episode, or V of where it was cut off
            [
                -0.04 + GAMMA * 1.0,
                0.2 + GAMMA * 0.8,
                0.0 + GAMMA * (0.3 + GAMMA * 0.4),
                1.0,
                0.3 + GAMMA * 0.4,
            ],
        ),
    ],
)
def test_scores_are_those_by_hand(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch, score: str, by_hand: list[float]
) -> None:
    learner, envs = begun(adapter, score=score, gamma=GAMMA)
    envs.close()
    learner.adapter, learner.round = adapter, 1  # after the random round
    assert isinstance(learner.critic, TableCritic)
    texts = View(adapter, np.arange(3, dtype=np.int32)[:, None]).text
    learner.critic.fit(texts, np.array(VALUES, dtype=np.float32))
    found: list[Scored] = []

    def tune(proposals: list[Scored], margin: float, figures: dict[str, float], seed: int) -> float:
        found.extend(proposals)
        assert margin == pytest.approx(learner.params.margin * np.std(by_hand))
        figures["examples"] = 1
        return 0.0

    monkeypatch.setattr(learner, "_tune", tune)
    learner._idle = 2
    learner.learn(three_walks())
    assert learner._idle == 0, "in a row"
    assert [(scored.turns[0].prompt, scored.turns[0].answer) for scored in found] == [
        *zip("00011", "01202", strict=True)
    ]
    np.testing.assert_allclose([scored.score for scored in found], by_hand, atol=1e-6)


def test_the_critic_is_fitted_to_returns_that_its_last_fit_continues(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, envs = begun(adapter, gamma=GAMMA)
    envs.close()
    learner.adapter = adapter
    monkeypatch.setattr("laurel.agents.language_model.learner.tune", lambda *_: 0.0)

    def returns(value: list[float]) -> tuple[list[float], list[float], list[float]]:
        last = 0.3 + GAMMA * value[1]
        return [-0.04 + GAMMA * 1.0, last], [1.0, 0.2 + GAMMA * value[2]], [GAMMA * last]

    value = [0.0] * 3
    for _ in range(FITS):
        value = [sum(of_state) / len(of_state) for of_state in returns(value)]
    errors = [(each - value[state]) ** 2 for state, of_state in enumerate(returns(value)) for each in of_state]
    assert learner.learn(three_walks())["value"] == pytest.approx(sum(errors) / 5)
    texts = View(adapter, np.arange(3, dtype=np.int32)[:, None]).text
    np.testing.assert_allclose(learner.critic.values(texts), value, atol=1e-6)
    every = [each for of_state in returns(value) for each in of_state]
    assert learner._random == pytest.approx((np.mean(every), np.var(every) / 5)), "by which later rounds are judged"
    assert not learner._better_than_random(learner._random[0] + 0.1, 0.01)
    assert learner._better_than_random(learner._random[0] + 1, 0.01)


def test_a_round_learns_from_the_best_answers_so_far_as_the_settings_say(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = {"n_epochs": 3, "batch_size": 16, "beta": 1.5, "simpo_gamma": 0.3, "imitation": 0.2, "max_grad_norm": 0.7}
    learner, envs = begun(adapter, score="return", gamma=GAMMA, keep_best=True, imitation_examples=1, **tuning)
    envs.close()
    learner.adapter = adapter
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("laurel.agents.language_model.learner.tune", lambda _, *given: calls.append(given) or 0.0)
    learner.learn(three_walks())
    worse = three_walks()
    worse.reward -= 1
    for of_step in worse.written:
        of_step[:] = [
            proposal and proposal._replace(turns=(Turn(proposal.turns[0].prompt, "another"),)) for proposal in of_step
        ]
    learner.learn(worse)
    (_, imitated, _, seed, _), (loss, pairs, how, other_seed, _) = calls
    assert (len(imitated), loss, seed != other_seed) == (1, "simpo", True)
    assert set(imitated) < {("0", "0"), ("1", "0")}
    assert [(pair.prompt, pair.chosen, pair.rejected) for pair in pairs] == [
        ("0", "0", "another"),
        ("1", "0", "another"),
    ]
    assert how == Tuning(2e-3, 16, epochs=3, beta=1.5, gamma=0.3, imitation=0.2, max_grad_norm=0.7)


def test_proposals_that_have_nothing_to_be_compared_with_end_the_training(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, max_alone=0.5)
    envs.close()
    proposals = [Scored((Turn(f"{n % 3}", "left"),), 0.0) for n in range(4)]
    learner._tune(proposals, 0.0, {}, 0)
    with pytest.raises(TrainingError, match=r"3 of 5 answers .* occurred once, .* 0\.5\. Raise n_envs, or take"):
        learner._tune([*proposals, Scored((Turn("3", "left"),), 0.0)], 0.0, {}, 0)
    learner, envs = begun(adapter, max_alone=0.4, strategy="free")
    envs.close()
    two = [Scored((Turn("You are here.", f"{n}"), Turn(f"You are here. {n}", "left")), 0.0) for n in range(4)]
    with pytest.raises(TrainingError, match=r"4 of 8 answers .* Raise n_envs, set strategy to menu, or take"):
        learner._tune(two, 0.0, {}, 0)


def test_groups_that_no_step_takes_are_no_examples(adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, envs = begun(adapter, loss="grpo", proposals=2, batch_size=8)
    envs.close()
    groups = [Group("You are here.", ("left", "forward"), (1.0, 0.0))] * 19
    monkeypatch.setattr("laurel.agents.language_model.pairs.unequal", lambda *_: groups)
    monkeypatch.setattr("laurel.agents.language_model.learner.tune", lambda *_: 0.0)
    figures: dict[str, float] = {}
    learner._tune([], 0.0, figures, 0)
    assert figures["examples"] == 18, "six steps of three"
    assert "policy" in figures


def test_a_round_without_examples_has_no_loss(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, margin=100)
    rollout, found = learner.rollout(envs), []
    for _ in range(2):
        learner.collect(envs, envs.reset(), rollout)
        found.append(learner.learn(rollout))
    assert "policy" in found[0], "the random round is imitated"
    assert "policy" not in found[1], "a loss of 0 would look like the best one"


def test_an_answer_that_cannot_be_read_is_worse_than_all_others_by_more_than_the_margin(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, envs = begun(adapter, score="return", gamma=GAMMA)
    envs.close()
    learner.adapter, learner.round = adapter, 1  # after the random round
    found: list[Any] = []

    def tune(proposals: list[Scored], margin: float, figures: dict[str, float], seed: int) -> float:
        found.extend([margin, *(scored.score for scored in proposals)])
        figures["examples"] = 1
        return 0.0

    monkeypatch.setattr(learner, "_tune", tune)
    walks = three_walks()
    read = walks.written[1][0]
    assert read is not None
    walks.written[1][0] = read._replace(moves=None)  # the random move that was made instead found the goal
    learner.learn(walks)
    margin, *scores = found
    assert scores[3] < min(scores[:3] + scores[4:]) - margin


def test_rounds_without_examples_stop_training_no_better_than_random(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, margin=100)
    with pytest.raises(TrainingError, match=r"Round 4: in the last 3 rounds no proposal .* no better than random"):
        paid(learner, envs, 6)
    again, envs = begun(adapter, margin=100)
    paid(again, envs, 4)
    resumed, envs = begun(adapter, margin=100)
    resumed.restore(again.state())
    with pytest.raises(TrainingError, match=r"Round 4: in the last 3 rounds"):
        paid(resumed, envs, 2)


def test_no_margin_is_not_to_be_lowered(adapter: EnvAdapter) -> None:
    learner, _ = begun(adapter, margin=0)
    assert "for the same state, and" in str(learner._stalled())
    assert "lower proposals" in str(learner._stalled())


def test_a_trained_policy_may_find_no_new_solutions(adapter: EnvAdapter) -> None:
    learner, envs = begun(adapter, margin=100)
    paid(learner, envs, 2)
    learner._random = (learner._random[0] - 1, learner._random[1])  # as if random moves had been much worse
    paid(learner, envs, 6)
    assert learner._idle == 5


def test_states_that_were_asked_about_are_counted_once(adapter: EnvAdapter) -> None:
    policy = initial_policy(adapter, LanguageActorParams.model_validate(SMALL), 0, 0)
    assert isinstance(policy, LanguageModelPolicy)
    view, rng = View(adapter, np.array([[0], [1], [0], [0]], dtype=np.int32)), np.random.default_rng(0)
    counts = []
    for greedy in (True, False):
        actor = policy.as_actor(greedy=greedy)
        for _ in range(3):
            actor.act(view, rng)
        counts.append((actor.account["states"], actor.account["answers"]))
    assert counts == [(2, 2), (2, 12)], "a greedy actor remembers its answers, another one draws each anew"


def test_an_answer_is_written_for_each_step(adapter: EnvAdapter) -> None:
    """Episodes of one step: none is written about the observation that ends them."""
    policy = initial_policy(adapter, LanguageActorParams.model_validate(SMALL), 0, 0)
    actor = policy.as_actor()
    rows = roll_out(GRID, adapter, actor, n_envs=4, episodes=6, seed=0, learned=None)
    assert actor.account["answers"] == sum(row["length"] for row in rows) == 6


def test_tokens_and_unreadable_answers_are_counted_where_they_are_written(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = initial_policy(adapter, LanguageActorParams.model_validate(SMALL), 0, 0)
    assert isinstance(policy, LanguageModelPolicy)
    answers = [Proposal((), None, 0.0, 5), Proposal((), (0,), 0.0, 2)]
    monkeypatch.setattr(policy, "propose", lambda _, states, *__, **___: answers[: len(states)])
    view, rng = View(adapter, np.array([[0], [1]], dtype=np.int32)), np.random.default_rng(0)
    for greedy, unread, tokens in ((True, 1, 7), (False, 2, 14)):
        actor = policy.as_actor(greedy=greedy)
        for _ in range(2):
            actor.act(view, rng)
        assert (actor.account["unread"], actor.account["tokens"]) == (unread, tokens)


def test_the_base_model_is_the_model_before_training(adapter: EnvAdapter) -> None:
    weights = []
    for seed in (0, 1):
        actor = make_actor("language_model", adapter, "key", initial=weights_seed(7, seed))
        assert isinstance(actor, BaseModel)
        assert isinstance(actor.loaded, LanguageModelActor)
        trained = initial_policy(adapter, LanguageActorParams(), 7, seed).state_dict()
        weights_of_actor = actor.loaded._policy.state_dict()
        assert weights_of_actor.keys() == trained.keys()
        assert all((weights_of_actor[name] == trained[name]).all() for name in weights_of_actor)
        weights.append(weights_of_actor)
    name = next(name for name, weight in weights[0].items() if weight.ndim == 2)
    assert (weights[0][name] != weights[1][name]).any()


def test_the_base_model_is_checked_when_it_is_made_and_loaded_when_an_episode_begins(
    adapter: EnvAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = [], LanguageModelAlgorithm.policy

    def counted(self: LanguageModelAlgorithm, adapter: EnvAdapter) -> PolicyNetwork:
        loaded.append(self)
        return load(self, adapter)

    monkeypatch.setattr(LanguageModelAlgorithm, "policy", counted)
    with pytest.raises(RefusedError, match="there is no such directory"):
        make_actor("language_model", adapter, "key", model="/no/such/folder")
    actor, view = make_actor("language_model", adapter, "key"), initial_observations(GRID, adapter, 2)
    assert not loaded
    actor.begin(np.ones(2, dtype=np.bool_))
    acted = actor.act(view, np.random.default_rng(0))
    assert actor.log_prob(view, acted.action).shape == (2,)
    assert actor.account["answers"] == 2
    assert len(loaded) == 1
