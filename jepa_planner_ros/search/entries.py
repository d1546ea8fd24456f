"""Entries of a file as a frozen dataclass, whose annotations say of what kind each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from jepa_planner_ros.spelling import as_given, did_you_mean

_ONE = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}
_SEVERAL = {int: "whole numbers", float: "numbers"}


def read_record(kind: type[Any], entries: Mapping[Any, Any], prefix: str = "") -> Any:
    """A dataclass with values for some of its fields, which all have defaults.

    Args:
        kind: the dataclass. Its fields are numbers, texts, tuples of them, dataclasses, or one of
            several of these.
        entries: values by the names of fields: lists for tuples, mappings for dataclasses.
        prefix: of the entries' names in errors, as ``energy.`` in ``energy.steps``.

    Raises:
        ValueError: an entry is unknown, of another kind, or refused by the dataclass.
    """
    known = {field.name: field.default for field in fields(kind)}
    for name in entries:
        if name not in known:
            raise ValueError(
                f"entry {prefix}{name} is unknown.{did_you_mean(str(name), known)} Known are: "
                f"{', '.join(known)}."
            )
    kinds = get_type_hints(kind)
    values = {
        name: _read(kinds[name], known[name], value, f"{prefix}{name}")
        for name, value in entries.items()
    }
    return kind(**values)


def _read(kind: Any, default: Any, value: Any, name: str) -> Any:
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in options:
        if is_dataclass(option) and isinstance(value, Mapping):
            return read_record(option, value, f"{name}.")  # type: ignore[arg-type]
        if _fits(option, value):
            return tuple(value) if isinstance(value, list) else value
    expected = _either(map(_in_words, options))
    raise ValueError(f"{name} must be {expected}{_such_as(default)}, not {as_given(value)}.")


def _fits(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(get_args(kind)[0], one) for one in value)
    # True counts as a whole number in Python, and a whole number may stand for any.
    return type(value) is kind or (kind is float and type(value) is int)


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return _either(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of {_SEVERAL[get_args(kind)[0]]}"
    if is_dataclass(kind):
        return f"entries ({', '.join(field.name for field in fields(kind))})"
    return _ONE[kind]


def _either(words: Iterable[str]) -> str:
    return " or ".join(words)


def _such_as(default: Any) -> str:
    if isinstance(default, tuple):
        return f", such as {list(default)}"
    # YAML takes 1e-3 for a text: show how a number is written.
    return f", such as {default}" if type(default) in (int, float) else ""
