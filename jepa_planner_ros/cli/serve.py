"""``jepa-planner serve``: the planner as a service, for robots here or on the network."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number

if TYPE_CHECKING:
    from jepa_planner_ros.serving.service import PlannerService, RunningService, ServiceSettings

_DESCRIPTION = """\
Plan for robots: replicas of the world model on Ray Serve, one for each GPU, behind one gRPC
endpoint. Without --address a Ray is started that ends with this command.

Without --token-file only this computer is served, whoever can reach the port. For robots elsewhere
make a token, and put a proxy with TLS before the port: docs/cluster.md shows how.
"""

_EPILOG = """\
examples:
  jepa-planner serve                                     two replicas on the CPU, or one per GPU
  jepa-planner serve --checkpoint vjepa2-ac-vitg.pt      Meta's model; wants GPUs
  jepa-planner serve --address auto                      on the Ray cluster that this machine is in
  openssl rand -hex 32 > token && jepa-planner serve --token-file token

The planner node finds it by its parameters:
  ros2 run jepa_planner_ros planner_node --ros-args \\
      -p planner:=remote -p planner_address:=grpc://127.0.0.1:9000

exit code: 0 after Ctrl-C or SIGTERM, 1 when the planner cannot be started
"""

# Before a service that was lost, and could not be started again, is tried once more, s.
_PAUSE_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--checkpoint",
        default="shipped",
        metavar="FILE",
        help="world model to plan with (default: shipped)",
    )
    add(
        "--replicas",
        type=whole_number(1, 1024),
        metavar="W",
        help="copies of the world model (default: one per GPU, or two without)",
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where they run; auto takes GPUs where there are any (default: auto)",
    )
    add(
        "--precision",
        default="auto",
        metavar="NAME",
        help="number format of the rollouts, for instance fp16, bf16, fp32; auto is fp16 on GPUs "
        "and fp32 on CPUs (default: auto)",
    )
    add(
        "--port",
        type=whole_number(1, 65535),
        default=9000,
        metavar="P",
        help="port of the gRPC service (default: 9000)",
    )
    add(
        "--health-port",
        type=whole_number(1, 65535),
        default=8000,
        metavar="P",
        help="port of http://127.0.0.1:P/-/healthz, for load balancers (default: 8000)",
    )
    add(
        "--metrics-port",
        type=whole_number(1, 65535),
        default=0,
        metavar="P",
        help="port of http://HOST:P/metrics, for Prometheus, on every interface of this computer; "
        "the address is printed (default: any free one)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="robots must know the token in this file (default: only this computer is served)",
    )
    add(
        "--address",
        metavar="RAY",
        help="an existing Ray cluster, as for ray.init: auto, or HOST:PORT of its head "
        "(default: start one here)",
    )
    add("--dashboard", action="store_true", help="Ray's dashboard on http://127.0.0.1:8265")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C, and return the exit code."""
    # Here, since they take seconds to load and --help should not.
    from jepa_planner_ros.serving.service import ServiceSettings
    from jepa_planner_ros.serving.settings import ServingSettings
    from jepa_planner_ros.types import PlannerError
    from jepa_planner_ros.world_model import PRESETS

    if args.address is not None:
        _require_ours("--metrics-port", args.metrics_port)
        _require_ours("--dashboard", args.dashboard)
    known = args.checkpoint in PRESETS
    checkpoint = args.checkpoint if known else str(Path(args.checkpoint).absolute())
    try:
        serving = ServingSettings(checkpoint, args.device, args.replicas, args.precision)
    except ValueError as error:
        raise CommandError(str(error)) from error
    settings = ServiceSettings(
        serving,
        port=args.port,
        health_port=args.health_port,
        metrics_port=args.metrics_port,
        token_file=args.token_file and args.token_file.absolute(),
        address=args.address,
        dashboard=args.dashboard,
    )
    if args.address is None:
        # On another's cluster, proxies run on other hosts, or are there already.
        _require_free_port("--port", args.port, "")
        _require_free_port("--health-port", args.health_port, "127.0.0.1")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _serve(settings)
    except PlannerError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        _say("Ended.")
    return 0


def _require_ours(option: str, given: object) -> None:
    """Raise `CommandError` where something is asked of a Ray that others have started."""
    if given:
        raise CommandError(
            f"{option} is for a Ray that this command starts; with --address the cluster has its "
            "own: leave it out, and give it to 'ray start' instead."
        )


def _require_free_port(option: str, port: int, host: str) -> None:
    """Raise `CommandError` where another program listens.

    Serve would share the port of another Serve, whose robots would then be served by either.

    Args:
        option: that gives the port.
        port: to be listened on.
        host: address to be listened on; empty for all of IPv6 and IPv4, as gRPC does.
    """
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server((host, port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise CommandError(
            f"{option} {port} cannot be listened on: {os.strerror(error.errno or 0)}. End what "
            "listens there, perhaps another 'jepa-planner serve', or give another port."
        ) from error


def _serve(settings: ServiceSettings) -> None:
    """Serve, start again what is lost, and return when interrupted.

    Raises:
        PlannerError: the service could not be started in the first place.
    """
    from jepa_planner_ros.serving.service import PlannerService
    from jepa_planner_ros.types import PlannerError

    _say("Starting Ray and the world model ...")
    service = PlannerService(settings)
    while True:
        try:
            _tell(service.running)
            for health in service.health():
                _say(f"health:   {health}")
        except PlannerError as lost:
            _say(f"lost:     {lost}. Starting again ...")
        finally:
            service.close()
        service = _started_again(settings)


def _started_again(settings: ServiceSettings) -> PlannerService:
    from jepa_planner_ros.serving.service import PlannerService
    from jepa_planner_ros.types import PlannerError

    while True:
        try:
            return PlannerService(settings)
        except PlannerError as error:
            _say(f"lost:     {error}. Trying again in {_PAUSE_S:g} s ...")
            time.sleep(_PAUSE_S)


def _tell(running: RunningService) -> None:
    model = running.model
    _say(
        f"endpoint: {running.endpoint}\n"
        f"model:    {model.fingerprint}, {model.parameters / 1e6:.1f} M parameters, on "
        f"{model.replicas} x {model.device}\n"
        f"metrics:  {running.metrics}"
    )
    if running.logs is not None:
        _say(f"logs:     {running.logs}")


def _say(text: str) -> None:
    print(text, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
