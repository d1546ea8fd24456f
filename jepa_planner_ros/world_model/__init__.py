"""V-JEPA 2-AC: encode a frame to latents, and predict the latents that actions lead to."""

from jepa_planner_ros.world_model.checkpoint import Checkpoint, CheckpointError
from jepa_planner_ros.world_model.config import (
    PRESETS,
    SMALL,
    VJEPA2_AC_VITG,
    EncoderConfig,
    PredictorConfig,
    WorldModelConfig,
)
from jepa_planner_ros.world_model.encoder import Encoder
from jepa_planner_ros.world_model.model import WorldModel, load_world_model
from jepa_planner_ros.world_model.precision import PRECISIONS, Precision, choose_precision
from jepa_planner_ros.world_model.predictor import Predictor
from jepa_planner_ros.world_model.preprocess import preprocess
from jepa_planner_ros.world_model.rollout import Context, Rollout, RolloutEngine, energy
from jepa_planner_ros.world_model.storage import (
    locate_checkpoint,
    read_checkpoint,
    write_checkpoint,
)

__all__ = [
    "PRECISIONS",
    "PRESETS",
    "SMALL",
    "VJEPA2_AC_VITG",
    "Checkpoint",
    "CheckpointError",
    "Context",
    "Encoder",
    "EncoderConfig",
    "Precision",
    "Predictor",
    "PredictorConfig",
    "Rollout",
    "RolloutEngine",
    "WorldModel",
    "WorldModelConfig",
    "choose_precision",
    "energy",
    "load_world_model",
    "locate_checkpoint",
    "preprocess",
    "read_checkpoint",
    "write_checkpoint",
]
