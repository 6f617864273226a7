"""Plug-ins: each kind (of annotator, question, reward method, ...) is a module of one package, or another package's
entry point.

A group of plug-ins (annotators, questions, reward methods, ...) is declared once, beside the package that holds them:

>>> ANNOTATORS = Plugins("annotator", group="laurel.annotators", package="laurel.feedback.annotators")

A module `laurel/feedback/annotators/NAME.py` is then the built-in annotator NAME; no list names it. The module binds
the group's attribute, here `ANNOTATOR`, to the plug-in, usually a class. Another package has in its
pyproject.toml

    [project.entry-points."laurel.annotators"]
    NAME = "its_module"            # whose ANNOTATOR is loaded; or "its_module:SomeClass"

Nothing is imported before it is loaded. Modules whose names begin with an underscore are helpers, not kinds.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from laurel.errors import MissingPackageError, ParamsError, PluginError, no_such
from laurel.extras import missing

T_co = TypeVar("T_co", covariant=True)
_loaded: dict[str, str] = {}
"""Module of another package -> the plug-in that was loaded from it, in words."""


class Plugins(Generic[T_co]):
    """A group of plug-ins; `T_co` is the type of what a plug-in is, e.g. `type[Annotator]`.

    Args:
        noun: name of a plug-in in messages, e.g. "annotator".
        group: of entry points, e.g. "laurel.annotators".
        package: has a module for each built-in plug-in.
        attribute: name of the plug-in in its module; None: the noun in capitals.
        called: whether a plug-in must be callable: a class or a function.
        needs: attributes that another package's plug-in must have.
        texts: those of them that are texts.
        section: the attribute with the class of its section of params.yaml, and the base class of all such classes.
        lists: attribute -> the names that it may list.
    """

    def __init__(
        self,
        noun: str,
        *,
        group: str,
        package: str,
        attribute: str | None = None,
        called: bool = True,
        needs: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
        section: tuple[str, type] | None = None,
        lists: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.noun = noun
        self.group = group
        self.package = package
        self.attribute = attribute or noun.upper().replace(" ", "_")
        self.called = called
        self.needs = (*needs, *texts, section[0]) if section else (*needs, *texts)
        self.texts = texts
        self.section = section
        self.lists = lists

    def builtin(self) -> tuple[str, ...]:
        """Return the names of the built-in kinds, sorted, without importing them."""
        spec = importlib.util.find_spec(self.package)
        folders = spec.submodule_search_locations if spec else None
        names = [module.name for module in pkgutil.iter_modules(folders or [])]
        return tuple(sorted(name for name in names if not name.startswith("_")))

    def external(self) -> Mapping[str, EntryPoint]:
        """Return the plug-ins of other packages, without importing them: name -> entry point.

        Raises:
            ParamsError: two packages use one name, or one uses the name of a built-in kind.
        """
        found: dict[str, EntryPoint] = {}
        builtin = self.builtin()
        for entry in installed(self.group):
            if entry.name in builtin or found.get(entry.name, entry).value != entry.value:
                clash = "is built in" if entry.name in builtin else f"is also {found[entry.name].value}"
                raise ParamsError(
                    f'{self.group}: another package names its {self.noun} {entry.value} "{entry.name}", which {clash}. '
                    "Rename or uninstall one of them."
                )
            found[entry.name] = entry
        return found

    def kinds(self) -> tuple[str, ...]:
        """Return the names of all kinds, the built-in ones first, without importing any.

        Raises:
            ParamsError: as `external`.
        """
        return (*self.builtin(), *sorted(self.external()))

    def load(self, kind: str, key: str) -> T_co:
        """Return the plug-in of a kind.

        Args:
            key: of the params that names it, for messages, e.g. "annotate.annotator".

        Raises:
            ParamsError: there is no such kind, or its package does not declare it correctly.
            MissingPackageError: another package's plug-in cannot be imported.
        """
        external = self.external()
        if kind in self.builtin():
            try:
                return cast(T_co, getattr(importlib.import_module(f"{self.package}.{kind}"), self.attribute))
            except ModuleNotFoundError as error:
                raise missing(error) or error from None
        if kind not in external:
            problem = no_such(self.noun, kind, self.kinds())
            raise ParamsError(
                f'{key}: {problem}; another package can add one by an entry point of the group "{self.group}".'
            )
        return cast(T_co, self._load_external(external[kind], key))

    def _load_external(self, entry: EntryPoint, key: str) -> Any:
        begin = f'{key}: the {self.noun} "{entry.name}" ({entry.value}) of another package cannot be loaded'
        try:
            plugin = entry.load()
        except Exception as error:  # importing another package's code may raise anything
            raise MissingPackageError(
                f"{begin}: {type(error).__name__}: {error}. Fix or uninstall that package; --debug shows where."
            ) from error
        if not entry.attr:
            try:
                plugin = getattr(plugin, self.attribute)
            except AttributeError:
                raise ParamsError(f"{begin}: its module has no {self.attribute}.") from None
        if self.called and not callable(plugin):
            raise ParamsError(f"{begin}: it is {plugin!r:.60}, but a class is required.")
        abstract = sorted(getattr(plugin, "__abstractmethods__", ()))
        if lacking := [*abstract, *(name for name in self.needs if not hasattr(plugin, name))]:
            raise ParamsError(f"{begin}: its class {plugin.__name__} does not define {', '.join(lacking)}.")
        self._check_attributes(plugin, begin)
        title = f'{self.noun} "{entry.name}" ({entry.value})'
        _loaded[entry.module] = title
        defined = str(getattr(plugin, "__module__", ""))  # the entry's module may only import the class
        if defined.partition(".")[0] not in ("laurel", *sys.stdlib_module_names):
            _loaded.setdefault(defined, title)
        return plugin

    def _check_attributes(self, plugin: Any, begin: str) -> None:
        """Raise ParamsError, which starts with `begin`, for an attribute that is not of its type."""
        for name in self.texts:
            if not isinstance(text := getattr(plugin, name), str | property):
                raise ParamsError(f"{begin}: its {name} is {in_short(text)}, but a text is required.")
        if self.section is not None:
            name, base = self.section
            declared = getattr(plugin, name)
            if not (isinstance(declared, type) and issubclass(declared, base)):
                raise ParamsError(
                    f"{begin}: its {name} is {in_short(declared)}, but a subclass of {base.__module__}."
                    f"{base.__qualname__} is required."
                )
        for attribute, names in self.lists.items():
            listed = getattr(plugin, attribute, ())
            if (
                isinstance(listed, str)
                or not isinstance(listed, Collection)
                or any(item not in names for item in listed)
            ):
                raise ParamsError(
                    f"{begin}: its {attribute} is {in_short(listed)}, but a tuple with any of {', '.join(names)} is "
                    "required."
                )


def blame(error: BaseException) -> PluginError | None:
    """Return the error for an exception that another package's plug-in raised; None if no plug-in was involved."""
    packages = {module.partition(".")[0]: title for module, title in reversed(_loaded.items())}
    sentence = _raised(error, _loaded.get) or _miscalled(error)
    if sentence is None:  # in none of the plug-ins' own modules, but maybe in another one of their package
        sentence = _raised(error, lambda module: packages.get(module.partition(".")[0]))
    if sentence is None:
        return None
    said = (str(error).strip().splitlines() or ["without a message"])[0].rstrip(".")
    return PluginError(f"{sentence}: {said}. Fix that package; --debug shows where.")


