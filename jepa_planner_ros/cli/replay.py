"""``jepa-planner replay``: the plans of a bag made anew, compared with the recorded ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.types import Planner, PlannerError

if TYPE_CHECKING:
    from jepa_planner_ros.replay.pipeline import Moment, Replayed, Skipped
    from jepa_planner_ros.replay.recording import Recording

_DESCRIPTION = """\
Make the plans of a recording anew and compare them with the recorded ones, before a new model, a
new search or a new version touches an arm.

Every recorded plan tells what it was made from: frame, state, goal, search, seed, and the plan that
it started from. So each is made anew by itself, as fast as the planner can. --realtime plays the
bag to the real planner node instead, by way of ROS and with the bag's clock; the arm's motion and
everything the camera sees are those of the bag, whatever the node plans.

Bags of other cameras and robots hold no plans: give the photograph of a goal with --goal, and plans
are made from frames at regular times.
"""

_EPILOG = """\
examples:
  jepa-planner replay pick.bag                                 does this version plan the same?
  jepa-planner replay pick.bag --planner local_ray --replicas 2
  jepa-planner replay pick.bag --checkpoint new.safetensors --output new_model
  jepa-planner replay pick.bag --search reference              what would another search plan?
  jepa-planner replay pick.bag --realtime --rate 2             through the node, twice as fast
  jepa-planner replay their.bag --goal goal.png --image-topic /camera/color/image_raw

DIR gets report.html, with the recorded and the new plans, and plans.jsonl; with --camera-pose, they
are drawn into the frames.

exit code: 0 when plans were made and all lie within --tolerance of the recorded ones, else 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    from jepa_planner_ros.cli.numbers import real_number, whole_number
    from jepa_planner_ros.replay.verdict import DEFAULT_TOLERANCE

    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "bag", type=Path, metavar="BAG", help="directory of a bag, or an .mcap or .db3 file"
    )
    who = parser.add_argument_group("who plans").add_argument
    who(
        "--planner",
        choices=("in_process", "local_ray"),
        default="in_process",
        help="in this process, or on a Ray cluster of this computer (default: in_process)",
    )
    who(
        "--replicas",
        type=whole_number(0, 64),
        default=0,
        metavar="W",
        help="on Ray (default: 0, one per GPU, or two without)",
    )
    who("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    who(
        "--device",
        default="cpu",
        metavar="NAME",
        help="where frames are encoded, and planned in process (default: cpu)",
    )
    who(
        "--search",
        metavar="PROFILE",
        help="another search than the recorded one: a profile's name, or a .yaml file of your own",
    )
    who("--seed", type=whole_number(0), metavar="S", help="another seed than the recorded one")
    bag = parser.add_argument_group("what the bag holds").add_argument
    bag("--image-topic", metavar="TOPIC", help="the camera, where there are several")
    bag("--joints-topic", metavar="TOPIC", help="the joint states, where there are several")
    bag(
        "--goal",
        type=Path,
        metavar="IMAGE",
        help="photograph of a goal, to plan from the frames instead of making recorded plans anew",
    )
    bag(
        "--every",
        type=real_number(0.01),
        default=1.0,
        metavar="S",
        help="with --goal: seconds from one plan to the next (default: 1)",
    )
    bag(
        "--camera-pose",
        type=float,
        nargs=7,
        metavar=("X", "Y", "Z", "QX", "QY", "QZ", "QW"),
        help="of the camera's optical frame in the base frame, m and quaternion: the report draws "
        "the plans into the frames",
    )
    how = parser.add_argument_group("how it is played").add_argument
    how("--realtime", action="store_true", help="through the planner node, over ROS, with /clock")
    how(
        "--rate",
        type=real_number(0.05, 20.0),
        default=1.0,
        metavar="R",
        help="with --realtime: seconds of the bag per second (default: 1)",
    )
    how(
        "--params-file",
        type=Path,
        metavar="FILE",
        help="with --realtime: the node's parameters, for instance those of the robot",
    )
    how(
        "--domain-id",
        type=whole_number(0, 101),
        metavar="D",
        help="with --realtime: ROS domain to use (default: one that nobody uses)",
    )
    out = parser.add_argument_group("what comes of it").add_argument
    out(
        "--tolerance",
        type=real_number(0.0),
        default=DEFAULT_TOLERANCE,
        metavar="M",
        help="how "
        "far an action may lie from the recorded one, in m, rad or closedness (default: 0.0001)",
    )
    out(
        "--output",
        type=Path,
        default=Path("replay"),
        metavar="DIR",
        help="for the report and the plans (default: replay)",
    )
    out("--json", type=Path, metavar="FILE", help="write the verdict there")


