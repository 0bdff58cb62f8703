// The operands of a call, and the parts of them that a tile needs, shaped so that they broadcast against its scores.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/plan.h"
#include "ops/call.h"

namespace torchpairwise::aten {

using at::Tensor;

// Rows [row, row + n_rows) against columns [column, column + n_columns) of a box of batch entries.
struct Tile {
  Box batch;
  Index row = 0, n_rows = 0;
  Index column = 0, n_columns = 0;
};

enum class Side { kRows, kColumns, kNone };
Side side_of(Role role);

// Operands by slot, aligned with scores [*batch, r, c]:
//
//   features of rows [*batch, r, 1, D], of columns [*batch, 1, c, D]; vectors, flags and labels [*batch, r, 1] and [*batch, 1, c];
//   scalars [*batch, 1, 1]; tables [*batch, T]; indices of pairs [*batch, r, c]; parameters of a comparison as they are.
//
// Batch dimensions that an operand does not have are 1. For gathered pairs the columns are [*batch, r, k, D] and [*batch, r, k]: row i
// meets k columns of its own. `i` and `j` are the numbers of rows and columns, [r, 1] and [1, c] (gathered: [*batch, r, k]).
struct Aligned {
  std::vector<Tensor> rows, columns, others;
  Tensor i, j;
  Index n_rows = 0, n_columns = 0;  // of the whole matrix

  std::vector<Tensor>& of(Side side) { return side == Side::kRows ? rows : (side == Side::kColumns ? columns : others); }
  const std::vector<Tensor>& of(Side side) const { return const_cast<Aligned*>(this)->of(side); }
};

class Operands {
 public:
  explicit Operands(const Call& call);

  const Call& call() const { return call_; }
  const std::vector<Index>& batch() const { return batch_; }
  Index n_batches() const;
  Index n_rows() const { return n_rows_; }
  Index n_columns() const { return n_columns_; }
  Index n_features() const { return n_features_; }  // of the widest source
  // One entry for each slot and side that the program uses.
  const std::vector<Use>& uses() const { return uses_; }
  at::TensorOptions options() const;  // of the scores

  // Puts batch dimensions of size 1 in front, so that all tensors have the same number of them.
  Tensor lift(const Tensor& tensor, Role role) const;
  const Tensor& lifted(int slot) const { return lifted_[slot]; }
  // A result or a values tensor [*batch, core...] likewise.
  Tensor lift(const Tensor& tensor, int n_core) const;
  const Tensor& values() const { return values_; }
  // The rows of the values that meet the columns of a tile; undefined where the call has none.
  Tensor values_of(const Tile& tile) const;

  // The entries of a lifted tensor that belong to a box.
  Tensor narrow_batch(const Tensor& lifted, const Box& box) const;
  // The part of a lifted tensor in the given role that a tile covers, aligned; a view.
  Tensor aligned(const Tensor& lifted, Role role, const Tile& tile) const;
  Aligned align(const Tile& tile) const;
  // Row r of the tile against the columns `j` [*batch, r, k] of its box.
  Aligned align_pairs(const Tile& tile, const Tensor& j) const;
  // The indices with which a lifted tensor of the column side, narrowed to a box, is read at `j`.
  std::vector<Tensor> pair_indices(const Tensor& narrowed, const Tensor& j) const;

  Tile whole() const;

 private:
  void extend_batch(at::IntArrayRef sizes);

  const Call& call_;
  std::vector<Use> uses_;
  std::vector<Index> batch_;
  std::vector<Tensor> lifted_;
  Tensor values_;
  Index n_rows_ = 0, n_columns_ = 0, n_features_ = 0;
};

}  // namespace torchpairwise::aten