def _raised(error: BaseException, title_of: Callable[[str], str | None]) -> str | None:
    """Return which plug-in raised an exception, by the innermost frame that is in a module of one."""
    sentence, trace = None, error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__", "")
        if title := title_of(module):
            sentence = f"The {title} of another package raised {type(error).__name__} in {code.co_qualname}"
            if isinstance(error, SystemExit):
                sentence = f"The {title} of another package called sys.exit() in {code.co_qualname}"
        trace = trace.tb_next
    return sentence


def _miscalled(error: BaseException) -> str | None:
    """Return which plug-in does not take the arguments that it is called with: Python raises this at the call."""
    said = re.match(r"(\w+)\.(\w+)\(\) (?:got|takes|missing) ", str(error))
    if said is None or not isinstance(error, TypeError):
        return None
    for module, title in _loaded.items():
        kind = getattr(sys.modules.get(module), said[1], None)
        if said[2] in getattr(kind, "__dict__", ()):
            return f"The {title} of another package does not take the arguments of {said[1]}.{said[2]}"
    return None


def returned_wrongly(noun: str, owner: object, method: str, found: str, needed: str) -> PluginError:
    """Return the error for a method of another package's class that returned something else than is needed.

    Args:
        noun: what the owner is, such as "reward".
        found: what was returned, in words (`in_short`).
        needed: a clause, such as "an array is required".
    """
    kind = type(owner)
    return PluginError(
        f"The {noun} {kind.__module__}.{kind.__qualname__}: its {method} returned {found}, but {needed}. Fix it."
    )


