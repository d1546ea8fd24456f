"""How the candidates of a round are shared out among replicas."""

from __future__ import annotations

from itertools import pairwise


def shards(candidates: int, micro_batch: int, replicas: int) -> list[slice]:
    """Contiguous, even shares of a round, each but the last a number of whole micro-batches.

    A candidate's energy depends on the size of the batch it is rolled out in. As no micro-batch is
    ever divided between replicas, their number does not change a plan by a single bit.
    """
    batches = -(-candidates // micro_batch)
    count = min(batches, replicas)
    bounds = [batches * share // count * micro_batch for share in range(count)] + [candidates]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
