"""Environment adapters, one file per family, looked up by environment id.

`adapter_for` makes the adapter for an id; ids without their own adapter get the generic one, with a log message.
"""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.envs.base import EnvAdapter, Example, Feature, Transition, Transitions
from laurel.envs.builtin.model import table_of
from laurel.envs.guard import NOT_OURS, failure, guarded, in_a_line
from laurel.errors import EnvError, LaurelError, MissingEnvError, closest
from laurel.plugins import installed, is_ours

if TYPE_CHECKING:
    from collections.abc import Mapping

    import gymnasium as gym

    from laurel.params import EnvParams

__all__ = [
    "EnvAdapter",
    "Example",
    "Feature",
    "Transition",
    "Transitions",
    "adapter_for",
    "adapter_module",
    "adapter_of",
    "make_reference",
    "modules_of",
    "reference_id",
    "step_limit",
    "words_of",
]

ENTRY_POINTS = "laurel.envs"
"""Entry-point group under which other packages list modules with adapters."""

_ALIASES = {"Taxi-v3": "Taxi-v4"}
"""Ids that Gymnasium withdrew -> the id with the same rules (Taxi-v4 differs only in rain and fickle passengers)."""

MISSING = object()

logger = logging.getLogger(__name__)


def adapter_for(env: EnvParams, *, with_action: bool = False) -> EnvAdapter:
    """Make the adapter of an environment.

    Raises:
        EnvError: the id is unknown to Gymnasium, or its observation space has no flat form.
    """
    reference = make_reference(env)
    try:
        return adapter_of(env, reference, with_action=with_action)
    finally:
        reference.close()


def adapter_of(env: EnvParams, reference: gym.Env[Any, Any], *, with_action: bool = False) -> EnvAdapter:
    """Make the adapter of an existing environment; raises the errors of `adapter_for`."""
    from laurel.envs.spaces import texts_of

    adapter_class = _adapter_class(_bare(env.id))
    spaces = reference.observation_space, reference.action_space
    try:
        adapter = adapter_class(_bare(env.id), *spaces, with_action=with_action)
        adapter.inspect(reference)
        adapter.table = adapter.table or table_of(reference)
    except LaurelError:
        raise
    except NOT_OURS as error:
        raise failure(env.id, f"adapter {adapter_class.__name__}", error) from error
    _check_words(env.id, adapter)
    _check_info_fields(env.id, adapter)
    _check_captions(env.id, adapter)
    if adapter.generic:
        note = "so captions are made from its observation space alone, and no goal is known."
        logger.warning("%s", f"{env.id} has no adapter, {note} {adapter.left_out}".rstrip())
    elif adapter_class.pack is EnvAdapter.pack and (texts := texts_of(spaces[0])):
        logger.warning(
            "%s",
            f"{env.id}: the adapter {adapter_class.__name__} reads empty texts in {', '.join(texts)}, since "
            "observations are stored as numbers, and agents do not observe them. Give what varies as numbers, e.g. as "
            "Discrete.",
        )
    return adapter


def _check_words(env_id: str, adapter: EnvAdapter) -> None:
    """Raise if an adapter does not describe its task; an unknown goal must be set to None, not left out."""
    or_none = (str, type(None))
    for name, kinds in (("description", (str,)), ("goal", or_none), ("encoder_goal", or_none), ("anti_goal", (str,))):
        words = getattr(adapter, name, MISSING)
        if not isinstance(words, kinds) or words == "":
            problem = f"has {name} {words!r}" if words is not MISSING else f"sets no {name}"
            suffix = ", or None if none is known" if type(None) in kinds else ""
            raise EnvError(
                f"env.id: the adapter {type(adapter).__name__} of {env_id} {problem}. Set {name} to a text{suffix} "
                "(CONTRIBUTING.md, Add an environment)."
            )
    for name in ("success_words", "action_names"):
        if isinstance(text := getattr(adapter, name), str):  # each of its letters would be one
            raise EnvError(
                f'env.id: the adapter {type(adapter).__name__} of {env_id} has the text "{text}" as {name}, which is a '
                f'tuple: write {name} = ("{text}",).'
            )


def _check_captions(env_id: str, adapter: EnvAdapter) -> None:
    """Raise if an adapter cannot make captions, rather than once all steps are collected."""
    kind = type(adapter)
    if kind.caption is EnvAdapter.caption and kind.encode is EnvAdapter.encode:
        raise EnvError(
            f"env.id: the adapter {kind.__name__} of {env_id} defines neither caption nor encode, so its steps have no "
            "words. Define caption(self, step) (CONTRIBUTING.md, Add an environment)."
        )


