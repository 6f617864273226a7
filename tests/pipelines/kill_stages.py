"""Kill a stage at its steps, one after the other: `python kill_stages.py PROJECT STAGE EVERY`.

The project has an old output of the stage, made with other params. After a kill the place must hold the old
output, the new one, or nothing; done again, it must hold the new one, and nothing must be left beside it.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import torch
from killer import done, killed_at

from laurel.envs import adapter_for
from laurel.llm.encoder import load_encoder
from laurel.params.rewards import PreferenceParams
from tiny_project import Project, lasting_content


def main(folder: str, stage: str, every: str) -> None:
    project = Project(Path(folder))
    for module in (
        "laurel.rewards.training",
        "laurel.feedback.annotators.embedding",
        "laurel.envs.vector",
        "laurel.data.captions",
    ):
        importlib.import_module(module)  # once, not in every process
    torch.set_num_threads(1)  # a fork would wait for OpenMP's threads, which it does not have
    adapter_for(project.params.env)
    load_encoder(PreferenceParams(kind="preference").encoder)
    place = project.output(stage)
    kept = project.path / "kept"
    shutil.copytree(place, kept)
    old = lasting_content(place)
    done(lambda: project.run(stage))
    new = lasting_content(place)
    assert old != new
    n, seen = 1, []
    while True:
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        if not killed_at(n, lambda: project.run(stage), place.parent):
            break
        for _ in range(2):  # from what a kill has left, too
            if place.exists():
                seen.append(lasting_content(place))
                assert seen[-1] in (old, new), f"half an output after a kill before step {n}"
            killed_at(n, lambda: project.run(stage), place.parent)
        done(lambda: project.run(stage))
        assert lasting_content(place) == new, f"another result after a kill before step {n}"
        beside = [path.name for path in place.parent.iterdir() if path.name.startswith(f".{place.name}")]
        assert beside == [f".{place.name}.lock"], f"{beside} after a kill before step {n}"
        n += int(every)
    assert old in seen
    sys.stdout.write(f"killed up to step {n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
