"""Taking the world model's known error out of the comparison with the goal.

Predictions are blurred: even for standing still, the predicted latents differ from the frame's, at
present by as much as the goal's do when the arm is a few centimetres away. Comparing such
predictions with a sharp goal draws the arm to wherever the blur happens to look like the goal. But
for standing still the truth is known, it is the frame itself, and small actions are predicted with
nearly the same error.
"""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.types import Float32Array, Scene

# The error is taken out wholly where the goal is nearer than this multiple of it, and not at all
# one such multiple farther out, where what moves does not keep the error it had.
_NEAR = 0.5


def anchored_goal(scene: Scene, still: Float32Array) -> Float32Array:
    """The goal's latents (tokens, dim) with the error that predictions have near it.

    Args:
        scene: the present frame and the goal.
        still: the latents (tokens, dim) that are predicted for standing still.
    """
    error = still - scene.latent
    size = float(np.abs(error).mean())
    if size == 0.0:
        return scene.goal_latent
    distance = float(np.abs(scene.goal_latent - scene.latent).mean())
    weight = np.clip(1.0 + _NEAR - distance / size, 0.0, 1.0)
    return (scene.goal_latent + weight * error).astype(np.float32)
