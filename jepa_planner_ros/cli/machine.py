"""What this machine has of what the planner, the node and the simulation want."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import torch

from jepa_planner_ros.cli.findings import Finding
from jepa_planner_ros.world_model.compilation import COMPILE_SWITCHES

PYTHON_FROM, PYTHON_BELOW = (3, 10), (3, 14)
RAY_FROM = (2, 60)

_GIB = 2**30
_RENDER = "import mujoco; mujoco.GLContext(64, 64).make_current()"
_RENDER_TIMEOUT_S = 60.0


def check_python(running: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python's version."""
    fits = PYTHON_FROM <= running[:2] < PYTHON_BELOW
    return Finding(
        "Python",
        ".".join(map(str, running)),
        "" if fits else "use Python 3.10 to 3.13, for example: make setup PYTHON=python3.12",
        needed=True,
    )


def check_processor(flags: frozenset[str] | None = None) -> Finding:
    """Cores, and whether they multiply in half precision."""
    flags = _processor_flags() if flags is None else flags
    fast = "avx512_bf16" in flags or "amx_bf16" in flags
    return Finding(
        "processor",
        f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, "
        f"{'bf16 in hardware' if fast else 'no bf16 in hardware: fp32 is its fastest precision'}",
    )


def check_memory() -> Finding:
    """Working memory."""
    total, available = memory()
    return Finding("memory", f"{available / _GIB:.1f} GiB free of {total / _GIB:.1f} GiB")


def memory() -> tuple[int, int]:
    """Bytes of working memory: (all, free for new processes)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return 1024 * kilobytes["MemTotal"], 1024 * kilobytes["MemAvailable"]


def check_gpus() -> Iterator[Finding]:
    """Each GPU that PyTorch can use, with the precisions it is fast in."""
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        capability = (properties.major, properties.minor)
        yield Finding(
            f"GPU {index}",
            f"{properties.name}, {free / _GIB:.1f} GiB free of {total / _GIB:.1f} GiB, "
            f"fast in {', '.join(fast_precisions(capability))}",
        )
    if torch.cuda.is_available():
        return
    if shutil.which("nvidia-smi") is None:
        yield Finding("GPU", "none: the shipped model runs on the CPU, V-JEPA 2-AC hardly does")
    elif torch.version.cuda is None:
        yield Finding(
            "GPU",
            f"there is a driver, but PyTorch {torch.__version__} is built without CUDA",
            "pip install --force-reinstall torch, from an index that has CUDA builds",
        )
    else:
        yield Finding(
            "GPU",
            f"PyTorch {torch.__version__} finds none",
            "see whether nvidia-smi lists one, whether CUDA_VISIBLE_DEVICES hides it, and whether "
            f"the driver is new enough for CUDA {torch.version.cuda}",
        )


def fast_precisions(capability: tuple[int, int]) -> list[str]:
    """Precisions that a GPU of this compute capability multiplies in faster than in fp32.

    Source: the table of tensor core data types in NVIDIA's CUDA programming guide.
    """
    since = {"fp16": (7, 0), "int8": (7, 2), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
    return [precision for precision, first in since.items() if capability >= first] or ["fp32"]


def check_compile(environment: Mapping[str, str] | None = None) -> Finding:
    """Whether ``torch.compile`` compiles, or silently returns what it was given."""
    environment = os.environ if environment is None else environment
    switches = [name for name in COMPILE_SWITCHES if environment.get(name) == "1"]
    if switches:
        return Finding(
            "torch.compile",
            f"does nothing, and does not say so: {switches[0]}=1 is in the environment",
            f"unset {switches[0]}",
        )
    compiler = environment.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None:
        return Finding(
            "torch.compile",
            f"finds no C++ compiler ({compiler})",
            "sudo apt-get install g++, or set CXX to the compiler there is",
        )
    return Finding("torch.compile", "not disabled by the environment, and there is a C++ compiler")


def check_ros(needed: bool) -> Iterator[Finding]:
    """The Python side of ROS 2, and the messages of this package."""
    distribution = _ros_distribution()
    source = "source /opt/ros/<distribution>/setup.bash, or make setup in a checkout"
    yield _importable("rclpy", "rclpy", f"of {distribution}", source, needed)
    yield _importable(
        "messages",
        "jepa_planner_msgs.action",
        "jepa_planner_msgs",
        "source install/setup.bash of the workspace after colcon build, or make setup",
        needed,
    )


def check_ray(needed: bool) -> Finding:
    """Ray Serve, which the planner ``local_ray`` and remote planners run on."""
    fix = "pip install 'ray[serve]>=2.60,<3', or plan with planner:=in_process"
    try:
        installed = version("ray")
    except PackageNotFoundError:
        return Finding("Ray", "not installed", fix, needed)
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if not RAY_FROM <= numbers < (3, 0):
        return Finding("Ray", f"{installed}, but 2.60 or later, below 3, is needed", fix, needed)
    if importlib.util.find_spec("starlette") is None:
        return Finding("Ray", f"{installed} without its part 'serve'", fix, needed)
    return Finding("Ray", installed)


def check_simulation(needed: bool) -> Iterator[Finding]:
    """MuJoCo, the arm's model and drawing without a screen."""
    if importlib.util.find_spec("mujoco") is None:
        yield Finding("MuJoCo", "not installed", "pip install 'jepa_planner_ros[sim]'", needed)
        return
    yield Finding("MuJoCo", version("mujoco"))
    try:
        yield Finding("arm's model", f"dm-robotics-panda {version('dm-robotics-panda')}")
    except PackageNotFoundError:
        fix = "pip install --no-deps dm-robotics-panda"
        yield Finding("arm's model", "dm-robotics-panda is not installed", fix, needed)
    backend = os.environ.get("MUJOCO_GL", "egl")
    failure = _drawing_failure(backend)
    yield Finding(
        "drawing",
        f"fails with MUJOCO_GL={backend}: {failure}" if failure else f"works with {backend}",
        "apt-get install libegl1 libgl1-mesa-dri, and leave MUJOCO_GL unset" if failure else "",
        needed,
    )


def _drawing_failure(backend: str) -> str:
    """Why a picture cannot be drawn, in a process of its own, since drivers may crash it."""
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _RENDER],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=_RENDER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_RENDER_TIMEOUT_S:g} s"
    if tried.returncode == 0:
        return ""
    # Later lines tell of cleaning up; the first error is the cause.
    errors = [line for line in tried.stderr.splitlines() if re.match(r"\w+(\.\w+)*Error\b", line)]
    return errors[0] if errors else f"the process ended with code {tried.returncode}"


def _importable(subject: str, module: str, found: str, fix: str, needed: bool) -> Finding:
    try:
        importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            return Finding(subject, f"{package} is not found", fix, needed)
        # Typical: ROS of another Python version, or its libraries not on LD_LIBRARY_PATH.
        failure = f"{package} does not load in Python {platform.python_version()}: {error}"
        return Finding(subject, failure, fix, needed)
    return Finding(subject, found)


def _ros_distribution() -> str:
    if "ROS_DISTRO" in os.environ:
        return f"ROS 2 {os.environ['ROS_DISTRO'].capitalize()}"
    for distribution in distributions():
        named = re.fullmatch(r"ros-(\w+)-rclpy", distribution.metadata["Name"] or "")
        if named:
            return f"ROS 2 {named[1].capitalize()}, from wheels"
    return "an unknown ROS 2 (ROS_DISTRO is not set)"


def _processor_flags() -> frozenset[str]:
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return frozenset(flags[1].split()) if flags else frozenset()
