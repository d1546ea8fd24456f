"""Commands to the robot's controllers, by the conventions of CRISP controllers.

A Cartesian target stands until the next one, so that an arm that is told nothing holds. Stamps and
frames are ignored by the controller, poses are in the base frame, and the gripper's command is 1
for open and 0 for closed.
"""

from __future__ import annotations

from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from std_msgs.msg import Float64MultiArray

from jepa_planner_ros.control import GripperMotion, RobotError
from jepa_planner_ros.ros.clock import ros_now
from jepa_planner_ros.ros.parameters import Wiring
from jepa_planner_ros.ros.poses import pose_stamped_message
from jepa_planner_ros.types import Float64Array

_RELIABLE = QoSProfile(depth=10)
_GRIPPER_COMMANDS = {GripperMotion.OPEN: 1.0, GripperMotion.CLOSE: 0.0}


class CartesianCommander:
    """Publishes `target_pose` and the gripper's command."""

    def __init__(self, node: Node, wiring: Wiring) -> None:
        self._node = node
        self._wiring = wiring
        overriding = QoSOverridingOptions.with_default_policies()
        self._targets = node.create_publisher(
            PoseStamped, "target_pose", _RELIABLE, qos_overriding_options=overriding
        )
        self._grippers = node.create_publisher(
            Float64MultiArray,
            "gripper/gripper_position_controller/commands",
            _RELIABLE,
            qos_overriding_options=overriding,
        )

    def command(self, target: Float64Array, gripper: GripperMotion | None) -> None:
        """Send the arm to a state (7,), and the gripper on its way.

        Raises:
            RobotError: no controller would act on it.
        """
        self._require_controller()
        stamp = ros_now(self._node)
        self._targets.publish(
            pose_stamped_message(
                target, self._wiring.controller_frame, self._wiring.base_frame, stamp
            )
        )
        if gripper is not None:
            self._grippers.publish(Float64MultiArray(data=[_GRIPPER_COMMANDS[gripper]]))

    def _require_controller(self) -> None:
        topic = self._targets.topic_name
        if self._targets.get_subscription_count() == 0:
            raise RobotError(
                f"No controller listens to {topic}: start and activate the Cartesian controller, "
                "or remap the topic to its own."
            )
        publishers = self._node.count_publishers(topic)
        if publishers > 1:
            raise RobotError(
                f"{publishers} publishers send to {topic}, and the controller ignores them all "
                "while there is more than one: stop the others."
            )
