"""The house's docstrings as Markdown, for mkdocstrings: examples become code, and labelled lines paragraphs."""

import re
from typing import Any

from griffe import Docstring, Extension

LABEL = re.compile(r"[A-Z][A-Za-z ]{2,20}: ")


def to_markdown(text: str) -> str:
    """A docstring as Markdown.

    >>> print(to_markdown("One.\\n\\nSent: x down.\\nKept: nothing.\\n\\n>>> 1 + 1\\n2"))
    One.
    <BLANKLINE>
    Sent: x down.
    <BLANKLINE>
    Kept: nothing.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    lines: list[str] = []
    code = args = False
    for line in text.splitlines():
        if line.startswith(">>> ") and not code:
            lines += [*[""] * bool(lines and lines[-1]), "```pycon"]
            code = True
        elif code and not line.strip():
            lines.append("```")
            code = False
        elif line.strip() == "Args:":
            args = True
            lines.append("**Arguments.**")
            continue
        elif args and not line.startswith("    "):
            args = False
        elif not code and lines and lines[-1] and LABEL.match(line):
            lines.append("")
        lines.append(line.strip() if args else line)
    return "\n".join([*lines, *["```"] * code])


class HouseDocstrings(Extension):
    """Rewrites every docstring before it is shown."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Called by griffe with every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring = Docstring(to_markdown(obj.docstring.value), parent=obj)