def run(args: argparse.Namespace) -> int:
    """Replay, write what comes of it, and return the exit code."""
    # Here, since they take seconds to load and --help should not.
    from jepa_planner_ros.replay.bag import BagError
    from jepa_planner_ros.replay.recording import Topics, read_recording
    from jepa_planner_ros.replay.verdict import judge
    from jepa_planner_ros.replay.writing import plans_as_lines, run_record
    from jepa_planner_ros.report import write_report
    from jepa_planner_ros.world_model import CheckpointError

    try:
        recording = read_recording(args.bag, Topics(args.image_topic, args.joints_topic))
        if args.camera_pose is not None and recording.intrinsics is None:
            raise CommandError(f"--camera-pose needs a camera_info topic, which {args.bag} lacks.")
        results = _replay_over_ros(recording, args) if args.realtime else _replay(recording, args)
    except (BagError, CheckpointError, PlannerError, ValueError) as error:
        raise CommandError(str(error)) from error
    verdict = judge(results, recording.problems, args.tolerance)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "plans.jsonl").write_text(plans_as_lines(results))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(verdict.as_dict(), indent=2) + "\n")
    for reason in verdict.reasons:
        print(f"note: {reason}")
    print(verdict.sentence())
    if verdict.plans:
        page = args.output / "report.html"
        record = run_record(recording, results, verdict, args.command_line, args.camera_pose)
        write_report(record, page)
        print(f"report: {page.absolute().as_uri()}")
    return 0 if verdict.passed else 1


def _replay(recording: Recording, args: argparse.Namespace) -> list[Replayed | Skipped]:
    """Make the plans by the node's own pipeline, without ROS."""
    from tqdm import tqdm

    from jepa_planner_ros.replay.pipeline import replay
    from jepa_planner_ros.world_model import load_world_model

    moments = _moments(recording, args)
    world_model = load_world_model(args.checkpoint, args.device)
    with _planner(args, world_model) as planner:
        results = replay(recording, moments, world_model.encode, planner)
        return list(tqdm(results, "replay", total=len(moments), unit="plan", disable=None))


def _moments(recording: Recording, args: argparse.Namespace) -> Sequence[Moment | Skipped]:
    from jepa_planner_ros.replay.pipeline import Overrides, recorded_moments, sampled_moments
    from jepa_planner_ros.replay.recording import RecordedGoal
    from jepa_planner_ros.ros.images import read_image_file
    from jepa_planner_ros.search.profiles import DEFAULT_PROFILE, load_profile

    search = None if args.search is None else load_profile(args.search)
    if args.goal is not None:
        goal = RecordedGoal((read_image_file(str(args.goal)),))
        search = search or load_profile(DEFAULT_PROFILE)
        return sampled_moments(recording, goal, args.every, search, args.seed or 0)
    if not recording.plans:
        raise CommandError(
            f"{recording.path} holds no plans of the planner node to make anew: give the "
            "photograph of a goal with --goal to plan from its frames. "
            + " ".join(recording.problems)
        )
    return recorded_moments(recording, Overrides(args.seed, search))


@contextmanager
def _planner(args: argparse.Namespace, world_model: object) -> Iterator[Planner]:
    from jepa_planner_ros.planning import InProcessPlanner
    from jepa_planner_ros.world_model import WorldModel

    assert isinstance(world_model, WorldModel)
    planner: Planner
    if args.planner == "in_process":
        planner = InProcessPlanner(world_model)
    else:
        from jepa_planner_ros.serving import LocalRayPlanner

        planner = LocalRayPlanner(args.checkpoint, args.replicas or None)
    try:
        yield planner
    finally:
        planner.close()


def _replay_over_ros(recording: Recording, args: argparse.Namespace) -> list[Replayed | Skipped]:
    """Have the plans made by the real node."""
    from jepa_planner_ros.cli.replay_loop import NodeSettings, replay_through_node

    if args.goal is not None:
        raise CommandError("--realtime plays the goals of the bag: leave out --goal.")
    settings = NodeSettings(
        planner=args.planner,
        replicas=args.replicas,
        checkpoint=args.checkpoint,
        device=args.device,
        search=args.search,
        seed=args.seed,
        params_file=args.params_file,
        logs=args.output / "logs",
        domain=args.domain_id,
    )
    return replay_through_node(recording, settings, args.rate)
