"""Features that were computed once, with the head that compares them."""

from __future__ import annotations

from typing import Any

from torchpairwise.comparisons.bindable import Bound, Preparation
from torchpairwise.comparisons.collections import Collection
from torchpairwise.encoding.heads import as_head, streamed_head
from torchpairwise.expression import lazy

__all__ = ["PreparedFeatures"]


class PreparedFeatures(Preparation):
    """A snapshot of features; made by `FeaturePairwise.prepare`. ``tp.lazy(prepared)`` binds them, ``prepared()`` compares them densely.

    Features stay in the encoder's graph, and the head's parameters are those of the comparison, not copies. Changes of the encoder or of
    the samples do not reach the features: prepare again.

    Example:
        >>> import torch, torchpairwise as tp
        >>> comparison = tp.make_feature_pairwise(torch.nn.Flatten(), "sqeuclidean", sample_ndim=2)
        >>> prepared = comparison.prepare(torch.zeros(2, 3, 3), torch.ones(4, 3, 3))
        >>> prepared
        PreparedFeatures(rows [2, 9], columns [4, 9], mode='all_pairs')
        >>> tp.lazy(prepared).topk(1).values.flatten(), prepared().shape
        (tensor([9., 9.]), torch.Size([2, 4]))
    """

    def __init__(self, rows: Collection, columns: Collection | None, head: Any, mode: str | None, chunk_size: int | None) -> None:
        self._rows, self._columns, self._head = rows, columns, head
        self.mode = mode
        self.chunk_size = chunk_size

    @property
    def rows(self) -> Any:
        """Features of the rows, [*batch, N, *feature] for each leaf."""
        return self._rows.tree

    @property
    def columns(self) -> Any:
        """Features of the columns; those of the rows if the comparison was of one collection."""
        return self.rows if self._columns is None else self._columns.tree

    def __call__(self) -> Any:
        """The result of the comparison in the mode of the preparation, stored; the encoder is not run."""
        if self.chunk_size is not None and self.mode == "all_pairs":
            return lazy(self).dense()
        return as_head(self._head).compare(self._rows, self._columns, self.mode)

    def bind(self) -> Bound:
        """What `tp.lazy` binds.

        Raises:
            ValueError: another mode than all pairs, or features that the metric does not take.
            TypeError: a head that cannot be streamed.
        """
        bound = streamed_head(self._head, self.mode).bind(self._rows, self._columns)
        return bound._replace(chunk_size=self.chunk_size)

    def detach(self) -> PreparedFeatures:
        """The same features without the encoder's graph."""
        rows = self._rows.map(lambda leaf, _: leaf.detach())
        columns = None if self._columns is None else self._columns.map(lambda leaf, _: leaf.detach())
        return PreparedFeatures(rows, columns, self._head, self.mode, self.chunk_size)

    def __repr__(self) -> str:
        columns = "" if self._columns is None else f", columns {self._columns.describe()}"
        return f"PreparedFeatures(rows {self._rows.describe()}{columns}, mode={self.mode!r})"
