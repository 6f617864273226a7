"""Learned during training: an online judge labels the captions that agents meet.

After ONI (Zheng et al. 2024, arXiv 2410.23022). Nothing is collected and no annotator is asked beforehand. Each agent
has its own reward, which is stored with the agent. See `laurel.rewards.online` for when a label takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError, ParamsError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.question_queue import Topic
from laurel.feedback.success import has_other_goal, success_questions
from laurel.llm.prices import in_words
from laurel.params.annotation import AnnotateParams
from laurel.params.rewards import OnlineParams, RewardParams
from laurel.rewards.base import LearningReward, Reward
from laurel.rewards.method import AgentsReward, Collected, Inputs, LearningMethod, PayTable, RewardContext


class Online(LearningMethod[OnlineParams]):
    """Fits nothing beforehand; declares the judge of training."""

    kind = "online"
    summary = "a judge's labels of captions during the agent's training"
    Settings = OnlineParams

    def __init__(self, settings: OnlineParams) -> None:
        super().__init__(settings)
        if settings.shuffled:
            self.role = "control"
            self.summary = f"{Online.summary}, assigned to the wrong questions"

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        return self.settings.judge

    def most_questions(self) -> int:
        return 0 if self.settings.replay else self.settings.questions

    def first_effect(self, steps_per_update: int) -> int:
        if self.settings.replay:
            return 0
        return -(-self.settings.every // steps_per_update) * steps_per_update * self.settings.delay

    def asked_in_training(self) -> str | None:
        return None if self.settings.replay else self.settings.judge

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Refuse a judge that cannot be asked here."""
        from laurel.feedback.responders import check_captions

        settings = self.settings
        judge = context.annotate.judge_named(settings.judge, "rewards of kind online: judge")
        if settings.form != "ranking":
            try:
                check_captions(judge, adapter, settings.prompt, settings.goal)
            except AnnotationError as error:
                raise AnnotationError(f"rewards of kind online: {error}") from None
        for voter in judge.voters:
            kind_of(voter).check(adapter)
        return None

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        raise ParamsError(
            f"rewards: labels of {name} are learned during training, so its control is a separate reward: set "
            "{kind: online, shuffled: true} there."
        )

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        settings = self.settings
        if settings.replay:
            return f"the labels of {settings.replay} are replayed, and no judge is asked"
        judge = context.annotate.of_judge(settings.judge)
        voters = judge.voters
        titles = ", ".join(kind_of(voter).title for voter in voters)
        subject = "pairs of captions" if settings.form == "ranking" else "captions"
        asking = [voter.language_model for voter in voters if isinstance(kind_of(voter), ChatAnnotator)]
        n_calls = sum(
            params.votes * (2 if settings.form == "ranking" and params.both_orders else 1) for params in asking
        )
        calls = f", which take {n_calls * settings.questions:,} calls per agent without follow-ups" if n_calls else ""
        calls += self._cost(judge, adapter) if n_calls else ""
        known = context.annotate.feedback_seeds * self._known_answers(judge, adapter)
        if n_calls and known:
            calls += f", and before that at most {known:,} with known answers in all, which take {n_calls * known:,}"
        limit = f"at most {settings.questions:,} per agent"
        return f"{titles} is asked about {subject} while agents are trained: {limit}{calls}"

    def _cost(self, judge: AnnotateParams, adapter: EnvAdapter) -> str:
        """Return the cost of an agent's questions as text, from those about listed captions; empty without any."""
        from laurel.feedback.responders import estimates

        settings, listed = self.settings, self._listed(adapter)
        if len(listed) < 2:
            return ""
        needs = estimates(
            "pair" if settings.form == "ranking" else "caption", judge, adapter, listed, settings.prompt, settings.goal
        )
        if not needs or not all(need.calls for need in needs):
            return ""  # no server is asked, or the answers are stored, so that it is unknown what others take
        costs = [need.needs.most_cost for need in needs]
        if any(cost is None for cost in costs):
            return " and cost an unknown amount"
        shares = [need.distinct / need.pairs / need.calls for need in needs]  # calls for a question, of those counted
        max_cost = settings.questions * sum(
            cost * share for cost, share in zip(costs, shares, strict=True) if cost is not None
        )
        return f" and cost {in_words(max_cost)} per agent at most if they are as long as those about listed captions"

    @staticmethod
    def _listed(adapter: EnvAdapter) -> list[str]:
        """Return the distinct captions that the environment lists."""
        return list(dict.fromkeys(text for text in map(adapter.describe, adapter.events()) if text))

    def _known_answers(self, judge: AnnotateParams, adapter: EnvAdapter) -> int:
        """Return how many questions with known answers a judge is asked first."""
        if self.settings.form != "ranking" or has_other_goal(judge, adapter):
            return 0
        return len(success_questions(self._listed(adapter), adapter, judge.probe.success_questions, 0))

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.rewards.online_artefact import CONFIG

        write_json(place / CONFIG, {"form": None})

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.online_artefact import load

        return load(place, adapter, quantile)

    def learning_reward(self, own: AgentsReward, context: RewardContext, adapter: EnvAdapter) -> LearningReward:
        from laurel.rewards.online import OnlineReward

        return OnlineReward(own, self.settings, context, adapter, self.topic(context, own.seed))

    def topic(self, context: RewardContext, seed: int) -> Topic | None:
        settings = self.settings
        if settings.replay:
            return None
        label_set = seed % context.annotate.feedback_seeds
        if settings.form == "ranking":
            return Topic("pair", settings.judge, label_set)
        return Topic("caption", settings.judge, label_set, settings.prompt, settings.goal)

    def table(self, place: Path, quantile: float) -> PayTable | None:
        from laurel.rewards.online_artefact import table

        return table(place, quantile)


METHOD = Online
