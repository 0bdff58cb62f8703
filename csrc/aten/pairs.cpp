#include "aten/pairs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "aten/masks.h"
#include "aten/tiles.h"
#include "aten/transforms.h"

namespace torchpairwise::aten {

PairScores evaluate_pairs(const Operands& operands, const Aligned& aligned, Order order) {
  PairScores out;
  out.keep = keep_of(operands, aligned);
  out.scores = evaluate(operands.call(), aligned, out.keep, {order, Guard::kPairs});
  return out;
}

Tensor diagonal_columns(const Operands& operands, Index first, Index count) {
  std::vector<Index> sizes(operands.batch().size(), 1);
  sizes.insert(sizes.end(), {count, 1});
  return at::arange(first, first + count, operands.options().dtype(at::kLong)).view(sizes);
}

void forward_diagonal(const Operands& operands, const Results& results, Tensor& out) {
  const TensorTile plan = plan_pairs(operands, 1, false);
  for_each_row_tile(operands, plan, std::min(operands.n_rows(), operands.n_columns()), [&](const Tile& tile) {
    const Tensor j = diagonal_columns(operands, tile.row, tile.n_rows);
    const PairScores x = evaluate_pairs(operands, operands.align_pairs(tile, j), Order::kNone);
    results.part(out, 0, tile).copy_(ScoreTile(operands.call(), x.scores, x.keep).filled(0).squeeze(-1));
  });
}

void replay_pairs(const Operands& operands, const Tensor& gradient, const Tensor& j, Gradients& gradients) {
  if (gradients.uses().empty() || gradient.numel() == 0) return;
  const TensorTile plan = plan_pairs(operands, gradient.size(-1), true);
  for_each_row_tile(operands, plan, gradient.size(-2), [&](const Tile& rows) {
    Tile columns = rows;
    columns.n_columns = gradient.size(-1);
    for_each_column_tile(columns, plan.columns, [&](const Tile& tile) {
      const auto part = [&](const Tensor& x) {
        return operands.narrow_batch(x, tile.batch).narrow(-2, tile.row, tile.n_rows).narrow(-1, tile.column, tile.n_columns);
      };
      const Tensor columns_of_part = part(j);
      Aligned aligned = operands.align_pairs(tile, columns_of_part);
      std::vector<Tensor> leaves, found;
      {
        const at::AutoGradMode recording(true);
        leaves = gradients.make_leaves(aligned);
        const PairScores x = evaluate_pairs(operands, aligned, Order::kFirst);
        Tensor cotangent = part(gradient);
        if (x.keep.defined()) cotangent = at::where(x.keep, cotangent, number_like(0, cotangent));
        if (x.scores.requires_grad())
          found = torch::autograd::grad({x.scores}, leaves, {cotangent.sum_to_size(x.scores.sizes())}, std::nullopt, false, true);
      }
      if (!found.empty()) gradients.add_pairs(tile, columns_of_part, found);
    });
  });
}

}  // namespace torchpairwise::aten
