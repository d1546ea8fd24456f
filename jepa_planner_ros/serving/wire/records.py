"""Dataclasses as records, field by field, guided by nothing but their annotations.

Writing and reading are tables over ``dataclasses.fields``: whatever is added to a dataclass
travels. Arrays of ``float32`` are latents, which a `LatentWriter` may abbreviate to a digest; all
other arrays travel exactly. A field of a class that has subclasses may hold any of those, and no
other class is ever made of a record.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.tensors import pack, unpack
from jepa_planner_ros.types import Float32Array

T = TypeVar("T")

LatentWriter = Callable[[Float32Array], pb.Latent]
LatentReader = Callable[[pb.Latent], Float32Array]

# Of a sequence; the longest in use has one for each round of a plan. Larger things are arrays.
_MOST_ITEMS = 1000

_ARRAYS = {np.float32: pb.FLOAT32, np.float64: pb.FLOAT64, np.int64: pb.INT64}
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
_SCALARS: Mapping[type, str] = {bool: "flag", int: "whole", float: "real", str: "text"}


def to_record(value: Any, latents: LatentWriter) -> pb.Record:
    """A dataclass as a record."""
    record = pb.Record(type=type(value).__name__)
    hints = _hints(type(value))
    for field in fields(value):
        _write(record.fields[field.name], getattr(value, field.name), hints[field.name], latents)
    return record


def from_record(kind: type[T], record: pb.Record, latents: LatentReader) -> T:
    """The dataclass `kind`, or a subclass of it, that a record tells of.

    Raises:
        WireError: the record does not fit the dataclass, or the dataclass refuses a value.
    """
    for candidate in _family(kind):
        if candidate.__name__ == record.type:
            return cast(T, _read_dataclass(candidate, record, latents))
    raise WireError(f"a record tells of a {_quoted(record.type)} instead of a {kind.__name__}.")


def _write(target: pb.Value, value: Any, hint: Any, latents: LatentWriter) -> None:
    if value is None:
        target.none = True
    elif is_dataclass(value):
        target.record.CopyFrom(to_record(value, latents))
    elif isinstance(value, np.ndarray):
        dtype = _array_dtype(hint)
        if dtype is np.float32:
            target.latent.CopyFrom(latents(value))
        else:
            target.tensor.CopyFrom(pack(value.astype(dtype, copy=False)))
    elif isinstance(value, Mapping):
        target.record.SetInParent()
        for name, entry in value.items():
            _write(target.record.fields[name], entry, get_args(hint)[1], latents)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        target.sequence.SetInParent()
        for item in value:
            _write(target.sequence.items.add(), item, None, latents)
    else:
        scalar = value.item() if isinstance(value, np.generic) else value
        setattr(target, _SCALARS[type(scalar)], scalar)


def _read_dataclass(kind: type, record: pb.Record, latents: LatentReader) -> Any:
    known = {field.name: field for field in fields(kind) if field.init}
    if unknown := sorted(set(record.fields) - set(known)):
        raise WireError(
            f"{kind.__name__} has no field {_quoted(unknown[0])} here: install the same version "
            "on both sides."
        )
    hints = _hints(kind)
    arguments = {}
    for name, field in known.items():
        if name in record.fields:
            where = f"{kind.__name__}.{name}"
            arguments[name] = _read(record.fields[name], hints[name], where, latents)
        elif _is_required(field):
            raise WireError(f"{kind.__name__} comes without its field '{name}'.")
    try:
        return kind(**arguments)
    except (ValueError, TypeError) as refusal:
        raise WireError(str(refusal)) from refusal


def _read(value: pb.Value, hint: Any, where: str, latents: LatentReader) -> Any:
    """The Python value, of one of the types that the annotation allows."""
    kind = value.WhichOneof("kind")
    for option in _options(hint):
        match kind:
            case "none" if option is type(None):
                return None
            case "tensor" if (dtype := _array_dtype(option)) in _ARRAYS:
                return _located(where, lambda: unpack(value.tensor, _ARRAYS[dtype]))
            case "latent" if _array_dtype(option) is np.float32:
                return _located(where, lambda: latents(value.latent))
            case "record" if get_origin(option) in (Mapping, dict):
                entry = get_args(option)[1]
                return {
                    name: _read(content, entry, where, latents)
                    for name, content in value.record.fields.items()
                }
            case "record" if isinstance(option, type) and is_dataclass(option):
                return from_record(option, value.record, latents)
            case "sequence" if get_origin(option) is tuple:
                return _read_tuple(value.sequence, get_args(option), where, latents)
            case "text" if get_origin(option) is Literal:
                if value.text in get_args(option):
                    return value.text
            case "real" if option is float:
                if not math.isfinite(value.real):
                    raise WireError(f"{where} is not finite (NaN or infinity).")
                return value.real
            case "whole" if option is float:
                return float(value.whole)
            case "flag" | "whole" | "text" if _SCALARS.get(option) == kind:
                return getattr(value, kind)
    raise WireError(f"{where} must be {_described(hint)}, not {_shown(value)}.")


def _read_tuple(
    sequence: pb.Sequence, kinds: tuple[Any, ...], where: str, latents: LatentReader
) -> tuple[Any, ...]:
    items = sequence.items
    if len(items) > _MOST_ITEMS:
        raise WireError(f"{where} has {len(items)} items; {_MOST_ITEMS} is the most.")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(items)
    if len(items) != len(kinds):
        raise WireError(f"{where} must have {len(kinds)} items, not {len(items)}.")
    return tuple(_read(item, kind, where, latents) for item, kind in zip(items, kinds, strict=True))


def _located(where: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except WireError as error:
        raise type(error)(f"{where}: {error}") from None


def _family(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _family(subclass)


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _array_dtype(hint: Any) -> Any:
    """The scalar type of an annotation ``NDArray[...]``, possibly optional; else None."""
    for option in _options(hint):
        if get_origin(option) is np.ndarray:
            return get_args(get_args(option)[1])[0]
    return None


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _described(hint: Any) -> str:
    return " or ".join(getattr(option, "__name__", str(option)) for option in _options(hint))


def _shown(value: pb.Value) -> str:
    kind = value.WhichOneof("kind")
    return "nothing" if kind is None else _quoted(value.text) if kind == "text" else f"a {kind}"


def _quoted(text: str) -> str:
    """Foreign text, short enough for a sentence."""
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
