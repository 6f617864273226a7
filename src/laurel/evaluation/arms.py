"""The arms of an experiment: their order, the main one, and which ones it is compared with.

Follows roles and rewards, never names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from laurel.params.arm_infos import ArmInfo

Group = Literal["baseline", "ours", "control", "contender", "bound", "untrained"]
"""Groups of arms that share a style in figures and are listed together. ours: the main arm and methods paid the same
rewards; contender: other methods; untrained: actors that are neither trained nor methods."""
DRAWS_TASKS = "draws_tasks"
"""Key in metrics.json that marks arms whose tasks a curriculum chose; other arms lack it."""
GROUPS: tuple[Group, ...] = get_args(Group)


def ordered(arms: Iterable[ArmInfo]) -> tuple[ArmInfo, ...]:
    """Sort arms for display: by group, keeping the given order within a group."""
    all_arms = tuple(arms)
    groups = groups_of(all_arms)
    return tuple(sorted(all_arms, key=lambda arm: GROUPS.index(groups[arm.name])))


def main_of(arms: Iterable[ArmInfo]) -> ArmInfo | None:
    """Return the arm of the headline: the first trained method, else the first method; None without a method."""
    methods = [arm for arm in arms if arm.role == "method"]
    return next((arm for arm in methods if arm.trained), methods[0] if methods else None)


def groups_of(arms: Sequence[ArmInfo]) -> dict[str, Group]:
    """Return the group of each arm by its name."""
    main = main_of(arms)

    def group(arm: ArmInfo) -> Group:
        if arm.role == "method":
            is_like_main = main is not None and (set(arm.rewards), arm.trained) == (set(main.rewards), main.trained)
            return "ours" if is_like_main else "contender"
        return arm.role if arm.trained else "untrained"

    return {arm.name: group(arm) for arm in arms}


def comparisons_of(arms: Sequence[ArmInfo]) -> list[tuple[str, str]]:
    """Return which arms are compared: each of `ours` with each baseline, control and contender."""
    groups = groups_of(arms)
    ours = [arm.name for arm in arms if groups[arm.name] == "ours"]
    opponents = [arm.name for arm in arms if arm.role in ("baseline", "control") or groups[arm.name] == "contender"]
    return [(arm, opponent) for arm in ours for opponent in opponents]


def arms_of(metrics: Mapping[str, Any]) -> tuple[ArmInfo, ...]:
    """Return the arms that metrics.json holds, in order."""
    return tuple(
        ArmInfo(
            name,
            entry["role"],
            entry["label"],
            tuple(entry["rewards"]),
            trained=bool(entry["env_steps"]),
            draws_tasks=draws_tasks(entry),
        )
        for name, entry in ((name, metrics["arms"][name]) for name in metrics["order"])
    )


def described(arm: ArmInfo) -> dict[str, Any]:
    """Return an arm's entries of metrics.json besides its results."""
    flags = {DRAWS_TASKS: True} if arm.draws_tasks else {}
    return {"role": arm.role, "label": arm.label, "rewards": list(arm.rewards), **flags}


def draws_tasks(entry: Mapping[str, Any]) -> bool:
    """Whether a curriculum chose an arm's tasks while it was trained, by its entry in metrics.json."""
    return bool(entry.get(DRAWS_TASKS))
