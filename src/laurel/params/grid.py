"""A grid of judges to compare: models by prompts by temperatures, each cell the section `annotate` with changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from laurel.errors import ParamsError
from laurel.params.annotation import AnnotateParams
from laurel.params.fields import Count, NonNegative, Section, distinct, filled
from laurel.params.file import read_mapping, sentences
from laurel.params.judges import ChatSection


class GridParams(Section):
    pairs: Count = 200
    """Maximum number of pairs that every cell judges; fewer if fewer have a known answer."""
    models: Annotated[tuple[dict[str, JsonValue], ...], Field(strict=False), AfterValidator(filled)]
    """For each model, its own entries of the section annotate, e.g. {annotator: openai, openai: {model: a}}; and, if
    wanted, a `name` for it."""
    prompts: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(distinct)] | None = None
    """Prompts to try with chat models; null: each model's own."""
    temperatures: Annotated[tuple[NonNegative, ...], Field(strict=False), AfterValidator(distinct)] | None = None
    """Temperatures to try with chat models that generate their answers; null: each model's own."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A judge of the grid."""

    model: str
    prompt: str | None
    """The prompt; None if it uses none. Likewise `temperature`."""
    temperature: float | None
    annotate: AnnotateParams

    @property
    def title(self) -> str:
        """Title in tables."""
        return called(self.model, self.prompt, self.temperature)


def called(model: str, prompt: str | None, temperature: float | None) -> str:
    """Return a judge's title from the parts that are not None."""
    warmth = None if temperature is None else f"temperature {temperature:g}"
    return ", ".join(part for part in (model, prompt, warmth) if part)


def load_grid(path: Path, annotate: AnnotateParams) -> tuple[GridParams, tuple[Cell, ...]]:
    """Read a grid's file.

    Args:
        path: YAML with the keys of GridParams.
        annotate: the settings that all cells share.

    Raises:
        ParamsError: the file is missing, or a key or value is not allowed.
    """
    try:
        grid = GridParams.model_validate(read_mapping(path, "Write one with `models` and `prompts`."))
    except ValidationError as error:
        raise ParamsError(sentences(str(path), GridParams, error)) from None
    return grid, tuple(_cells(grid, annotate, path))


def _cells(grid: GridParams, annotate: AnnotateParams, path: Path) -> Iterator[Cell]:
    for number, changes in enumerate(grid.models):
        source = f"{path}: models[{number}]"
        named = changes.get("name")
        judge = annotate.overridden({key: value for key, value in changes.items() if key != "name"}, source)
        if not isinstance(judge.section, ChatSection):
            yield Cell(str(named or f"models[{number}] {judge.annotator}"), None, None, judge)
            continue
        chat: Any = judge.section
        temperatures = grid.temperatures or (chat.temperature,)
        for prompt in grid.prompts or (judge.language_model.prompt,):
            for temperature in temperatures if chat.writes else (None,):
                changed = {"language_model": {"prompt": prompt}}
                if temperature is not None:
                    changed[judge.annotator] = {"temperature": temperature}  # type: ignore[dict-item]
                judged_by = judge.overridden(changed, source)  # type: ignore[arg-type]
                yield Cell(str(named or f"models[{number}] {chat.model}"), prompt, temperature, judged_by)
