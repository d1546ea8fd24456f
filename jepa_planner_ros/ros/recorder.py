"""Recording topics to a rosbag2 bag, as they are serialised, without taking messages apart."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from jepa_planner_ros.ros.clock import ros_now

_LOOK_AROUND = 0.25
"""How often new publishers are looked for, s."""
_DEPTH = 100
_VERSION: Literal[8, 9] = 8
"""Of the bag's format: the newest that Humble reads."""
_NO_TIME = QosTime(0, 0)


class Storage(Enum):
    """How a bag is stored."""

    MCAP = "mcap"
    SQLITE3 = "sqlite3"


class RecorderError(RuntimeError):
    """Nothing can be recorded; the message says why."""


class Recorder:
    """Records topics as soon as somebody publishes on them. Use it in a ``with`` block.

    The node must be spun by the thread that made the recorder: databases are bound to theirs.

    Args:
        node: subscribes.
        path: directory of the bag; must not exist.
        topics: names, relative to the node's namespace or absolute.
        storage: format of the bag. In mcap, zstd compresses what is stored.

    Raises:
        RecorderError: the bag cannot be written there.
    """

    def __init__(self, node: Node, path: Path, topics: Sequence[str], storage: Storage) -> None:
        self._node = node
        self._wanted = [node.resolve_topic_name(topic) for topic in topics]
        self._types = get_typestore(Stores.LATEST)
        self._connections: dict[str, Connection] = {}
        self.counts: dict[str, int] = {}
        """Messages recorded so far, by topic."""
        try:
            self._writer = Writer(
                path, version=_VERSION, storage_plugin=StoragePlugin[storage.name]
            )
            if storage is Storage.MCAP:
                self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
            self._writer.open()
        except Exception as error:
            raise RecorderError(f"The bag cannot be written: {error}") from error
        self._timer = node.create_timer(_LOOK_AROUND, self._look_around)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._node.destroy_timer(self._timer)
        self._writer.close()

    @property
    def unheard(self) -> list[str]:
        """The topics on which nobody has published yet."""
        return [topic for topic in self._wanted if topic not in self._connections]

    def _look_around(self) -> None:
        for topic in self.unheard:
            publishers = self._node.get_publishers_info_by_topic(topic)
            if publishers:
                self._record(topic, publishers[0].topic_type, publishers[0].qos_profile)

    def _record(self, topic: str, kind: str, offered: QoSProfile) -> None:
        try:
            message_class = _message_class(kind)
            self._know(kind)
        except RecorderError as error:
            self._node.get_logger().warning(f"{topic} is not recorded. {error}")
            self._wanted.remove(topic)
            return
        self._connections[topic] = self._writer.add_connection(
            topic, kind, typestore=self._types, offered_qos_profiles=[_bag_qos(offered)]
        )
        self.counts[topic] = 0
        self._node.create_subscription(
            message_class, topic, partial(self._write, topic), _subscription_qos(offered), raw=True
        )
        self._node.get_logger().info(f"Recording {topic} ({kind}).")

    def _write(self, topic: str, data: bytes) -> None:
        self._writer.write(self._connections[topic], ros_now(self._node), data)
        self.counts[topic] += 1

    def _know(self, kind: str) -> None:
        """Make sure that a type's definition can be stored along with the messages."""
        try:
            self._types.get_msgdef(kind)
        except Exception:
            # Not one of ROS's own: packages install the definitions of their messages.
            package = kind.partition("/")[0]
            definitions = dict(_definitions(package))
            if kind not in definitions:
                raise RecorderError(
                    f"The definition of {kind} is not installed: source the workspace of {package}."
                ) from None
            for name, text in definitions.items():
                self._types.register(get_types_from_msg(text, name))


def _message_class(kind: str) -> Any:
    package, _, name = kind.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError) as error:
        raise RecorderError(
            f"{kind} cannot be loaded: source the workspace of {package}."
        ) from error


def _definitions(package: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a package's message types."""
    try:
        share = Path(get_package_share_directory(package))
    except (PackageNotFoundError, OSError):  # OSError: AMENT_PREFIX_PATH is not set.
        share = Path(sys.prefix, "share", package)
    for file in sorted((share / "msg").glob("*.msg")):
        yield f"{package}/msg/{file.stem}", file.read_text()


def _subscription_qos(offered: QoSProfile) -> QoSProfile:
    """What fits a publisher: as reliable as it is, and with what it has kept."""
    return QoSProfile(
        depth=_DEPTH,
        reliability=offered.reliability,
        durability=offered.durability,
    )


def _bag_qos(offered: QoSProfile) -> Qos:
    """What whoever plays the bag is to offer."""
    reliable = offered.reliability is ReliabilityPolicy.RELIABLE
    latched = offered.durability is DurabilityPolicy.TRANSIENT_LOCAL
    return Qos(
        QosHistory.KEEP_LAST,
        _DEPTH,
        QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        _NO_TIME,
        _NO_TIME,
        QosLiveliness.AUTOMATIC,
        _NO_TIME,
        False,
    )
