"""Chat templates without today's date, so that a question is the same prompt on every day.

Templates such as Llama's, gpt-oss' and Mistral's write the date of rendering into the system message. The key of a
stored answer does not have it, and a model that is trained on its prompts would see other prompts after midnight.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TypeVar

DAY = date(2024, 7, 26)
"""The date that replaces today's: the default of Llama's template when there is no clock."""
_CLOCK = re.compile(r"""\bstrftime_now\(\s*(["'])(?P<format>[^"']*)\1\s*\)""")

Template = TypeVar("Template", str, dict[str, str], None)


def undated(template: Template) -> Template:
    """Return a chat template, or several by name, with DAY in place of today.

    >>> undated("Today: {{ strftime_now('%d %b %Y') }}")
    "Today: {{ '26 Jul 2024' }}"
    """
    if isinstance(template, dict):
        return {name: undated(text) for name, text in template.items()}
    if template is None:
        return None
    return _CLOCK.sub(lambda call: f"{call[1]}{DAY.strftime(call['format'])}{call[1]}", template)
