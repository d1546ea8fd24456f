"""A ROS domain of one's own, so that a demo neither hears a real robot nor is heard by it."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from jepa_planner_ros.cli import CommandError

DOMAINS = range(1, 102)
"""Domains whose ports lie below those that Linux hands out to other programs."""

# DDSI-RTPS 2.5, Sec. 9.6.2: ports of discovery by multicast and of the first participant.
_BASE_PORT, _PORTS_PER_DOMAIN = 7400, 250
_FIRST_PORTS = (0, 10, 11)


def free_domain() -> int:
    """A domain that no process on this computer takes part in.

    Raises:
        CommandError: all are taken.
    """
    first = os.getpid() % len(DOMAINS)
    for domain in (*DOMAINS[first:], *DOMAINS[:first]):
        if all(_is_free(_BASE_PORT + _PORTS_PER_DOMAIN * domain + port) for port in _FIRST_PORTS):
            return domain
    raise CommandError("every ROS domain from 1 to 101 is in use here; name one with --domain-id.")


def enter_domain(domain: int, environment: MutableMapping[str, str]) -> None:
    """Set the variables that keep ROS 2 within `domain` and within this computer."""
    environment["ROS_DOMAIN_ID"] = str(domain)
    # Humble, the oldest ROS 2 supported, has its own variable, which later ones warn about.
    if environment.get("ROS_DISTRO") == "humble":
        environment["ROS_LOCALHOST_ONLY"] = "1"
    else:
        environment.pop("ROS_LOCALHOST_ONLY", None)
        environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
