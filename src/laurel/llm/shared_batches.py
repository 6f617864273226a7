"""Data-parallel training: each process takes its part of every batch, with the same gradient as a single process.

TRL's trainers average gradients over the processes (PyTorch's DistributedDataParallel). Three things would still differ
from a single process: the order of the rows, the last batch of an epoch, which accelerate fills up with earlier rows,
and means over tokens in the imitation term of SimPO, DPO and KTO, as processes have different numbers of tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Place(NamedTuple):
    """The rank of this process and the number of processes."""

    rank: int
    world: int


def place() -> Place:
    """Return the place assigned by torch.distributed.run; (0, 1) without it."""
    return Place(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def mean_of_all(value: float) -> float:
    """Return the mean of a number over the processes."""
    from accelerate.utils import gather_object

    values: list[float] = gather_object([value])
    return sum(values) / len(values)


def share_of(tokens: Tensor) -> Tensor | float:
    """Return the factor that converts a mean over this process's tokens to its part of the mean over all processes'
    tokens.
    """
    process = place()
    if process.world == 1:
        return 1.0
    from accelerate.utils import reduce

    total: Tensor = reduce(tokens.clone(), "sum")
    return tokens * process.world / total.clamp(min=1)


def processes_for(n: int, processes: int) -> int:
    """Return the largest number of processes, up to a maximum, that can share n rows equally."""
    return next(count for count in range(min(n, processes), 0, -1) if n % count == 0)


class Parts:
    """This process's row indices of each batch, in the order of a single process: unshuffled, or shuffled in each epoch
    as by accelerate's sampler with a seed.

    If the last batch cannot be shared equally, the remainder, fewer rows than there are processes, is left out.
    """

    def __init__(self, n_rows: int, batch_size: int, seed: int | None, process: Place) -> None:
        self._n_rows, self._batch_size, self._seed, self._where = n_rows, batch_size, seed, process
        self._epoch = 0

    def __len__(self) -> int:
        return -(-(self._n_rows // self._where.world * self._where.world) // self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        order = list(range(self._n_rows))
        if self._seed is not None:
            drawn = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(self._n_rows, generator=drawn).tolist()
        self._epoch += 1
        for first in range(0, self._n_rows, self._batch_size):
            batch = order[first : first + self._batch_size]
            share = len(batch) // self._where.world
            if share:
                yield batch[self._where.rank * share : (self._where.rank + 1) * share]


def shared(base: Any, process: Place) -> Any:
    """Return a TRL trainer whose batches are shared by the processes.

    Args:
        base: SFTTrainer, DPOTrainer, KTOTrainer or CPOTrainer; its `per_device_train_batch_size` counts the rows of
            all processes.
        process: this process's place.
    """
    from torch.utils.data import DataLoader

    class Shared(base):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            loader, args = super().get_train_dataloader(), self.args
            seed = args.seed if args.train_sampling_strategy == "random" else None  # KTO does not shuffle rows
            parts: Any = Parts(len(loader.dataset), args.per_device_train_batch_size, seed, process)
            return DataLoader(loader.dataset, batch_sampler=parts, collate_fn=loader.collate_fn)

        def concatenated_forward(self, model: Any, batch: Any) -> Any:  # of CPO
            found = list(super().concatenated_forward(model, batch))
            found[4] = found[4] * share_of((batch["chosen_labels"][:, 1:] != -100).sum())
            return tuple(found)

        def _compute_loss(self, model: Any, inputs: Any, return_outputs: bool) -> Any:  # of DPO and KTO
            if "sft" in getattr(self, "loss_types", ()):
                chosen, _ = inputs["completion_mask"][:, 1:].chunk(2)
                preference, imitation = self.args.loss_weights
                self.loss_weights = [preference, imitation * float(share_of(chosen.sum()))]
            return super()._compute_loss(model, inputs, return_outputs)

    return Shared
