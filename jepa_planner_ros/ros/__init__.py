"""The ROS 2 side: the only part that imports rclpy, besides the simulation's node."""
