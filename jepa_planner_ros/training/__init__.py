"""Training of the shipped world model on a simulated Franka, from nothing to validated weights."""