def _check_info_fields(env_id: str, adapter: EnvAdapter) -> None:
    """Raise if the fields of `info` that an adapter names are not names of numbers with their types."""
    import numpy as np

    fields: Any = adapter.info_fields
    try:
        right = all(isinstance(name, str) and np.dtype(kind).kind in "biuf" for name, kind in fields.items())
    except (AttributeError, TypeError):
        right = False
    if not right:
        raise EnvError(
            f"env.id: the adapter {type(adapter).__name__} of {env_id} has info_fields {fields!r}. Set info_fields to "
            'the fields of info that it needs with their NumPy types, as in {"place": "int64"} (CONTRIBUTING.md, Add '
            "an environment)."
        )


def words_of(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Return the name of an environment's adapter and the version of its captions.

    Raises:
        EnvError: a module that the id names cannot be imported.
    """
    _import_module_of(env_id)
    return _adapter_class(_bare(env_id)).described_by(kwargs)


def adapter_module(env_id: str) -> str:
    """Return the module with an environment's adapter; errors as in `words_of`."""
    _import_module_of(env_id)
    return _adapter_class(_bare(env_id)).__module__


def make_reference(env: EnvParams, **kwargs: Any) -> gym.Env[Any, Any]:
    """Make one environment with Gymnasium: the reference that evaluation runs on.

    Raises:
        EnvError: Gymnasium does not know the id, or the environment refuses its arguments.
    """
    import gymnasium as gym

    _import_module_of(env.id)
    env_id = reference_id(env)
    if env_id not in gym.registry:
        for module in ("laurel.envs.builtin", "minigrid"):  # to give the user the hint
            importlib.import_module(module)
        atari = ' The environments of ALE come with another package: pip install ale-py, and write "ale_py:{0}".'
        module = env.id.rpartition(":")[0]
        known = [name for name, spec in gym.registry.items() if not module or _is_of(spec.entry_point, module)]
        hint = atari.format(env_id) if env_id.startswith("ALE/") else closest(env_id, known)
        if module:
            hint += f' The module {module} does not register that name: call gymnasium.register(id="{env_id}", ...).'
        raise EnvError(f'env.id: Gymnasium knows no environment "{env_id}".{hint}')
    adapter_class = _adapter_class(_bare(env.id))
    options: dict[str, Any] = {**env.kwargs, **kwargs}
    limit = step_limit(env)
    if limit is not None:
        argument = adapter_class.limit_argument
        if env.max_episode_steps is not None and argument in env.kwargs:
            raise EnvError(
                f"env: both max_episode_steps and kwargs.{argument} limit an episode. Leave one of them out."
            )
        options.setdefault(argument, limit)
    try:
        created = gym.make(env_id, **options)
        adapter_class.prepare(created)
        return guarded(created, env_id)
    except gym.error.DependencyNotInstalled as error:
        raise MissingEnvError(f"env.id: {env_id} needs a package that is not installed: {error}.") from None
    except ImportError as error:
        raise MissingEnvError(f"env.id: {env_id} needs a package that is not installed: {in_a_line(error)}.") from error
    except MissingEnvError:
        raise
    except EnvError as error:  # of an environment of our own, which says what is wrong
        raise EnvError(f"env.kwargs: {error}") from None
    except NOT_OURS as error:
        if env.kwargs:
            reason = str(error) or type(error).__name__
            raise EnvError(f"env.kwargs: {env_id} cannot be made with {env.kwargs}: {reason}.") from error
        raise EnvError(f"env.id: {env_id} cannot be made: {in_a_line(error)}. --debug shows where.") from error


def _is_of(entry_point: Any, module: str) -> bool:
    """Whether an environment's class is defined in this module or package."""
    module_name = entry_point if isinstance(entry_point, str) else str(getattr(entry_point, "__module__", ""))
    return f"{module_name.partition(':')[0]}.".startswith(f"{module}.")


def reference_id(env: EnvParams) -> str:
    """Return the Gymnasium id that evaluation runs on; it differs from `env.id` for withdrawn ids."""
    import gymnasium as gym

    bare = _bare(env.id)
    return bare if bare in gym.registry else _ALIASES.get(bare, bare)


def step_limit(env: EnvParams) -> int | None:
    """Return the episode length limit that Laurel sets; None keeps the environment's own."""
    import gymnasium as gym

    if env.max_episode_steps is not None:
        return env.max_episode_steps
    spec = gym.registry.get(reference_id(env))
    registered = spec.max_episode_steps if spec else None
    return None if registered is not None else _adapter_class(_bare(env.id)).max_episode_steps


def episode_limit(env: EnvParams) -> int | None:
    """Return the known episode length limit, Laurel's or Gymnasium's; None: only termination ends an episode."""
    import gymnasium as gym

    spec = gym.registry.get(reference_id(env))
    return step_limit(env) or (spec.max_episode_steps if spec else None)


def return_threshold(env: EnvParams) -> float | None:
    """Return the mean return at which Gymnasium calls the environment solved, if it says so."""
    import gymnasium as gym

    _import_module_of(env.id)  # a process that has made no environment does not know the id yet
    return gym.spec(reference_id(env)).reward_threshold


def _bare(env_id: str) -> str:
    """Strip the module from Gymnasium's `module:id` form."""
    return env_id.rpartition(":")[2]


def _import_module_of(env_id: str) -> None:
    """Import the module that registers the id: the one before the colon, that of a known package, or those that other
    packages name under ENTRY_POINTS.
    """
    module, _, bare = env_id.rpartition(":")
    if module.startswith("."):
        raise EnvError(
            f'env.id: "{env_id}" names a relative module; write its full name, as in "my_environment:Corridor-v0".'
        )
    if module:
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise MissingEnvError(
                    f"env.id: the module {module} needs {error.name}, which is not installed: install it."
                ) from error
            raise MissingEnvError(
                f'env.id: "{env_id}" names the module {module}, but {error.name} cannot be found. '
                f"Put {module}.py into the folder in which the command is run, or install its package."
            ) from None
        except NOT_OURS as error:
            raise EnvError(
                f"env.id: the module {module} cannot be imported: {in_a_line(error)}. --debug shows where."
            ) from error
        if getattr(imported, "__file__", None) is None and module not in sys.builtin_module_names:
            raise MissingEnvError(
                f'env.id: "{env_id}" names the module {module}, but {module} is a folder here. Run the command in the '
                f"folder that holds {module}.py, or rename this one."
            )
    elif known := _known_module(bare):
        importlib.import_module(known)
    else:
        import gymnasium as gym

        if bare not in gym.registry and bare not in _ALIASES:
            _load_adapters()  # the module of another package's adapter may register its environment, too


def _known_module(bare: str) -> str | None:
    """Return the module of the known package that registers an id without a module; None for Gymnasium's own ids."""
    if bare.startswith(("MiniGrid-", "BabyAI-")):
        return "minigrid"
    return "laurel.envs.builtin" if bare.startswith("laurel/") else None


def modules_of(env: EnvParams) -> list[str]:
    """Return the modules imported to make an environment, so that worker processes can be forked with them loaded.

    The user's own module is not among them: each process must run its import-time code itself.
    """
    known = _known_module(env.id)
    return [*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)), *([known] if known else [])]


