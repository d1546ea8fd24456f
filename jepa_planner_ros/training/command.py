"""``jepa-planner train``: data, encoder, predictor, validation, weights."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from jepa_planner_ros.training.dataset import Dataset, Split, collect_episodes, collect_stills
from jepa_planner_ros.training.encoder import train_encoder
from jepa_planner_ros.training.landscape import draw_landscape
from jepa_planner_ros.training.predictor import train_predictor
from jepa_planner_ros.training.settings import TrainingSettings
from jepa_planner_ros.training.validate import validate
from jepa_planner_ros.types import Scene
from jepa_planner_ros.world_model import (
    SMALL,
    Checkpoint,
    Encoder,
    Predictor,
    WorldModel,
    preprocess,
    read_checkpoint,
    write_checkpoint,
)

_ENCODE_BATCH = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    defaults = TrainingSettings()
    parser.description = (
        "Train the small world model on a simulated Franka: collect frames, train the encoder "
        "(supervised by the arm's pose), then the predictor (V-JEPA 2-AC's loss), and validate on "
        "episodes held out. Takes about half an hour on two CPU cores. Interrupt it at any time; "
        "the same command goes on where it stopped. The shipped weights were made by this command "
        "with its defaults."
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/train"),
        metavar="DIR",
        help="where episodes, progress, weights and pictures go (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=defaults.seed,
        metavar="S",
        help="of episodes, frames and initial weights (default: %(default)s)",
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=defaults.episodes,
        metavar="N",
        help="simulated episodes, a tenth of them held out (default: %(default)s)",
    )
    parser.add_argument(
        "--stills",
        type=int,
        default=defaults.stills,
        metavar="N",
        help="single frames that the encoder is trained on (default: %(default)s)",
    )
    parser.add_argument(
        "--encoder-updates",
        type=int,
        default=defaults.encoder_updates,
        metavar="N",
        help="steps of the optimiser for the encoder (default: %(default)s)",
    )
    parser.add_argument(
        "--predictor-updates",
        type=int,
        default=defaults.predictor_updates,
        metavar="N",
        help="steps of the optimiser for the predictor (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Train, validate, and write ``world_model.safetensors`` and ``landscape.png``."""
    settings = replace(
        TrainingSettings(),
        seed=args.seed,
        episodes=args.episodes,
        held_out=max(2, args.episodes // 11),
        stills=args.stills,
        encoder_updates=args.encoder_updates,
        predictor_updates=args.predictor_updates,
    )
    output: Path = args.output
    side = SMALL.encoder.image_size[0]
    dataset = collect_episodes(settings, side, output / "episodes")
    stills = collect_stills(settings, side, output / "stills")
    encoder = train_encoder(stills, SMALL.encoder, settings, output / "encoder.pt")
    latents = encode_frames(encoder, dataset.training)
    predictor = train_predictor(latents, dataset.training, SMALL, settings, output / "predictor.pt")
    weights = output / "world_model.safetensors"
    provenance = {
        "command": "jepa-planner train",
        "settings": settings.to_dict(),
        "software": {name: version(name) for name in ("torch", "mujoco", "numpy")},
        "python": platform.python_version(),
    }
    checkpoint = half_precision(encoder, predictor, provenance)
    write_checkpoint(checkpoint, weights)

    written = read_checkpoint(weights)
    held_out = encode_frames(written.build()[0], dataset.validation)
    world_model = WorldModel(written)
    validation = validate(world_model, held_out, dataset.validation)
    validated = provenance | {"validation": validation.to_dict()}
    write_checkpoint(replace(checkpoint, provenance=validated), weights)
    draw_example(world_model, held_out, dataset, settings, output / "landscape.png")

    print(f"\n{validation.table()}\n")
    print(f"weights    {weights} ({weights.stat().st_size / 1e6:.1f} MB)")
    print(f"landscape  {output / 'landscape.png'}")
    print(f"use them   jepa-planner demo --checkpoint {weights}")
    return 0


@torch.inference_mode()
def encode_frames(encoder: Encoder, split: Split) -> Tensor:
    """Latents (episodes, frames, tokens, dim), float32, of every frame of `split`."""
    frames = split.images.reshape(-1, *split.images.shape[2:])
    latents = []
    for start in tqdm(range(0, len(frames), _ENCODE_BATCH), desc="encode frames", unit="batch"):
        batch = [preprocess(f, encoder.config.image_size) for f in frames[start:][:_ENCODE_BATCH]]
        latents.append(encoder(torch.stack(batch)))
    return torch.cat(latents).unflatten(0, split.images.shape[:2]).clone()


def half_precision(
    encoder: Encoder, predictor: Predictor, provenance: Mapping[str, Any]
) -> Checkpoint:
    """The trained networks as they are shipped: half the bytes, no loss that shows."""
    return Checkpoint(
        SMALL,
        {name: weight.half() for name, weight in encoder.state_dict().items()},
        {name: weight.half() for name, weight in predictor.state_dict().items()},
        provenance,
    )


def draw_example(
    world_model: WorldModel,
    latents: Tensor,
    dataset: Dataset,
    settings: TrainingSettings,
    path: Path,
) -> None:
    """Draw the landscape of the held-out moment with the largest single action."""
    split = dataset.validation
    lengths = np.linalg.norm(split.actions[..., :3], axis=-1)
    episode, frame = np.unravel_index(lengths.argmax(), lengths.shape)
    scene = Scene(
        latents[episode, frame].numpy(),
        split.states[episode, frame],
        latents[episode, frame + 1].numpy(),
    )
    done = split.actions[episode, frame]
    draw_landscape(world_model, scene, done, 1.2 * settings.max_translation, path)
