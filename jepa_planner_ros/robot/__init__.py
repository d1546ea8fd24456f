"""What the planner knows about Franka arms: geometry, limits and the names of their joints."""
