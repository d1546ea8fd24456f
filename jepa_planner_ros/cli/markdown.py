"""Tables of the reference page."""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[str, ...]


def table(head: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown, whatever its cells hold."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
