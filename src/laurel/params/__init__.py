"""`params.yaml` as typed, frozen models: the only place that defines a parameter's name, type and range.

An error names the file, the key, the value and the allowed values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    ValidationError,
    create_model,
    model_validator,
)

from laurel.errors import ParamsError, closest
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.params.arms import Arms, arm_of, judges_of, used
from laurel.params.fields import Count, FilePath, Positive, Probability, Section, Seed, filled
from laurel.params.file import read_mapping, refusals, sentences
from laurel.params.kinds import known_actor, options_of_actor, replays_agent
from laurel.params.pipeline import PipelineParams
from laurel.params.resolved_arms import Arm, resolve_arms
from laurel.params.rewards import Rewards, method_of, resolved
from laurel.params.training import AgentParams, ShapingParams
from laurel.permissions import why_responses_are_refused


class EnvParams(Section):
    id: str
    """A Gymnasium id; see `laurel.envs` for those with captions of their own."""
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the environment. With any, it runs through Gymnasium, not EnvPool."""
    backend: Literal["auto", "envpool", "gymnasium"] = "auto"
    """Backend that steps the environments in parallel; auto: a vector implementation of the environment's own
    (CartPole), EnvPool (C++) where it has the id, or Gymnasium."""
    max_episode_steps: Count | None = None
    """Truncate episodes after this many steps; null: the environment's own limit."""

    def with_kwargs(self, kwargs: Mapping[str, JsonValue]) -> EnvParams:
        """Return the environment with further arguments."""
        return self.model_copy(update={"kwargs": {**self.kwargs, **kwargs}}) if kwargs else self


class PolicyShare(Section):
    kind: Annotated[str, AfterValidator(known_actor)] = "random"
    """random: uniform actions; checkpoint: a trained agent; epsilon_random: a mixture of the two; or another package's
    actor, by the name of its entry point."""
    share: Positive = 1.0
    """Relative share of the environments in which this policy acts."""
    epsilon: Probability = 0.5
    """epsilon_random only: probability of a uniform action."""
    path: FilePath | None = None
    """Directory of a trained agent, e.g. data/agents/preference/seed-0."""
    options: dict[str, JsonValue] = Field(default={}, exclude_if=lambda options: not options)
    """Further arguments of the actor."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Options of the actor."""
        if not self.replays_agent:
            return dict(self.options)
        replay = {"path": self.path, "epsilon": self.epsilon}
        return self.options | {name: replay[name] for name in replay.keys() & options_of_actor(self.kind).keys()}

    @property
    def replays_agent(self) -> bool:
        """Whether a trained agent acts, that of `path`."""
        # the default is built while this module is imported, when actors cannot be loaded yet
        return "kind" in self.model_fields_set and replays_agent(self.kind)

    @model_validator(mode="after")
    def _agent_has_path(self) -> PolicyShare:
        if self.path is None and self.replays_agent:
            raise ValueError(f'is of kind "{self.kind}" and so needs `path`, the directory of a trained agent.')
        return self


class CollectParams(Section):
    steps: Count
    """Total environment steps."""
    parts: Annotated[int, Field(ge=1, le=100)] = 1
    """Independent parts of equal size, each with its own environments and random seed; on Kubeflow they are separate
    steps that run in parallel."""
    n_envs: Count = 64
    """Environments per part."""
    shard_steps: Count = 100_000
    """Rows per Parquet shard (episodes are never split)."""
    policies: Annotated[tuple[PolicyShare, ...], Field(strict=False), AfterValidator(filled)] = (PolicyShare(),)
    """The behaviour policies; each acts in its share of the environments."""

    @model_validator(mode="after")
    def _parts_have_steps(self) -> CollectParams:
        if self.parts > self.steps:
            raise ValueError(f"has {self.parts} parts, but only {self.steps} steps: set collect.parts to fewer.")
        return self


class CaptionParams(Section):
    with_action: bool = False
    """Name the action in each caption."""
    segment_length: Count = 1
    """Consecutive steps that are judged together as one segment; repeated captions become `text (xN)`."""
    enumerate: bool = True
    """Add the captions that collection never met, for an environment that can list its captions."""
    max_segments: Count = 100_000
    """Maximum number of distinct segments of several steps; the number of dropped ones is reported."""


class EvaluateParams(Section):
    episodes: Count = 20
    """Evaluation episodes per trained agent."""
    n_envs: Count = 20
    kwargs: dict[str, JsonValue] = Field(default={}, exclude_if=lambda kwargs: not kwargs)
    """Keyword arguments that override `env.kwargs` in evaluation, e.g. {part: fresh} for prompts that training never
    showed; they must not change the observation and action spaces."""
    greedy: bool = False
    """Take the likeliest action instead of sampling from the policy; also in untrained actors, unless their option
    `greedy` says otherwise."""
    success_threshold: Probability = 0.9
    """Success rate over the last 100 episodes that counts as solved."""
    bootstrap: Count = 10_000
    """Bootstrap resamples for the 95% intervals of means."""
    animation_steps: Annotated[int, Field(ge=0, lt=2**31)] = 200
    """Maximum number of frames of the animation of an episode before and after training; 0: no animation."""


