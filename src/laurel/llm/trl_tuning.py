"""Training of a causal language model on its own answers by TRL's trainers: imitation (SFT), pairs (DPO, SimPO), single
answers (KTO), or groups of scored answers to one prompt (GRPO, RLOO, InfoNCE).

Groups were sampled and scored before, and replace the sampling of TRL's GRPO and RLOO. The only loss implemented here
is InfoNCE, which TRL lacks, in place of GRPO's. Each call makes a new trainer and optimizer, so the weights are the
only state between calls.

SimPO: Meng et al. 2024 (arXiv 2405.14734); DPO: Rafailov et al. 2023 (arXiv 2305.18290); KTO: Ethayarajh et al. 2024
(arXiv 2402.01306); GRPO: Shao et al. 2024 (arXiv 2402.03300); RLOO: Ahmadian et al. 2024 (arXiv 2402.14740).
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from laurel.errors import TrainingError
from laurel.extras import need
from laurel.heap import heap_frozen
from laurel.llm.causal import plain_tokenizer, put_weights, trained, weights_of
from laurel.llm.local_model import LocalModel
from laurel.llm.quiet import errors_alone, no_bars
from laurel.llm.shared_batches import mean_of_all, place, shared

if TYPE_CHECKING:
    from torch import Tensor

Loss = Literal["dpo", "kto", "simpo", "infonce", "grpo", "rloo"]
SHORT = 1024
"""Maximum characters of a row for attention without fused kernels; longer rows would take much memory."""
PAIRED: tuple[Loss, ...] = ("dpo", "kto", "simpo")
"""Losses that learn from pairs; the others learn from groups."""


class Pair(NamedTuple):
    """Two answers to a prompt, as texts."""

    prompt: str
    chosen: str
    rejected: str


class Group(NamedTuple):
    """k answers to a prompt with their scores; all groups of a call have the same k."""

    prompt: str
    answers: tuple[str | Sequence[int], ...]
    """Texts, to which the model's end token is added; or sampled tokens, including end tokens."""
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of training in one call."""

    learning_rate: float = 1e-3
    batch_size: int = 64
    """Batch size of a step: pairs; at most so many groups (infonce) or answers of groups (grpo, rloo)."""
    epochs: int = 1
    beta: float = 2.0
    """Of dpo, kto and simpo: scale of the implicit reward; of infonce: 1 / temperature; of grpo and rloo: weight of the
    KL divergence from the model before the call."""
    gamma: float = 0.5
    """simpo only: target margin between the chosen and the rejected answer."""
    imitation: float = 0.1
    """Weight of the chosen answer's negative log-likelihood; not for grpo and rloo."""
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    """grpo and rloo only: temperature at which the answers were sampled."""


def imitate(local: LocalModel, rows: Sequence[tuple[str, str]], tuning: Tuning, seed: int) -> float:
    """Train the model in place on rows of prompts and answers; return the loss.

    Raises:
        MissingPackageError: TRL is not installed.
        TrainingError: the loss is NaN or infinite.
    """
    need("trl")
    from trl import SFTConfig, SFTTrainer

    data = [{"prompt": prompt, "completion": answer} for prompt, answer in rows]
    return _train(local, SFTTrainer, SFTConfig, data, tuning, seed, {"max_length": local.context})


