"""How the candidates of a round are shared out among replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise


@dataclass(frozen=True)
class Shard:
    """Contiguous candidates of one question.

    Attributes:
        question: its index among those of the round.
        candidates: which of its candidates.
    """

    question: int
    candidates: slice


def parcels(
    candidates: Sequence[int], micro_batch: int, replicas: int
) -> tuple[tuple[Shard, ...], ...]:
    """Even shares of a round for at most so many replicas, each of whole micro-batches.

    A candidate's energy depends on the size of the batch it is rolled out in. As no micro-batch is
    ever divided between replicas, or filled up with another question's candidates, neither the
    number of replicas nor who else asks changes an answer by a single bit.

    Args:
        candidates: how many each question of the round has.
        micro_batch: how many are rolled out at once.
        replicas: how many share the round.
    """
    batches = [
        (question, start)
        for question, number in enumerate(candidates)
        for start in range(0, number, micro_batch)
    ]
    count = min(len(batches), replicas)
    bounds = [len(batches) * share // count for share in range(count + 1)]
    return tuple(
        tuple(
            Shard(question, slice(starts[0], min(starts[-1] + micro_batch, candidates[question])))
            for question, group in groupby(batches[begin:end], lambda batch: batch[0])
            if (starts := [start for _, start in group])
        )
        for begin, end in pairwise(bounds)
    )