def check_returns(kind: type, noun: str, checks: Mapping[str, Callable[[Any], str | None]]) -> None:
    """Check what the methods of a plug-in's class return, if it is another package's; faults are PluginErrors.

    Args:
        noun: what the plug-in is, such as "reward method".
        checks: method -> a function of what it returned, which says what it must return if that is something else.
    """
    wrap_methods(kind, {name: functools.partial(_checked, name, noun, check) for name, check in checks.items()})


def wrap_methods(kind: type, wrappers: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> None:
    """Wrap the methods that a class defines, if it is another package's or in a user's file."""
    for name, wrapped in ({} if is_ours(kind) else wrappers).items():
        if inspect.isfunction(method := vars(kind).get(name)):
            setattr(kind, name, wrapped(method))


def no_sentence(returned: Any) -> str | None:
    """Return what is required instead of something that is neither a sentence nor None; None if it is."""
    return None if isinstance(returned, str | None) else "a sentence, or None"


def no_texts(returned: Any) -> str | None:
    """Return what is required instead of something that is not several texts; None if it is."""
    return None if isinstance(returned, Iterable) and not isinstance(returned, str) else "a list of texts"


def _checked(
    name: str, noun: str, check: Callable[[Any], str | None], method: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *given: Any, **named: Any) -> Any:
        returned = method(self, *given, **named)
        if needed := check(returned):
            raise returned_wrongly(noun, self, name, in_short(returned), f"it must return {needed}")
        return returned

    return checked


def nothing_returned(noun: str, owner: object, method: str, found: object) -> None:
    """Refuse what a plug-in's method returned that refuses by raising: a sentence returned would be lost.

    Args:
        noun, owner, method: as in `returned_wrongly`.

    Raises:
        PluginError: it returned something.
    """
    if found is not None:
        needed = "it must return nothing, and raise a laurel.errors.LaurelError to refuse"
        raise returned_wrongly(noun, owner, method, in_short(found), needed)


def in_short(found: Any) -> str:
    """Describe a value in a few words: an array by its shape and type, anything else as Python writes it.

    >>> in_short([1,
    ...     2])
    '[1, 2]'
    """
    if hasattr(found, "shape") and hasattr(found, "dtype"):
        return f"an array of shape {tuple(found.shape)} and type {found.dtype}"
    return f"{' '.join(repr(found).split()):.60}"


def is_ours(kind: type) -> bool:
    """Whether a class is Laurel's, rather than another package's or from a user's file."""
    return kind.__module__.startswith("laurel.")


def packages_of(names: Collection[str], *modules: str) -> dict[str, Path]:
    """Return the code of the other packages that add kinds of these names, without importing it.

    Args:
        modules: modules whose packages are included if they add a kind.

    Returns:
        Name of a package or module -> its folder or file. Of a namespace package, which has no `__init__.py`, it is
        the folder with the plug-in's module.
    """
    found: dict[str, Path] = {}
    packages = {module.partition(".")[0] for module in modules}
    for entry in _entries():
        if entry.name in names or entry.module.partition(".")[0] in packages:
            found |= _code_of(entry.module)
    return found


def _code_of(module: str) -> dict[str, Path]:
    name, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin is not None:
        file = Path(spec.origin)
        return {name: file if spec.submodule_search_locations is None else file.parent}
    for place in spec.submodule_search_locations or () if spec is not None else ():
        if inner and Path(place, *inner, "__init__.py").exists():
            return {module: Path(place, *inner)}
        if inner and Path(place, *inner).with_suffix(".py").exists():
            return {".".join([name, *inner[:-1]]): Path(place, *inner[:-1])}
    return {}


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of one of Laurel's groups; a folder on the path is read again once it has changed."""
    return [entry for entry in _entries() if entry.group == group]


def _entries() -> list[EntryPoint]:
    """Return the entry points of all of Laurel's groups."""
    by_package: dict[str, tuple[EntryPoint, ...]] = {}
    for place in sys.path:
        for package, entries in _read_entry_points(place, _changed(place)):
            by_package.setdefault(package, entries)  # the first on the path is the one that is imported
    return [entry for entries in by_package.values() for entry in entries]


@functools.lru_cache(maxsize=64)
def _read_entry_points(place: str, changed: int) -> list[tuple[str, tuple[EntryPoint, ...]]]:
    # Reading the metadata of some hundreds of packages would take most of the time of reading params.
    found = []
    for package in importlib.metadata.distributions(path=[place]):
        entries = tuple(entry for entry in package.entry_points if entry.group.startswith("laurel."))
        if entries:
            found.append((package.name, entries))
    return found


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0
