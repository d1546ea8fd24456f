"""Bags made of a bag: with something left out, renamed, in disorder, or in small pieces."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from jepa_planner_ros.replay.bag import Bag, RawMessage
from jepa_planner_ros.replay.recording import PLAN_TYPE
from jepa_planner_ros.ros.reading import stamp_of


def rewrite(
    bag: Path,
    keep: Callable[[str, int], bool] = lambda topic, stamp: True,
    renamed: Mapping[str, str] | None = None,
    backwards: str | None = None,
    without_fields: Sequence[str] = (),
    changed: Mapping[str, Callable[[bytes], bytes]] | None = None,
    chunk: int = 1000,
) -> None:
    """Put a bag's messages into a new mcap bag in its place.

    Args:
        bag: directory, to be replaced.
        keep: asked with topic and stamp whether a message is kept; all these have a header.
        renamed: new names of topics.
        backwards: topic whose messages change places with their neighbours.
        without_fields: fields that plans are to lack.
        changed: by type, what is done to the serialised messages.
        chunk: messages in each part of the file.
    """
    with Bag(bag) as source:
        messages = [
            one for one in source.messages(source.topics) if keep(one.topic, _stamp(source, one))
        ]
        stores = {one.type: source.typestores[one.type] for one in messages}
        if without_fields:
            lacking = _lacking(stores[PLAN_TYPE], without_fields)
            messages = [
                _converted(one, stores[PLAN_TYPE], lacking) if one.type == PLAN_TYPE else one
                for one in messages
            ]
            stores[PLAN_TYPE] = lacking
    shutil.rmtree(bag)
    writer = Writer(bag, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for count, one in enumerate(_in_disorder(messages, backwards)):
            topic = (renamed or {}).get(one.topic, one.topic)
            if topic not in connections:
                connections[topic] = writer.add_connection(
                    topic, one.type, typestore=stores[one.type]
                )
            change = (changed or {}).get(one.type, bytes)
            writer.write(connections[topic], one.time, change(one.data))
            if count % chunk == chunk - 1:
                writer.storage.close_chunk()  # type: ignore[union-attr]


def _stamp(bag: Bag, message: RawMessage) -> int:
    content = bag.read(message)
    return stamp_of(content) if hasattr(content, "header") else message.time


def _in_disorder(messages: list[RawMessage], topic: str | None) -> list[RawMessage]:
    indices = [index for index, one in enumerate(messages) if one.topic == topic]
    for first, second in zip(indices[::2], indices[1::2], strict=False):
        one, other = messages[first], messages[second]
        messages[first] = RawMessage(one.topic, one.type, one.time, other.data)
        messages[second] = RawMessage(one.topic, one.type, other.time, one.data)
    return messages


def _lacking(store: Typestore, fields: Sequence[str]) -> Typestore:
    """The types of a store, with plans that lack some fields."""
    definitions = dict(store.fielddefs)
    constants, given = definitions[PLAN_TYPE]
    definitions[PLAN_TYPE] = (constants, [field for field in given if field[0] not in fields])
    lacking = get_typestore(Stores.EMPTY)
    lacking.register(definitions)
    return lacking


def _converted(message: RawMessage, source: Typestore, target: Typestore) -> RawMessage:
    whole = source.deserialize_cdr(message.data, PLAN_TYPE)
    names = [name for name, _ in target.fielddefs[PLAN_TYPE][1]]
    part = target.types[PLAN_TYPE](**{name: getattr(whole, name) for name in names})
    data = bytes(target.serialize_cdr(part, PLAN_TYPE))
    return RawMessage(message.topic, message.type, message.time, data)
