"""The pipeline on KFP: the stages of dvc.yaml as a graph, with parallel branches.

    plan → collect → caption → annotate → train-reward → [train-agents, an arm or less each] → merge-agents → evaluate

The plan checks the whole run before any other step starts, and says what the branches of train-agents are. `judges`
names the judges that the arms need: other arms with the same judges take the labels from KFP's cache. A sweep has
[try-candidate, one each] → pick-best after train-reward. Actors with agent.language_model.shards have, beside
train-agents, for each round [propose, a shard each] → train-round. With several collect.parts or annotate_shards,
collect and annotate are loops with a merger, too. Whatever happens, `finish` closes the run in MLflow. The sections of
params.yaml are arguments of a run, each step takes those that its stage reads, as in dvc.yaml: so a change reruns what
it touches, and the rest comes from KFP's cache.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

import laurel.components
from laurel import __version__
from laurel.components import IMAGE
from laurel.components.annotate import annotate as annotate_step
from laurel.components.caption import caption as caption_step
from laurel.components.collect import collect as collect_step
from laurel.components.encoding import encoded
from laurel.components.evaluate import evaluate as evaluate_step
from laurel.components.finish import finish as finish_step
from laurel.components.judges import judges as judges_step
from laurel.components.merge_agents import merge_agents as merge_agents_step
from laurel.components.merge_preferences import merge_preferences as merge_preferences_step
from laurel.components.merge_trajectories import merge_trajectories as merge_trajectories_step
from laurel.components.pick_best import pick_best as pick_best_step
from laurel.components.plan import plan as plan_step
from laurel.components.propose import propose as propose_step
from laurel.components.train_agents import train_agents as train_agents_step
from laurel.components.train_reward import train_reward as train_reward_step
from laurel.components.train_round import train_round as train_round_step
from laurel.components.try_candidate import try_candidate as try_candidate_step
from laurel.data.written import written_whole
from laurel.errors import DataError
from laurel.params import Params
from laurel.pipelines.accelerators import ACCELERATORS, CLUSTER
from laurel.pipelines.machines import check_accelerators, resources, sampler
from laurel.pipelines.sweep import SweepPlan
from laurel.stages.proposal_rounds import ProposalRounds

NAME = "laurel"
GPU = "-gpu"
"""Suffix of the tag of an image with CUDA."""
BACKOFF = {"backoff_duration": "30s", "backoff_factor": 2.0, "backoff_max_duration": "300s"}
"""When a step that failed is tried again: after half a minute, after a minute, and so on."""

Place = Callable[[dsl.PipelineTask, str], dsl.PipelineTask]
"""Sets the machine of a task, by the name of its step."""


def arguments(params: Params, code_version: str = __version__) -> dict[str, Any]:
    """Return the arguments of a run: the sections of the parameters, and the version of the code."""
    content = params.dump()
    content.pop("pipeline")  # the form of the graph, which is compiled
    return {**encoded(content), "code_version": code_version}


def digest_of_sources() -> str:
    """Return a digest of Laurel's files on disk: code, prompts and other data. A commit does not cover uncommitted
    changes.
    """
    digest = hashlib.sha256()
    for package in (laurel, laurel.components):
        for folder in map(Path, package.__path__):
            for file in sorted(folder.rglob("*")):
                name = file.relative_to(folder)
                if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in name.parts):
                    digest.update(f"{name.as_posix()}\0{file.stat().st_size}\0".encode())
                    digest.update(file.read_bytes())
    return digest.hexdigest()


def gpu_variant(image: str) -> str:
    """Return the name that `make image-gpu` gives the CUDA variant of an image; a digest is returned unchanged."""
    _, colon, tag = image.rpartition(":")
    plain = not colon or "/" in tag or "@" in image or tag.endswith(GPU)
    return image if plain else f"{image}{GPU}"


def make_pipeline(
    params: Params,
    *,
    image: str = IMAGE,
    gpu_image: str | None = None,
    code_version: str = __version__,
    environment: Mapping[str, str] | None = None,
    cluster: bool = False,
    on_this_machine: bool = False,
    retries: int | None = None,
    sweep: SweepPlan | None = None,
) -> Callable[..., Any]:
    """Return the pipeline; its parameters are the sections of params.yaml, and `code_version`.

    Args:
        params: defaults of the pipeline's parameters. Section `pipeline`, and the number of parts and shards, are its
            form.
        image: what the steps run in; its reference is part of what KFP caches by.
        gpu_image: what those with an accelerator run in; None takes `gpu_variant` of the image.
        code_version: default of the parameter of that name; part of what KFP caches by.
        environment: variables that every step finds in its environment. They are stored in clear: no secrets.
        cluster: for Kubernetes, where any GPU is `nvidia.com/gpu`; Vertex AI wants its type.
        on_this_machine: for KFP's local runners, which have no resource settings and need no delay between attempts.
        retries: further attempts at a step that failed; None takes pipeline.retries.
        sweep: candidates to try, each in its own branch, instead of training and evaluating all arms.

    Raises:
        ParamsError: an accelerator would stand idle.
    """
    default = arguments(params, code_version)
    rounds = ProposalRounds.of(params) if sweep is None else None
    machines = resources(params)
    machines |= {"train-round": machines["train-agents"], "propose": sampler(params)}
    if not on_this_machine:
        check_accelerators(params)

    def place(task: dsl.PipelineTask, step: str) -> dsl.PipelineTask:
        """Set a task's machine and retries."""
        task.set_container_image(image)
        for name, value in (environment or {}).items():
            task.set_env_variable(name, value)
        if n_retries:
            task.set_retry(n_retries, **({} if on_this_machine else BACKOFF))
        if on_this_machine:
            return task
        machine = machines[step]
        if machine.accelerator:
            task.set_container_image(gpu_image or gpu_variant(image))
        task.set_cpu_limit(f"{machine.cpu:g}").set_memory_limit(machine.memory)
        if machine.accelerator:
            kind = CLUSTER if cluster else ACCELERATORS[machine.accelerator].vertex
            task.set_accelerator_type(kind).set_accelerator_limit(machine.accelerators)
        return task

    n_retries = params.pipeline.retries if retries is None else retries
    at_once = params.pipeline.parallelism
    parts, shards = params.collect.parts, params.pipeline.annotate_shards

    @dsl.pipeline(
        name=NAME,
        description="Language-model feedback as reward for reinforcement learning, from collection to report.",
    )
    def laurel(
        seed: int = default["seed"],
        env: dict[str, Any] = default["env"],
        collect: dict[str, Any] = default["collect"],
        caption: dict[str, Any] = default["caption"],
        annotate: dict[str, Any] = default["annotate"],
        arms: list[dict[str, Any]] = default["arms"],
        rewards: dict[str, Any] = default["rewards"],
        shaping: dict[str, Any] = default["shaping"],
        agent: dict[str, Any] = default["agent"],
        evaluate: dict[str, Any] = default["evaluate"],
        tracking: dict[str, Any] = default["tracking"],
        code_version: str = default["code_version"],
    ) -> None:
        """Learn a reward from a language model's preferences, train agents on it, and compare them.

        Args:
            seed: All random numbers derive from it.
            env: Section env of params.yaml: which environment.
            collect: Section collect: environment steps, and who acts.
            caption: Section caption: how transitions are described in words.
            annotate: Section annotate: who judges how many pairs.
            arms: Section arms: what is compared.
            rewards: Section rewards: the methods of making rewards, and their settings.
            shaping: Section shaping: from the learned reward to what the agent is paid.
            agent: Section agent: seeds and the training of agents.
            evaluate: Section evaluate: fresh episodes, and what is shown.
            tracking: Section tracking: what is logged to MLflow.
            code_version: Commit or version of the code in the image. Steps are cached by it, too: change it whenever
                an image is built anew under an old name.
        """
        common = {"env": env, "tracking": tracking, "code_version": code_version}
        name, job = dsl.PIPELINE_JOB_NAME_PLACEHOLDER, dsl.PIPELINE_JOB_ID_PLACEHOLDER
        ending = finish_step(env=env, tracking=tracking, run=name, job=job)
        place(ending, "finish").set_caching_options(enable_caching=False)
        with dsl.ExitHandler(ending, name="stages"):
            planned = plan_step(
                **common,
                seed=seed,
                collect=collect,
                caption=caption,
                annotate=annotate,
                arms=arms,
                rewards=rewards,
                shaping=shaping,
                agent=agent,
                evaluate=evaluate,
                run=name,
                collect_parts=parts,
                seeds_per_step=params.pipeline.seeds_per_step or 0,
                rounds=json.dumps(rounds.write()) if rounds else "",
            )
            plan = place(planned, "plan").set_caching_options(enable_caching=False)

            collecting = {**common, "seed": seed, "collect": collect}
            if parts == 1:
                trajectories = place(collect_step(**collecting), "collect").after(plan).outputs["trajectories"]
            else:
                with dsl.ParallelFor(items=list(range(parts)), name="parts", parallelism=at_once) as part:
                    collecting_part = place(collect_step(**collecting, part=part), "collect").after(plan)
                    collected = collecting_part.outputs["trajectories"]
                merging = merge_trajectories_step(**collecting, parts=dsl.Collected(collected))
                trajectories = place(merging, "merge-trajectories").outputs["trajectories"]

            captioning = {**common, "caption": caption}
            captions = place(caption_step(**captioning, trajectories=trajectories), "caption").outputs["captions"]

            needed = place(judges_step(**common, arms=arms, rewards=rewards, shards=shards), "judges").after(plan)
            feedback = {**captioning, "seed": seed, "annotate": annotate}
            annotating = {**feedback, "captions": captions}
            if shards == 1:
                judging = annotate_step(**annotating, judges=needed.output)
                preferences = place(judging, "annotate").outputs["preferences"]
            else:
                with dsl.ParallelFor(items=needed.output, name="shares", parallelism=at_once) as share:
                    judging = annotate_step(**annotating, share=share)
                    judged = place(judging, "annotate").outputs["preferences"]
                merging = merge_preferences_step(**annotating, judges=needed.output, shards=dsl.Collected(judged))
                preferences = place(merging, "merge-preferences").outputs["preferences"]

            feedback |= {
                "arms": arms,
                "rewards": rewards,
                "agent": agent,
                "captions": captions,
                "preferences": preferences,
            }
            fitting = train_reward_step(**feedback, trajectories=trajectories)
            model = place(fitting, "train-reward").outputs["model"]

            training = {**feedback, "shaping": shaping, "model": model}
            if sweep is not None:
                _fan_out(sweep, {**training, "collect": collect}, place, at_once)
                return
            trained = _train(plan, rounds, training, place, at_once)
            merging = merge_agents_step(**training, **dict(zip(("shards", "rounds"), trained, strict=False)))
            agents = place(merging, "merge-agents").outputs["agents"]

            evaluating = evaluate_step(
                **training,
                collect=collect,
                evaluate=evaluate,
                trajectories=trajectories,
                agents=agents,
            )
            place(evaluating, "evaluate").set_caching_options(enable_caching=False)

    return laurel