class TrackingParams(Section):
    enabled: bool = True
    """Log runs to MLflow (at MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml)."""
    experiment: str = "laurel"
    """MLflow experiment of the runs."""
    register_models: bool = True
    """Register the reward model and the best agent in MLflow's model registry."""


class Params(Section):
    """Everything a run depends on besides its code."""

    seed: Seed = 0
    """Seed from which all random numbers of the run derive, together with agent.seeds. What is drawn for each agent's
    reward (random_reward, shuffled_labels, rnd, online) depends on agent.seeds alone: change those to draw it anew."""
    env: EnvParams
    collect: CollectParams
    caption: CaptionParams = CaptionParams()
    annotate: AnnotateParams = AnnotateParams()
    arms: Arms
    """The arms that are compared; `full` means all well-known arms."""
    rewards: Rewards = Field(default_factory=dict, validate_default=True)
    """Name of a reward -> settings of the method that makes it. `kind` names the method; left out, it is the reward's
    own name. A reward that is named only in an arm has the defaults of its kind."""
    shaping: ShapingParams = ShapingParams()
    agent: AgentParams
    evaluate: EvaluateParams = EvaluateParams()
    tracking: TrackingParams = TrackingParams()
    pipeline: PipelineParams = PipelineParams()

    @model_validator(mode="after")
    def _arms_fit(self) -> Params:
        for arm in self.arms:
            try:
                arm.shaping_of(self.shaping)
                arm.agent_of(self.agent)
            except ValidationError as error:
                raise refusals(Params, error, ("arms", arm.name)) from None
        return self

    @model_validator(mode="after")
    def _judges_are_there(self) -> Params:
        for name in self.rewards:
            judge = method_of(self.rewards[name]).judge(self.rewards)
            if judge not in (known := (MAIN, *self.annotate.judges)):
                raise ValueError(
                    f"has rewards.{name}.judge {judge}, which is not a judge of annotate.judges.{closest(judge, known)}"
                )
        if self.pipeline.annotate_shards > 1 and (self.annotate.judges or self.annotate.feedback_seeds > 1):
            raise ValueError(
                f"has pipeline.annotate_shards {self.pipeline.annotate_shards}, but only the shares of a single label "
                f"set can be joined: set annotate_shards to 1, or leave out annotate.judges and "
                f"annotate.feedback_seeds."
            )
        return self

    @model_validator(mode="after")
    def _rounds_are_whole(self) -> Params:
        if self.annotate.in_rounds and self.pipeline.annotate_shards > 1:
            cause = (
                f"annotate.sampler {self.annotate.sampler}"
                if self.annotate.adaptive
                else f"annotate.stop.rule {self.annotate.stop.rule}"
            )
            raise ValueError(
                f"has pipeline.annotate_shards {self.pipeline.annotate_shards}, but {cause} depends on all labels so "
                "far, which parallel steps do not share: set annotate_shards to 1, or use sampler uniform or "
                "frequency and stop.rule none."
            )
        return self

    def dump(self, *sections: str) -> dict[str, Any]:
        """Return the named sections (all by default) as plain JSON values."""
        return self.model_dump(mode="json", include=set(sections) or None)

    def used(self, *sections: str) -> dict[str, Any]:
        """Return the part of a `dump` that can affect results; see `laurel.params.arms.used`."""
        return used({name: getattr(self, name) for name in sections or type(self).model_fields})

    @property
    def judges(self) -> tuple[str, ...]:
        """See `laurel.params.arms.judges_of`."""
        return judges_of(self.arms, self.rewards)

    @property
    def arm_names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def resolved_arms(self) -> dict[str, Arm]:
        """See `laurel.params.resolved_arms.resolve_arms`."""
        return resolve_arms(self.arms, self.rewards, self.shaping, self.agent)

    def narrowed(self, arm: str) -> Params:
        """Return the parameters with only one arm: one of theirs, or a well-known one.

        Raises:
            KeyError: there is no such arm.
        """
        own_arm = next((candidate for candidate in self.arms if candidate.name == arm), None) or arm_of(arm)
        rewards = resolved(self.rewards, own_arm.reward)
        return self.model_copy(update={"arms": (own_arm,), "rewards": rewards})


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing or not YAML, a key or value is not allowed, or answers would be kept in a place
            that the user has not permitted.
    """
    params = parse_params(read_mapping(path), str(path))
    refused = why_responses_are_refused(params.annotate.language_model.responses, path.parent)
    if params.annotate.keeps_responses and refused:
        raise ParamsError(f"{path}: {refused}")
    return params


def parse_params(content: dict[str, Any], source: str) -> Params:
    """Check plain values against the models; `source` is named in errors.

    Raises:
        ParamsError: a key or value is not allowed; one sentence for each.
    """
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise ParamsError(sentences(source, Params, error)) from None
    except ParamsError as error:  # from a validator, which does not know the source
        raise ParamsError(f"{source}: {error}") from None


def parse_sections(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check some sections alone, for a step that gets no others; errors as in `parse_params`."""
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in Params.model_fields.items() if name in content
    }
    try:
        return dict(create_model("Sections", __base__=Section, **fields).model_validate(content))
    except ValidationError as error:
        raise ParamsError(sentences(source, Params, error)) from None
    except ParamsError as error:  # from a validator, which does not know the source
        raise ParamsError(f"{source}: {error}") from None
