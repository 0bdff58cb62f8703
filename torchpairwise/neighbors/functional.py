"""k nearest neighbours of every row."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchpairwise.encoding import higher_is_better
from torchpairwise.expression import lazy


def knn(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor | None = None,  # [*batch, M, D]
    *,
    k: int,
    metric: Any = "euclidean",
    largest: bool | None = None,
    chunk_size: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> Any:
    """The k rows of Y that are nearest to each row of X, nearest first.

    indices_i = the k best j by score(x_i, y_j), ties by the lower j; values_i = their scores

    Arguments:
        X: queries [*batch, N, D].
        Y: references [*batch, M, D]. None compares the rows of X with each other; a row is then never its own
            neighbour, by index.
        k: number of neighbours, at most M, or N - 1 without Y.
        metric: a metric's name or a pairwise comparison; the values are its scores ("sqeuclidean" gives squared
            distances).
        largest: whether a larger score is nearer; None takes it from the metric: False for distances and comparisons,
            True for similarities and kernels.
        chunk_size, backend: as in `tp.lazy`.
        options: the metric's, such as gamma.

    Returns:
        (values [*batch, N, k], indices [*batch, N, k] int64), a named tuple.

    Raises:
        ValueError: k is negative or larger than the number of candidates; both numbers are named.

    Notes:
        Memory grows with N + M. Values have gradients through the chosen pairs, indices have none. Rows with NaN rank
        last.

    Example:
        >>> import torch
        >>> from torchpairwise.neighbors import knn
        >>> knn(torch.tensor([[0.0], [1.0], [3.0]]), k=1).indices.flatten()
        tensor([1, 0, 1])
    """
    if largest is None:
        largest = higher_is_better(metric)
    scores = lazy(X, Y, metric, chunk_size=chunk_size, backend=backend, **options)
    return scores.topk(k, largest=largest, exclude_self=Y is None)
