"""Building blocks of the sections of `params.yaml`: types of values with their ranges, and the base class of
sections.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import to_jsonable_python


def filled(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an empty list."""
    if not values:
        raise ValueError("is empty, but must have at least one entry.")
    return values


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an empty list and duplicate entries."""
    duplicate = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if duplicate is not None:
        raise ValueError(f"names {duplicate} twice; list it once.")
    return filled(values)


def _from_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"is {path}, but there is no such user's home directory.") from None


FilePath = Annotated[Path, Field(strict=False), AfterValidator(_from_home)]
"""A file or folder; ~ is the user's home directory, as in a shell."""
ModelName = Annotated[str, AfterValidator(lambda name: str(_from_home(Path(name))) if name.startswith("~") else name)]
"""A packaged model, a directory, in which ~ is the user's home directory, or a name on a hub."""
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Widths = Annotated[tuple[Count, ...], Field(strict=False)]
Seeds = Annotated[tuple[Seed, ...], Field(strict=False), AfterValidator(distinct)]


def _not_gpu(value: object) -> object:
    if value == "gpu":
        raise ValueError('is "gpu", but must be one of cpu, cuda, auto: write cuda, or auto for a GPU if there is one.')
    return value


Device = Annotated[Literal["cpu", "cuda", "auto"], BeforeValidator(_not_gpu)]


def as_text(value: Any) -> str:
    """Format a value for messages and tables, as it can be written in params; a text without quotes if it is plain."""
    plain = isinstance(value, str) and value == value.strip() != ""  # spaces and line breaks would not be seen
    return value if plain else json.dumps(value, ensure_ascii=False)


def dumped(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections, by name, as plain JSON values."""
    return {name: to_jsonable_python(section) for name, section in sections.items()}


def merged(base: Any, changes: Any, replaced: Collection[str] = ()) -> Any:
    """Merge nested mappings; values that are not mappings are replaced.

    Args:
        replaced: names whose mappings are replaced, too.

    >>> merged({"env": {"id": "A", "kwargs": {}}, "arms": ["x"]}, {"env": {"id": "B"}, "arms": ["y"]})
    {'env': {'id': 'B', 'kwargs': {}}, 'arms': ['y']}
    """
    if not (isinstance(base, Mapping) and isinstance(changes, Mapping)):
        return changes
    updates = {
        name: value if name in replaced else merged(base.get(name), value, replaced) for name, value in changes.items()
    }
    return {**base, **updates}


class Section(BaseModel):
    """A group of parameters: immutable, and unknown names are refused."""

    # Every command imports all sections: what a section needs itself is built when it is first used, and descriptions
    # are read when they are listed. Defaults are checked for the sake of other packages' sections.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, validate_default=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe parameters by the docstrings below them, as pydantic's `use_attribute_docstrings` does earlier."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for section in cls.__mro__:
            described = _docstrings(section) if issubclass(section, Section) else {}
            for name in described.keys() & properties.keys():
                properties[name].setdefault("description", described[name])
        return schema


def _docstrings(section: type) -> dict[str, str]:
    """Return the docstrings below the attributes of a class, as its source has them."""
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(following.value.value)
        for field, following in pairwise(defined.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }
