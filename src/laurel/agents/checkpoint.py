"""A policy on disk: `config.json` describes the network, `model.safetensors` has its weights."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from laurel.agents.bandit_policy import BanditPolicy
from laurel.agents.images import ImageActorCritic
from laurel.agents.learner import PolicyNetwork
from laurel.agents.policy import ActorCritic
from laurel.agents.q_network import QNetwork
from laurel.agents.recurrent import RecurrentActorCritic
from laurel.agents.sb3.policy import SB3Policy
from laurel.agents.table import Table
from laurel.data.digests import digest_file
from laurel.data.json_file import read_json, write_json
from laurel.data.lineage import PRODUCERS
from laurel.data.replacing import recover_killed
from laurel.errors import DataError, ParamsError, first_line
from laurel.params.kinds import ALGORITHMS

CONFIG, MODEL = "config.json", "model.safetensors"
OURS: tuple[type[PolicyNetwork], ...] = (
    ActorCritic,
    QNetwork,
    SB3Policy,
    Table,
    BanditPolicy,
    ImageActorCritic,
    RecurrentActorCritic,
)
"""Networks that config.json names by their kind. Others are named by the algorithm that trains them."""
SLOW = {
    "glam": "laurel.agents.language_model.glam:LikelihoodPolicy",
    "language_model": "laurel.agents.language_model.policy:LanguageModelPolicy",
    "subgoals": "laurel.agents.subgoal_ppo:SubgoalActorCritic",
    "writer": "laurel.agents.writer:Writer",
}
"""Laurel's networks whose module takes seconds to import, or that few need."""


def save_policy(path: Path, network: PolicyNetwork, **extra: Any) -> None:
    """Write a network into a directory, which is created if necessary; `extra` is added to config.json."""
    path.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    (path / MODEL).write_bytes(save(weights))  # safetensors' save_file raises no OSError where the disk is full
    network.write_beside(path)
    digests = {MODEL: digest_file(path / MODEL)}
    write_json(path / CONFIG, {"kind": network.kind, "network": network.config(), "digests": digests, **extra})


def load_policy(path: Path | str) -> PolicyNetwork:
    """Load the network of a directory, on the CPU.

    Raises:
        DataError: the directory is missing, or a file in it is missing, damaged or does not fit the other.
    """
    path = Path(path)  # MLflow returns downloaded paths as strings
    recover_killed(path)
    if not path.is_dir():
        raise DataError(
            f"{path}: no such directory; a trained agent is needed, e.g. data/agents/preference/seed-0. "
            f"Run laurel {PRODUCERS['agents']} first."
        )
    if not (path / CONFIG).exists():
        raise DataError(
            f"{path}: holds no agent: {CONFIG} is missing. Name the folder of an arm's seed, e.g. "
            "data/agents/preference/seed-0, or train this agent again."
        )
    config = read_json(path / CONFIG)
    network = config.get("network") if isinstance(config, dict) else None
    try:
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in network.items()}  # type: ignore[union-attr]
        policy = _network_of(config["kind"], path)(**settings)
    except (AttributeError, TypeError, KeyError, ValueError, RuntimeError):
        raise DataError(f"{path / CONFIG}: does not describe a policy. Train this agent again.") from None
    try:
        policy.load_state_dict(load((path / MODEL).read_bytes()))
    except FileNotFoundError:
        raise DataError(f"{path / MODEL}: no such file. Train this agent again.") from None
    except (SafetensorError, RuntimeError, KeyError, OSError) as error:
        reason = first_line(error)
        raise DataError(f"{path / MODEL}: cannot be read as this policy ({reason}). Train this agent again.") from None
    if not is_as_written(path, config):
        raise DataError(f"{path / MODEL}: was modified since it was saved. Train this agent again.")
    return policy


def can_be_loaded(policy: PolicyNetwork) -> bool:
    """Whether `load_policy` finds the class of a policy by its kind."""
    try:
        return type(policy) is _network_of(policy.kind, Path())
    except (DataError, KeyError):
        return False


def _network_of(kind: str, path: Path) -> type[PolicyNetwork]:
    """Return the class of a network; raise DataError where neither Laurel nor an installed package has it."""
    network_class = next((network for network in OURS if network.kind == kind), None)
    if kind in SLOW:
        network_class = pkgutil.resolve_name(SLOW[kind])
    if network_class is None:
        try:
            network_class = ALGORITHMS.load(kind, str(path / CONFIG)).Network
        except ParamsError:
            raise DataError(
                f'{path / CONFIG}: describes a policy of an unknown kind, "{kind}". Install the '
                "package that has this algorithm, or train this agent again."
            ) from None
    if network_class is None:
        raise KeyError(kind)
    return network_class


def is_as_written(path: Path, written: dict[str, Any]) -> bool:
    """Whether the files match the digests in the JSON file beside them."""
    digests = written.get("digests")
    return isinstance(digests, dict) and all(digest_file(path / name) == digest for name, digest in digests.items())