def learn_from_pairs(local: LocalModel, pairs: Sequence[Pair], loss: Loss, tuning: Tuning, seed: int) -> float:
    """Train the model in place to prefer the chosen answers; return the loss.

    The reference of dpo and kto is the model before the call.

    Raises:
        MissingPackageError: TRL is not installed.
        TrainingError: the loss is NaN or infinite.
    """
    need("trl")
    data = [pair._asdict() for pair in pairs]
    extra: dict[str, Any] = {"max_length": local.context, "beta": tuning.beta}
    if loss == "simpo":
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # experimental, but the version is pinned
        from trl.experimental.cpo import CPOConfig, CPOTrainer

        extra |= {"loss_type": "simpo", "simpo_gamma": tuning.gamma, "cpo_alpha": tuning.imitation}
        extra |= {"remove_unused_columns": False}
        return _train(local, CPOTrainer, CPOConfig, data, tuning, seed, extra)
    if loss == "dpo":
        from trl import DPOConfig, DPOTrainer

        if tuning.imitation:
            extra |= {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, tuning.imitation]}
        return _train(local, DPOTrainer, DPOConfig, data, tuning, seed, extra, reference=True)
    if loss != "kto":
        raise ValueError(f"{loss} does not learn from pairs")
    from trl import KTOConfig, KTOTrainer

    from laurel.llm.kto import imitating, mismatched

    single = mismatched(pairs, tuning.batch_size, seed)
    extra["per_device_train_batch_size"] = 2 * tuning.batch_size
    # keeps the order of rows and batches; other processes would not find a cache file
    extra["precompute_ref_log_probs"] = tuning.epochs > 1 and place().world == 1
    trainer = imitating(KTOTrainer, tuning.imitation) if tuning.imitation else KTOTrainer
    return _train(local, trainer, KTOConfig, single, tuning, seed, extra, reference=True)


def learn_from_groups(local: LocalModel, groups: Sequence[Group], loss: Loss, tuning: Tuning, seed: int) -> float:
    """Train the model in place towards the answers with the higher scores of their group; return the loss.

    infonce: the negative logarithm of the total probability of the best answers (all with the highest score) in a
    softmax over the group of beta times the log-probability per token. grpo and rloo: the reference is the model before
    the call.

    Raises:
        MissingPackageError: TRL is not installed.
        TrainingError: the loss is NaN or infinite.
    """
    return _of_groups(local, groups, loss, tuning, seed, {})