def _train(
    plan: dsl.PipelineTask,
    rounds: ProposalRounds | None,
    training: Mapping[str, Any],
    place: Place,
    at_once: int | None,
) -> list[dsl.Collected]:
    """Train the agents of all branches, and those trained in rounds; return the output of each loop in use."""
    branches = []
    if rounds is None or not rounds.alone:
        with dsl.ParallelFor(items=plan.output, name="branches", parallelism=at_once) as branch:
            trained = place(train_agents_step(**training, branch=branch), "train-agents").outputs["agents"]
        branches.append(dsl.Collected(trained))
    if rounds is not None:
        branches.append(dsl.Collected(_train_in_rounds(rounds, training, place, at_once)))
    return branches


def _train_in_rounds(rounds: ProposalRounds, training: Mapping[str, Any], place: Place, at_once: int | None) -> Any:
    """Train actors round by round, each round's shards sampled side by side; return the output of the last round.

    Sampling a round needs only the checkpoint from before it.
    """
    sampling = {name: value for name, value in training.items() if name not in ("captions", "preferences", "model")}
    with dsl.ParallelFor(
        items=[agent.write() for agent in rounds.agents], name="actors", parallelism=at_once
    ) as branch:
        beginning = train_round_step(**training, branch=branch, round_number=rounds.first)
        agents = place(beginning, "train-round").outputs["agents"]
        for number in range(rounds.first + 1, rounds.rounds + 1):
            with dsl.ParallelFor(
                items=list(range(rounds.shards)), name=f"round-{number}", parallelism=at_once
            ) as shard:
                proposing = propose_step(**sampling, branch=branch, round_number=number, shard=shard, begun=agents)
                proposals = place(proposing, "propose").outputs["proposals"]
            learned = dsl.Collected(proposals)
            learning = train_round_step(**training, branch=branch, round_number=number, begun=agents, proposals=learned)
            agents = place(learning, "train-round").outputs["agents"]
    return agents


