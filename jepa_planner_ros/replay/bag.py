"""Reading rosbag2 recordings, whole or not: mcap and sqlite3, with metadata or without.

What is damaged is read as far as it goes, and every damage is told in a sentence.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection, MessageDefinitionFormat
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

_MCAP_MAGIC = b"\x89MCAP0\r\n"
# A footer that points to no summary, so that readers scan the file.
_MCAP_END = b"\x0f" + struct.pack("<QI", 4, 0) + b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0)
_MCAP_DATA_END = 0x0F
_SQLITE_MAGIC = b"SQLite format 3\0"
_IDL_SEPARATOR = "=" * 80 + "\n"


class BagError(ValueError):
    """A bag cannot be used at all; the message says why and what to do."""


@dataclass(frozen=True)
class RawMessage:
    """A message as it lies in a bag.

    Attributes:
        topic: its topic.
        type: its type, for instance ``sensor_msgs/msg/Image``.
        time: when it was recorded, ns.
        data: its CDR serialisation.
    """

    topic: str
    type: str
    time: int
    data: bytes


class Bag:
    """An open bag; close it, or use it in a ``with`` block.

    Args:
        path: directory of a bag, or a single .mcap or .db3 file.

    Attributes:
        topics: the type of every topic in the bag.
        typestores: for every type that is known, what takes its messages apart.
        problems: what is damaged, in sentences; grows while the bag is read.

    Raises:
        BagError: nothing can be read from it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.topics: dict[str, str] = {}
        self.problems: list[str] = []
        self._stack = ExitStack()
        self.typestores: dict[str, Typestore] = {}
        try:
            self._readers = self._open()
        except BaseException:
            self.close()
            raise
        for reader in self._readers:
            for connection in reader.connections:
                self.topics[connection.topic] = connection.msgtype
                self._learn(connection)

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def messages(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of some topics in the order in which they were recorded."""
        for reader in self._readers:
            wanted = [one for one in reader.connections if one.topic in topics]
            if not wanted:
                continue
            count = 0
            try:
                for connection, time, data in reader.messages(wanted):
                    count += 1
                    yield RawMessage(connection.topic, connection.msgtype, time, bytes(data))
            except Exception as error:
                # The libraries below raise errors of every kind on damaged files.
                self._complain(
                    f"{Path(str(reader.path)).name} is damaged after {count} messages of "
                    f"{', '.join(sorted(topics))} ({_cause(error)}); what comes before is used."
                )

    def read(self, message: RawMessage) -> Any:
        """Take a message apart.

        Raises:
            BagError: its type is unknown, or it is not a message of that type.
        """
        store = self.typestores.get(message.type)
        if store is None:
            raise BagError(
                f"{message.topic} has the type {message.type}, which the bag does not define and "
                "nobody else here knows: record it with a rosbag2 that stores definitions (Iron or "
                "later), as mcap."
            )
        try:
            return store.deserialize_cdr(message.data, message.type)
        except Exception as error:
            raise BagError(
                f"A message on {message.topic} is no {message.type}: {_cause(error)}"
            ) from error

    def _open(self) -> list[Reader]:
        if not self.path.exists():
            raise BagError(f"There is no bag at {self.path}.")
        if self.path.is_file():
            return [self._open_file(self.path)]
        try:
            return [self._enter(Reader(self.path))]
        except Exception as error:
            complaint = f"The bag cannot be opened by its metadata.yaml ({_cause(error)})"
        files = sorted([*self.path.glob("*.mcap"), *self.path.glob("*.db3")])
        if not files:
            raise BagError(
                f"{self.path} holds no .mcap or .db3 file: it is no bag. Name the directory that "
                "'jepa-planner record' or 'ros2 bag record' has made."
            )
        if not (self.path / "metadata.yaml").exists():
            complaint = "metadata.yaml is missing; 'ros2 bag reindex' writes it"
        self._complain(f"{complaint}. Its files are read without that.")
        readers = []
        for file in files:
            try:
                readers.append(self._open_file(file))
            except BagError as error:
                self._complain(str(error))
        if not readers:
            raise BagError(" ".join(self.problems))
        return readers

    def _open_file(self, file: Path) -> Reader:
        if file.stat().st_size == 0:
            raise BagError(f"{file} is empty: the recorder or a copy broke off at once.")
        try:
            return self._enter(Reader(file))
        except Exception as error:
            cause = _cause(error)
        mend = {".mcap": _mend_mcap, ".db3": _mend_database}.get(file.suffix)
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="jepa_bag")))
        if mend is not None and mend(file, directory / file.name):
            self._complain(f"{file.name} is damaged ({cause}); what is whole is used.")
            try:
                return self._enter(Reader(directory / file.name))
            except Exception as error:
                cause = _cause(error)
        raise BagError(f"{file} cannot be read: {cause}.")

    def _enter(self, reader: Reader) -> Reader:
        return self._stack.enter_context(reader)

    def _learn(self, connection: Connection) -> None:
        """Keep a type as the bag defines it, or else as the newest ROS 2 does."""
        definition, name = connection.msgdef, connection.msgtype
        store = get_typestore(Stores.EMPTY)
        try:
            match definition.format:
                case MessageDefinitionFormat.MSG:
                    store.register(get_types_from_msg(definition.data, name))
                case MessageDefinitionFormat.IDL:
                    for part in filter(None, definition.data.split(_IDL_SEPARATOR)):
                        idl = part.partition("\n")[2] if part.startswith("IDL: ") else part
                        store.register(get_types_from_idl(idl))
                case _:
                    store = get_typestore(Stores.LATEST)
            store.get_msgdef(name)
        except Exception:
            # Unknown to `read`, which says so if anybody asks for it.
            return
        self.typestores[name] = store

    def _complain(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _mend_mcap(file: Path, copy: Path) -> bool:
    """Copy an mcap file up to its last whole record; returns whether there is any."""
    size = file.stat().st_size
    end = 0
    with file.open("rb") as stream:
        if stream.read(len(_MCAP_MAGIC)) != _MCAP_MAGIC:
            return False
        while len(head := stream.read(9)) == 9:
            kind, length = struct.unpack("<BQ", head)
            # From the end of the data on there are indices, which may be cut.
            if kind == _MCAP_DATA_END or stream.tell() + length > size:
                break
            end = stream.seek(length, 1)
    shutil.copyfile(file, copy)
    with copy.open("r+b") as stream:
        stream.seek(end)
        stream.write(_MCAP_END + _MCAP_MAGIC)
        stream.truncate()
    return end > 0


def _mend_database(file: Path, copy: Path) -> bool:
    """Copy the rows of an sqlite3 file that can be read; returns whether there are any."""
    padded = copy.with_suffix(".padded")
    shutil.copyfile(file, padded)
    with padded.open("r+b") as stream:
        head = stream.read(32)
        if not head.startswith(_SQLITE_MAGIC) or len(head) < 32:
            return False
        # SQLite reads nothing of a file that is shorter than it should be.
        (page_size,), (pages,) = struct.unpack(">H", head[16:18]), struct.unpack(">I", head[28:32])
        stream.truncate(max(file.stat().st_size, page_size * pages))
    rows = 0
    with closing(sqlite3.connect(padded)) as source, closing(sqlite3.connect(copy)) as target:
        try:
            tables = source.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
        except sqlite3.DatabaseError:
            return False
        for name, statement in tables:
            target.execute(statement)
            # By way of an index, the first damaged page would end it.
            with suppress(sqlite3.DatabaseError):
                for row in source.execute(f'SELECT * FROM "{name}" NOT INDEXED'):
                    target.execute(f'INSERT INTO "{name}" VALUES ({",".join("?" * len(row))})', row)
                    rows += 1
        target.commit()
    return rows > 0


def _cause(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
