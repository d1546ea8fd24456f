"""What a check found, and the line it makes in the terminal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

WIDTH = 100
INDENT = 22 * " "


@dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    Attributes:
        subject: what was looked at, in a word or two.
        found: what was seen.
        fix: what to do about it; empty where nothing is wrong.
        needed: whether nothing works before it is mended.
    """

    subject: str
    found: str
    fix: str = ""
    needed: bool = False

    @property
    def fatal(self) -> bool:
        """Whether something needed is missing."""
        return self.needed and bool(self.fix)

    def __str__(self) -> str:
        mark = "FAIL" if self.fatal else "note" if self.fix else "ok"
        lines = _wrapped(f"  {mark:<5}{self.subject:<15}", self.found)
        return f"{lines}\n{_wrapped(f'{INDENT}fix: ', self.fix)}" if self.fix else lines


def _wrapped(start: str, text: str) -> str:
    """Break between words only, so that paths and commands stay whole where they can."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
