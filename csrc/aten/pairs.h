// Pairs that are listed one by one: the diagonal, and the pairs that min, max and topk have selected.
#pragma once

#include "aten/consumers.h"
#include "aten/evaluate.h"
#include "aten/gradients.h"
#include "aten/results.h"

namespace torchpairwise::aten {

// Scores of row i of a tile against the columns j [*batch, r, k], [*batch, r, k], and which of them are kept.
struct PairScores {
  Tensor scores, keep;
};
PairScores evaluate_pairs(const Operands& operands, const Aligned& aligned, Order order);

void forward_diagonal(const Operands& operands, const Results& results, Tensor& out);

// Adds the gradients of the scores of the pairs (i, j): `gradient` and `j` are [*batch, rows, k]. Pairs left out get none.
void replay_pairs(const Operands& operands, const Tensor& gradient, const Tensor& j, Gradients& gradients);

// The columns [rows, 1] of the diagonal of a tile's batch dimensions.
Tensor diagonal_columns(const Operands& operands, Index first, Index count);

}  // namespace torchpairwise::aten
