"""A resumable optimisation of one network."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

_WARM_UP = 50
_SAVE_EVERY = 200
_SHOW_EVERY = 10


def optimise(
    network: nn.Module,
    loss: Callable[[int], Tensor],
    updates: int,
    rate: float,
    progress: Path,
    title: str,
) -> None:
    """Minimise `loss` over the weights of `network`, with AdamW and a cosine schedule.

    Args:
        network: changed in place.
        loss: the loss of an update by its index; its batch must depend on the index alone, so that
            a resumed run sees what an uninterrupted one does.
        updates: number of optimiser steps.
        rate: peak learning rate, after a short linear warm-up.
        progress: file that keeps weights and optimiser state, to resume from.
        title: what the progress bar shows.
    """
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
    first = 0
    if progress.exists():
        saved = torch.load(progress, weights_only=True)
        network.load_state_dict(saved["network"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["updates"]
    network.train()
    with tqdm(total=updates, initial=first, desc=title, unit="update") as bar:
        for update in range(first, updates):
            for group in optimiser.param_groups:
                group["lr"] = rate * _schedule(update, updates)
            value = loss(update)
            optimiser.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            bar.update()
            if update % _SHOW_EVERY == 0:
                bar.set_postfix(loss=f"{value.item():.4f}")
            if (update + 1) % _SAVE_EVERY == 0 or update + 1 == updates:
                _save(progress, network, optimiser, update + 1)
    network.eval()


def _schedule(update: int, updates: int) -> float:
    """Linear warm-up, then half a cosine down to zero."""
    warm_up = min(1.0, (update + 1) / _WARM_UP)
    return warm_up * 0.5 * (1.0 + math.cos(math.pi * update / updates))


def _save(
    progress: Path, network: nn.Module, optimiser: torch.optim.Optimizer, updates: int
) -> None:
    """Write beside, then rename, so that an interrupted write leaves the previous file whole."""
    partial = progress.with_suffix(".partial")
    state = {
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "updates": updates,
    }
    torch.save(state, partial)
    partial.replace(progress)
