"""Point a Franka arm at a photograph of where it should be.

A world model (V-JEPA 2-AC, or the small model shipped with this package) predicts what the camera
will see after an action, and a search looks for the actions that lead to the photograph. ROS 2
exposes the loop as an action server; Ray Serve hosts the planner.

Layers, inner to outer; an inner layer imports no outer one:

``geometry``, ``types``
    States and actions of the end effector; frozen dataclasses shared by all layers.
``world_model``
    Encoder, action-conditioned predictor, rollouts.
``search``
    The cross-entropy method and quicker searches over action sequences.
``planning``
    World model and search joined into a planner.
``control``
    The episode as a state machine, and the safety limits.
``robot``
    Kinematics and limits of the Franka arms.
``serving``
    The planner on Ray Serve.
``ros``
    The ROS 2 node.
``sim``, ``training``, ``cli``
    Applications: a simulated Franka, the training of the shipped model, the command line.
"""

__version__ = "0.1.0"
