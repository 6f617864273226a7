"""Writes benchmarks/README.md, every record in benchmarks/results as a row of one table, and README's lines on speed.

    python benchmarks/table.py

Reads the records; does no measuring.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HEAD = """# Benchmarks

`make bench` runs all benchmarks and writes this table from the records in `results/`. Peers and limits are measured in
the same run on the same machine; figures of different machines are not comparable.

| benchmark | value | unit | target | met | peer or limit | its value | command | machine, date |
|---|---|---|---|---|---|---|---|---|
"""
NOT_MEASURED = {
    "gpu_judge": "No GPU was available: how close Laurel comes to vLLM's offline rate with a 7B judge is not known. On "
    "a machine with a GPU and vLLM, `python benchmarks/gpu_judge.py` measures it.",
    "device_ppo": "No GPU was available: PPO on a device was only run on the CPU, for which there is no target. On a "
    "GPU the target is half of the rate at which the environments step alone, with 256 agents at once.",
}
"""Benchmark -> why it has no record, or none with its target met or missed."""
SPEED = re.compile(r"^\*\*Speed\*\*.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
"""The paragraph on speed in README.md."""


def main() -> None:
    """Write the table and README's paragraph, and print the table."""
    text = table()
    (HERE / "README.md").write_text(text, encoding="utf-8")
    readme = HERE.parent / "README.md"
    told = speed()
    readme.write_text(SPEED.sub(lambda _: told, readme.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    sys.stdout.write(text)


def speed() -> str:
    """Return what README.md says about speed: three lines."""
    by_name = {record["benchmark"]: record for record in _records()}
    jax, compiled = by_name["cartpole_ppo_jax"]["value"]
    run = by_name["run_time"]
    share = run["peer_value"][0] / run["seconds"]["train-agents"]
    cartpole, doorkey, bound, pipeline = (
        _cpu(by_name[name]) for name in ("cartpole_ppo", "doorkey_ppo", "limits", "run_time")
    )
    return (
        f"**Speed**, on two cores: PPO solves CartPole in {by_name['cartpole_ppo']['value']:.2f} s ({cartpole}), at "
        f"{by_name['cartpole_ppo_sb3']['value']:.0f} times the steps per second of Stable-Baselines3 and {jax:.1f} "
        f"times those of a JAX loop\nincluding its compilation ({compiled:.1f} times without it), each with its own "
        f"settings. In DoorKey with a reward per caption it is {by_name['doorkey_ppo']['value']:.0f} times as fast as "
        f"Stable-Baselines3 ({doorkey}),\nand reaches {by_name['limits']['value'][0]:.0%} of the bound that matrix "
        f"products and environments set for one core ({bound}); `make run`, on both, {share:.0%} ({pipeline}). [All "
        "figures, and missed targets](benchmarks/README.md).\n"
    )


def _cpu(record: Mapping[str, Any]) -> str:
    """Return the maker and family of the processor, such as Intel Xeon."""
    return " ".join(record["machine"].partition(" cores of ")[2].partition(",")[0].replace("(R)", "").split()[:2])


def _records() -> list[dict[str, Any]]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((HERE / "results").glob("*.json"))]


def table() -> str:
    """Return the page of all records."""
    records = _records()
    text = HEAD + "\n".join(map(_row, records)) + "\n"
    missed = [record for record in records if record["met"] is False]
    if missed:
        text += "\n## Missed targets, and why\n" + "".join(map(_explained, missed))
    measured = {record["benchmark"] for record in records if record["met"] is not None}
    unmeasured = {name: reason for name, reason in NOT_MEASURED.items() if name not in measured}
    if unmeasured:
        text += "\n## Not measured\n" + "".join(f"\n**{name}.** {reason}\n" for name, reason in unmeasured.items())
    explained = [
        record
        for record in records
        if record not in missed and ({"why", "profile", "cpu_seconds_of_a_start"} & set(record))
    ]
    if explained:
        text += "\n## Where the rest goes\n" + "".join(map(_explained, explained))
    return text


def _explained(record: dict[str, Any]) -> str:
    """Explain a figure, with the record's profile if it has one: setting -> part -> numbers."""
    reason = record.get("why", "Not yet explained." if record["met"] is False else "")
    text = f"\n**{record['benchmark']}.** {reason}".rstrip() + "\n"
    if starts := record.get("cpu_seconds_of_a_start"):
        told = ", ".join(f"{stage} {seconds:g}" for stage, seconds in starts.items())
        text += f"\nCPU seconds to start a stage: {told}.\n"
    profile: dict[str, dict[str, list[float]]] = record.get("profile", {})
    if profile:
        parts = dict.fromkeys(part for figures in profile.values() for part in figures)
        text += (
            f"\n| {record.get('profile_unit', 'seconds of')} | {' | '.join(profile)} |\n|---|{'---|' * len(profile)}\n"
        )
        for part in parts:
            cells = [
                " → ".join(f"{number:.2f}" for number in figures[part]) if part in figures else "-"
                for figures in profile.values()
            ]
            text += f"| {part} | {' | '.join(cells)} |\n"
    return text


def _row(record: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}[record["met"]]
    shown = [record["benchmark"], _shown(record["value"]), record["unit"], record["target"], met, record["peer"] or "-"]
    shown += [_shown(record["peer_value"]), f"`{record['command']}`", f"{record['machine']}, {record['date']}"]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in shown) + " |"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.4g}"
        case _:
            return str(value)


if __name__ == "__main__":
    main()