def gradient_of_groups(
    local: LocalModel, groups: Sequence[Group], loss: Loss, tuning: Tuning, seed: int
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss of all groups and its gradient with respect to the LoRA weights, for the caller's optimizer.

    The reference is the model without its LoRA weights.

    Args:
        local: the model, which is not modified.
        groups: of equal size; batches of `tuning.batch_size` answers only save memory.
        loss: grpo or rloo.
        tuning: max_grad_norm clips the gradient; beta, batch_size and temperature as in training.

    Raises:
        MissingPackageError: TRL is not installed.
        TrainingError: the loss is NaN or infinite.
    """
    weights = weights_of(local.model)
    batches = sum(len(group.answers) for group in groups) // tuning.batch_size
    changes = {"optim": "sgd", "learning_rate": 1.0, "gradient_accumulation_steps": batches}
    loss_value = _of_groups(local, groups, loss, tuning, seed, changes, from_base=True)
    gradient = {name: weights[name] - weight for name, weight in weights_of(local.model).items()}  # a step of plain SGD
    put_weights(local.model, weights)
    return loss_value, gradient


def step_of(groups: Sequence[Any], loss: str, tuning: Tuning, processes: int = 1) -> int:
    """Return how many groups a step takes. In each pass TRL drops the groups that do not fill a last step.

    So among the sizes from half of `tuning.batch_size` up to it that the processes can share equally, those that leave
    the fewest groups over are considered, and the largest of them is taken.
    """
    limit = tuning.batch_size if loss == "infonce" else max(1, tuning.batch_size // len(groups[0].answers))
    if len(groups) <= limit:
        return len(groups)
    sizes = [size for size in range(limit, limit // 2, -1) if size % processes == 0]
    return min(sizes, key=lambda size: len(groups) % size, default=limit)


def _of_groups(
    local: LocalModel,
    groups: Sequence[Group],
    loss: Loss,
    tuning: Tuning,
    seed: int,
    changes: Mapping[str, Any],
    *,
    from_base: bool = False,
) -> float:
    need("trl")
    from unittest.mock import patch

    def reference(*_: Any, attn_implementation: str, **__: Any) -> Any:
        model = _copy(local)
        model.set_attn_implementation(attn_implementation)
        return model

    size, world = len(groups[0].answers), place().world
    extra: dict[str, Any] = {
        "num_generations": size,
        "beta": tuning.beta,
        "temperature": tuning.temperature,
        "max_completion_length": local.context,
        "per_device_train_batch_size": step_of(groups, loss, tuning, world) // world * size,
        **changes,
    }
    if loss in ("grpo", "infonce"):
        from trl import GRPOConfig, GRPOTrainer

        trainer, config, home = GRPOTrainer, GRPOConfig, GRPOTrainer.__module__
        if loss == "infonce":
            trainer = _contrastive(trainer, tuning)
            # no reference; scores minus their group's mean; likelihoods are the model's own
            extra |= {"beta": 0.0, "scale_rewards": "none", "temperature": 1.0}
    elif loss == "rloo":
        from trl import RLOOConfig, RLOOTrainer

        trainer, config, home = RLOOTrainer, RLOOConfig, RLOOTrainer.__module__
    else:
        raise ValueError(f"{loss} does not learn from groups")
    sampler = None if from_base or loss == "infonce" else _sampler(local, tuning.temperature)
    recorded = _recorded(trainer, groups, sampler, returns_log_probs=loss != "rloo")
    data = [{"prompt": group.prompt} for group in groups]
    reward = {"reward_funcs": [recorded.scores_of]}
    # without LoRA weights TRL would load the reference from the directory of the untrained model, if it is still there
    with patch(f"{home}.create_model_from_path", reference):
        return _train(local, recorded, config, data, tuning, seed, extra, arguments=reward, from_base=from_base)


def _sampler(local: LocalModel, temperature: float) -> Any:
    """Return a copy of the model as it is, for TRL to ask for likelihoods at a temperature."""
    from trl.trainer import add_fused_lm_head

    model = _copy(local).eval().requires_grad_(False)
    add_fused_lm_head(model.get_base_model() if hasattr(model, "peft_config") else model, temperature)
    return model


def _contrastive(base: Any, tuning: Tuning) -> Any:
    """Return TRL's GRPO with InfoNCE as its loss."""
    import torch

    class Contrastive(base):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            outputs = super()._generate_and_score_completions(inputs)
            return {**outputs, "place": torch.arange(len(inputs))}  # TRL shuffles the answers of a batch

        def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
            mask = inputs["completion_mask"]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            seen = torch.cat([inputs["prompt_mask"], mask], dim=1)
            logs, *_ = self._get_per_token_logps_and_entropies(model, ids, seen, mask.shape[1])
            mean = (logs * mask).sum(dim=1) / mask.sum(dim=1)
            order = inputs["place"].argsort()
            mean, score = (row[order].view(-1, self.num_generations) for row in (mean, inputs["advantages"]))
            best = score == score.max(dim=1, keepdim=True).values
            share = (tuning.beta * mean).log_softmax(dim=1).masked_fill(~best, -torch.inf).logsumexp(dim=1)
            imitated = (mean * best).sum(dim=1) / best.sum(dim=1)
            return -(share + tuning.imitation * imitated).mean()

    return Contrastive


def _recorded(base: Any, groups: Sequence[Group], sampler: Any, *, returns_log_probs: bool) -> Any:
    """Return TRL's trainer of groups with recorded answers instead of sampling.

    Args:
        sampler: the model that sampled them, whose likelihoods the clipped ratios of grpo and rloo divide by; TRL takes
            the trained model's own, since it would sample again for each step. None: there is one step, or no ratio.
    """
    import torch
    from accelerate.utils import gather_object

    waiting: dict[str, list[Group]] = {}
    for group in reversed(groups):
        waiting.setdefault(group.prompt, []).append(group)
    drawn: list[float] = []

    class Recorded(base):  # type: ignore[misc]
        def _generate(self, prompts: list[str]) -> Any:
            self.laurel_prompts = prompts
            return super()._generate(prompts)

        def _generate_single_turn(self, prompt_ids: Any, *_: Any) -> Any:
            drawn.clear()
            answers: list[str | Sequence[int]] = []
            prompts = self.laurel_prompts[:: self.num_generations]
            first = place().rank * len(prompts)
            for number, prompt in enumerate(gather_object(prompts)):  # of all processes
                left = waiting[prompt]
                group = left.pop()
                left.insert(0, group)  # for the next epoch
                if first <= number < first + len(prompts):
                    answers += group.answers
                    drawn.extend(group.scores)
            end = self.processing_class.eos_token_id
            ids = [
                [*self.processing_class(answer, add_special_tokens=False)["input_ids"], end]
                if isinstance(answer, str)
                else list(answer)
                for answer in answers
            ]
            return (ids, None) if returns_log_probs else ids

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            outputs = super()._generate_and_score_completions(inputs)
            if sampler is None:
                return outputs
            mask = outputs["completion_mask"]
            ids = torch.cat([outputs["prompt_ids"], outputs["completion_ids"]], dim=1)
            seen = torch.cat([outputs["prompt_mask"], mask], dim=1)
            with torch.no_grad():
                logs, *_ = self._get_per_token_logps_and_entropies(sampler, ids, seen, mask.shape[1])
            return {**outputs, "old_per_token_logps": logs, "old_logps": (logs * mask).sum(dim=1)}

        @staticmethod
        def scores_of(**_: Any) -> list[float]:
            return list(drawn)

    return Recorded


@heap_frozen(cleared=True)  # accelerate collects garbage before it trains
def _train(
    local: LocalModel,
    trainer: Any,
    config: Any,
    data: list[dict[str, Any]],
    tuning: Tuning,
    seed: int,
    extra: Mapping[str, Any],
    *,
    reference: bool = False,
    from_base: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> float:
    """Train a copy, which TRL may modify, and copy its weights back; frozen weights are shared."""
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback

    process = place()
    if process.world > 1 and not hasattr(trainer, "scores_of"):  # trainers of groups do this themselves
        trainer = shared(trainer, process)
    disable_progress_bars()
    model = _copy(local)
    if local.device.type == "cpu" and max(sum(len(str(text)) for text in row.values()) for row in data) <= SHORT:
        model.set_attn_implementation("eager")  # plain matrix products take a sixth less time for short rows
    with tempfile.TemporaryDirectory(prefix="laurel-") as scratch, warnings.catch_warnings(), errors_alone():
        warnings.simplefilter("ignore")  # TRL uses names that transformers has deprecated
        settings: dict[str, Any] = {
            "output_dir": scratch,
            "num_train_epochs": tuning.epochs,
            "learning_rate": tuning.learning_rate,
            "lr_scheduler_type": "constant",
            "per_device_train_batch_size": tuning.batch_size,
            "max_grad_norm": tuning.max_grad_norm,
            "weight_decay": 0.0,
            "bf16": False,
            "gradient_checkpointing": False,
            "use_cpu": local.device.type == "cpu",
            "report_to": [],
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "seed": seed % 2**32,
        }
        options = dict(arguments or {})
        if reference and not hasattr(model, "peft_config"):
            options["ref_model"] = _copy(local)
        with no_bars():
            runner = trainer(
                model=model,
                args=config(**{**settings, **extra}),
                processing_class=plain_tokenizer(local),
                train_dataset=Dataset.from_list(data),
                **options,
            )
        runner.remove_callback(PrinterCallback)  # it would write to standard output
        if from_base and "ref" in runner.model.peft_config:
            runner.model.delete_adapter("ref")  # TRL's copy of the adapter; without one it uses the base model
        loss = float(runner.train().training_loss)
        loss = mean_of_all(loss) if process.world > 1 else loss
    if not math.isfinite(loss):
        raise TrainingError("The language model's loss is NaN or infinite: lower its learning_rate.")
    put_weights(local.model, dict(weights_of(model)))
    return loss


def _copy(local: LocalModel) -> Any:
    """Copy a model, its frozen weights shared."""
    changed = {id(weight) for _, weight in trained(local.model)}
    shared = {id(weight): weight for weight in local.model.parameters() if id(weight) not in changed}
    return copy.deepcopy(local.model, shared)