def _adapter_class(env_id: str) -> type[EnvAdapter]:
    """Find the adapter with the longest matching pattern; ties go to the user's or another package's, then to the one
    defined last.
    """
    _load_adapters()
    adapters = _subclasses(EnvAdapter)
    for adapter in adapters:
        ids: Any = adapter.ids
        if isinstance(ids, str):
            raise EnvError(
                f'env.id: the adapter {adapter.__name__} has the text "{ids}" as ids, but ids is a tuple: write '
                f'ids = ("{ids}",).'
            )
    fitting = [
        (len(pattern.replace("*", "")), not is_ours(adapter), order, adapter)
        for order, adapter in enumerate(adapters)
        for pattern in adapter.ids
        if fnmatch(env_id, pattern)
    ]
    return max(fitting, key=lambda found: found[:3])[3]


@functools.cache
def _load_adapters() -> None:
    """Import the adapters of this package and of plugins, once."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for entry in installed(ENTRY_POINTS):
        try:
            entry.load()
        except NOT_OURS as error:  # importing another package's code may raise anything
            raise EnvError(
                f'The adapters "{entry.name}" ({entry.value}) of another package cannot be loaded: '
                f"{in_a_line(error)}. Fix or uninstall that package; --debug shows where."
            ) from error


def _subclasses(adapter: type[EnvAdapter]) -> list[type[EnvAdapter]]:
    return [subclass for child in adapter.__subclasses__() for subclass in (child, *_subclasses(child))]
