"""Where a remote planner is, and how to talk to it: checked before anything is sent."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from jepa_planner_ros.serving.wire import LONGEST_NAME, MAX_TIME_LIMIT_S

LatentPrecision = Literal["float32", "float16"]

LONGEST_ROBOT_NAME = LONGEST_NAME - 32
"""In characters; the names of its requests begin with it."""

_ADDRESS = re.compile(r"grpcs?://([^/\s:\[\]]+|\[[0-9a-fA-F:]+\]):\d+/?")


@dataclass(frozen=True)
class RemoteSettings:
    """Where the planner is, and how to talk to it.

    Attributes:
        address: ``grpc://HOST:PORT``, or ``grpcs://`` through a proxy with TLS.
        token_file: holds the token that the planner asks for; None sends none.
        ca_file: certificate (PEM) of whoever signed the proxy's; None trusts the usual ones.
        certificate_file: our own certificate (PEM), where the proxy asks for one.
        key_file: its private key (PEM).
        plan_timeout_s: a plan that takes longer is given up; at most 600.
        start_timeout_s: how long to wait for the planner to be there at first.
        latents: number format of latents under way; with ``float16`` they take half the bytes, and
            plans differ from those made with exact latents.
        robot: what the planner calls us when it serves several robots in turn; no two robots
            should have the same name.
    """

    address: str
    token_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    plan_timeout_s: float = 60.0
    start_timeout_s: float = 120.0
    latents: LatentPrecision = "float32"
    robot: str = socket.gethostname()

    def __post_init__(self) -> None:
        if _ADDRESS.fullmatch(self.address) is None:
            raise ValueError(
                f"planner_address {self.address!r} must be grpc://HOST:PORT, or grpcs://HOST:PORT "
                "for a planner behind TLS."
            )
        if self.latents not in ("float32", "float16"):
            raise ValueError(f"latents {self.latents!r} must be 'float32' or 'float16'.")
        if not 0.0 < self.plan_timeout_s <= MAX_TIME_LIMIT_S:
            raise ValueError(
                f"serving.plan_timeout {self.plan_timeout_s:g} s must lie between 0 and "
                f"{MAX_TIME_LIMIT_S:g} s, the most that a planner elsewhere allows."
            )
        if len(self.robot) > LONGEST_ROBOT_NAME:
            raise ValueError(
                f"The robot's name {self.robot[:16]!r}... has {len(self.robot)} characters: give "
                f"at most {LONGEST_ROBOT_NAME}."
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("A client certificate and its key must be given together.")
        if not self.encrypted and (self.ca_file or self.certificate_file):
            raise ValueError(
                f"Certificates were given, but planner_address {self.address!r} is not encrypted: "
                "write grpcs://."
            )
        if not self.encrypted and self.token_file is not None and not self.local:
            raise ValueError(
                f"The token would be readable on its way to {self.address!r}: put a proxy with TLS "
                "before the planner and write grpcs://."
            )

    @property
    def encrypted(self) -> bool:
        """Whether the connection is."""
        return self.address.startswith("grpcs://")

    @property
    def target(self) -> str:
        """Host and port."""
        return self.address.partition("://")[2].rstrip("/")

    @property
    def host(self) -> str:
        """The planner's host."""
        return self.target.rpartition(":")[0].strip("[]")

    @property
    def local(self) -> bool:
        """Whether that is this computer."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
