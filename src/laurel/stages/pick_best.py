"""pick-best: the trials of all candidates → the best parameters. Joins trials from several machines.

The result equals that of `tune.run` with the same candidates, without pruning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laurel.data.lineage import read_inputs
from laurel.data.manifest import checked_manifest
from laurel.data.usage import Usage, added
from laurel.errors import DataError
from laurel.params import Params
from laurel.params.search import Sweep
from laurel.stages.try_candidate import STAGE
from laurel.stages.tune import publish, used_by
from laurel.tuning.trials import TRIALS, read_trials


def run(
    params: Params,
    captions: Path,
    preferences: Path,
    reward: Path,
    shards: Sequence[Path],
    output: Path,
    *,
    sweep: Sweep,
) -> str:
    """Compare candidates that were tried in separate steps; return a summary as text.

    Args:
        captions: output of the caption stage, used by the trials.
        preferences: output of the annotate stage, used by the trials.
        reward: output of the train-reward stage, used by the trials.
        shards: outputs of the try-candidate stage, in any order.
        output: directory to write best.yaml, trials.csv, figures/ and more into.

    Raises:
        DataError: a shard is missing, damaged, duplicated or of another sweep; or no trial has a score.
    """
    used = used_by(params, sweep)
    inputs = {"captions": captions, "preferences": preferences, "reward": reward}
    digests = {name: manifest["digest"] for name, manifest in read_inputs(used, inputs).items()}
    trials, usage = [], Usage()
    for path in shards:
        manifest = checked_manifest(path, STAGE)
        tried = dict(manifest["params"].pop("tune"))
        tried_sweep = {key: tried[key] for key in sweep.write()}
        if tried_sweep != sweep.write() or manifest["params"] != used or manifest["inputs"] != digests:
            raise DataError(f"{path}: holds a trial of another sweep. Try its candidate again.")
        trials += read_trials(path / TRIALS)
        usage = added(usage, manifest["usage"])
    numbers = [trial.number for trial in trials]
    if sorted(numbers) != list(range(len(numbers))):
        raise DataError(f"The trials {sorted(numbers)} must include each candidate exactly once. Run the missing ones.")
    trials.sort(key=lambda trial: trial.number)
    return publish(params, sweep, trials, inputs, output, usage)
