"""The arm that is there: as its description tells, where one is published."""

from __future__ import annotations

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String

from jepa_planner_ros.robot.description import DescriptionError, described
from jepa_planner_ros.robot.limits import LIMITS, RobotLimits
from jepa_planner_ros.ros.wiring import Wiring

_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class RobotDescription:
    """Listens to ``/robot_description``, and has the model named by `robot` until it comes."""

    def __init__(self, node: Node, wiring: Wiring, group: CallbackGroup) -> None:
        self.robot: RobotLimits = LIMITS[wiring.robot]
        """Geometry and limits of the arm."""
        self._node = node
        self._wiring = wiring
        node.create_subscription(
            String, "robot_description", self._receive, _LATCHED, callback_group=group
        )

    def _receive(self, message: String) -> None:
        wiring, log = self._wiring, self._node.get_logger()
        known = LIMITS[wiring.robot]
        prefix = wiring.joint_prefix or known.joint_prefix
        try:
            self.robot = described(message.data, known, prefix, wiring.base_frame)
        except DescriptionError as error:
            log.warning(
                f"robot_description is not used, but what is known of robot = {known.name}: {error}"
            )
            return
        log.info("The arm's geometry and joint limits are those of robot_description.")
