"""The planner node: brings the arm to where a photograph shows it.

It offers the action ``~/reach_goal`` and the service ``~/capture_goal``; `parameters` lists what
can be set. Topics in: ``image_raw`` or ``image_raw/compressed``, ``joint_states``, optionally
``current_pose``. Topics out: ``target_pose``, the gripper's command, ``~/plan``, ``~/status`` and
``/diagnostics``.
"""

from __future__ import annotations

from contextlib import suppress

from jepa_planner_ros.ros.interrupt import heed_first_interrupt


def main(args: list[str] | None = None) -> None:
    """Run the node until it is interrupted. Exits with 1 when it cannot start."""
    heed_first_interrupt()
    with suppress(KeyboardInterrupt):
        # Takes seconds, because of PyTorch, in which an interrupt must be heeded already.
        from jepa_planner_ros.ros.node import run

        run(args)


if __name__ == "__main__":
    main()
