"""A section that selects a plug-in by name, and holds that plug-in's own section under the same name.

Built-in plug-ins have a field of the section. The section of any other plug-in is checked against the class `Params`
that the plug-in declares, and kept beside the fields.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from laurel.errors import closest
from laurel.params.fields import Section
from laurel.params.file import refusals, shown
from laurel.plugins import Plugins


class PluggedSection(Section):
    """A section with a field that names a plug-in."""

    plugins: ClassVar[Plugins[Any]]
    chooser: ClassVar[str]
    """The field that names the plug-in."""
    key: ClassVar[str]
    """Key of this section, for messages."""

    _sections: dict[str, Section] = PrivateAttr(default_factory=dict)
    """Sections of plug-ins that have no field here: kind -> section."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_sections(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Accept the sections of plug-ins without a field here, checked against the class that the plug-in declares."""
        unknown = set(values) - set(cls.model_fields) if isinstance(values, dict) else set()
        chosen = values.get(cls.chooser) if isinstance(values, dict) else None
        if isinstance(chosen, str) and chosen in cls.model_fields and chosen in cls.plugins.external():
            raise ValueError(
                f'chooses the {cls.plugins.noun} "{chosen}" of another package, whose section would be '
                f"{cls.key}.{chosen}, but that is another setting. Rename it in that package."
            )
        if not unknown and (not isinstance(chosen, str) or chosen in cls.model_fields):
            return handler(values)
        sections = {}
        for kind in cls.plugins.kinds():
            if kind not in cls.model_fields and (kind in unknown or kind == chosen):
                model = cls.section_class(kind)
                try:
                    sections[kind] = model.model_validate(values.get(kind) or {})
                except ValidationError as error:
                    raise refusals(model, error, (kind,)) from None
        section = handler({key: value for key, value in values.items() if key not in sections})
        section._sections.update(sections)
        return section

    @classmethod
    def section_class(cls, kind: str) -> type[Section]:
        """Return the class of the section of a plug-in.

        Raises:
            ParamsError: there is no such plug-in, or its package does not declare it correctly.
            MissingPackageError: its package cannot be imported.
        """
        declared: type[Section] = cls.plugins.load(kind, f"{cls.key}.{cls.chooser}").Params
        return declared

    @model_serializer(mode="wrap")
    def _and_sections(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        sections = {kind: section.model_dump(mode=info.mode) for kind, section in self._sections.items()}
        return {**handler(self), **sections}

    def section_of(self, kind: str) -> Any:
        """Return the section of a plug-in."""
        return self._sections.get(kind) or getattr(self, kind)


def listed(plugins: Plugins[Any]) -> Any:
    """Return the field for a plug-in's name; its JSON schema lists all names."""
    return Field(json_schema_extra=lambda schema: schema.update(enum=list(plugins.kinds())))


def one_of(value: object, kinds: tuple[str, ...]) -> object:
    """Refuse a name that is not a plug-in's."""
    if value not in kinds:
        hint = closest(value, kinds) if isinstance(value, str) else ""
        raise ValueError(f"is {shown(value)}, but must be one of {', '.join(kinds)}.{hint}")
    return value