def _fan_out(sweep: SweepPlan, training: Mapping[str, Any], place: Place, at_once: int | None) -> None:
    """Try every candidate in its own branch, on a machine for training; then pick the best."""
    with dsl.ParallelFor(items=sweep.branches, name="candidates", parallelism=at_once) as candidate:
        trying = try_candidate_step(**training, sweep=sweep.written, candidate=candidate)
        tried = place(trying, "train-agents").outputs["trial"]
    picking = pick_best_step(**training, sweep=sweep.written, shards=dsl.Collected(tried))
    place(picking, "merge-agents").set_caching_options(enable_caching=False)


def compile_pipeline(output: Path, params: Params, **form: Any) -> None:
    """Write the pipeline as YAML that KFP and Vertex AI take; the other arguments are those of `make_pipeline`.

    Raises:
        DataError: the file cannot be written, or is not to be YAML.
        ParamsError: as `make_pipeline`.
    """
    if output.suffix not in (".yaml", ".yml"):
        raise DataError(f"{output}: the pipeline is YAML. Choose a name that ends in .yaml.")
    pipeline = make_pipeline(params, **form)
    with written_whole(output, " Choose another --output.") as partial:
        compiler.Compiler().compile(pipeline, str(partial))
        text = partial.read_text(encoding="utf-8")
        # KFP's comments on the defaults name their keys in another order each time
        partial.write_text(re.sub(r"(?m)^(#\s+\w+: (?:dict|list)) \[Default: .*\]$", r"\1", text), encoding="utf-8")
