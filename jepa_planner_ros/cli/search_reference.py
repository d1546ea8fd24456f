"""The part of the reference page on search profiles, made of the settings' dataclasses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

from jepa_planner_ros.cli.markdown import table
from jepa_planner_ros.search import METHODS
from jepa_planner_ros.types import Energy, Guard


def search_profiles() -> Iterator[str]:
    """Every method with its entries, and the entries of those that hold some themselves."""
    yield "## Search profiles\n"
    yield (
        "A profile for the parameter `search` is a YAML file with the entry `method`, and those\n"
        "of the method's entries that are to differ from its defaults; of `energy` and `guard`,\n"
        "those that differ from the defaults at the end. `config/search/` has examples,\n"
        "[search.md](search.md) tells how the methods search.\n"
    )
    for name, method in METHODS.items():
        yield f"### `method: {name}`\n"
        yield _entries(method.settings)
    for name, kind in (("energy", Energy), ("guard", Guard)):
        yield f"### Entries of `{name}`\n"
        yield _entries(kind)


def attribute_docstrings(kind: type[Any]) -> dict[str, str]:
    """What stands below each attribute of a class, or of the nearest of its bases."""
    documented: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if is_dataclass(one):
            documented |= _own_docstrings(one)
    return documented


def _own_docstrings(kind: type[Any]) -> dict[str, str]:
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        attribute.target.id: below.value.value
        for attribute, below in pairwise(definition.body)
        if isinstance(attribute, ast.AnnAssign)
        and isinstance(attribute.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _entries(kind: type[Any]) -> str:
    documented = attribute_docstrings(kind)
    return table(
        ("entry", "default", "meaning"),
        (
            (f"`{field.name}`", f"`{_in_yaml(field.default)}`", documented.get(field.name, ""))
            for field in fields(kind)
        ),
    )


def _in_yaml(value: Any) -> str:
    if is_dataclass(value):
        entries = (f"{one.name}: {_in_yaml(getattr(value, one.name))}" for one in fields(value))
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, tuple):
        return str(list(value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
