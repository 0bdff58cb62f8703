// Rows against all columns in recorded operations.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "aten/aten.h"
#include "aten/masks.h"
#include "aten/pairs.h"
#include "aten/selections.h"
#include "aten/tiles.h"
#include "aten/transforms.h"

namespace torchpairwise::aten {
namespace {

// Rows and columns all of whose pairs are left out may hold anything; here they hold 0. Under a transform nothing more can be done.
void clean(const Operands& operands, const Tile& tile, const Tensor& keep, Aligned& aligned) {
  const Tensor every = keep.expand(at::infer_size(keep.sizes(), {tile.n_rows, tile.n_columns}));
  const Tensor rows = every.any(-1, true), columns = every.any(-2, true);
  for (const Use& use : operands.uses()) {
    if (use.role != Role::kRowFeatures && use.role != Role::kColumnFeatures) continue;
    const Side side = side_of(use.role);
    Tensor& x = aligned.of(side)[use.slot];
    x = at::where((side == Side::kRows ? rows : columns).unsqueeze(-1), x, number_like(0, x));
  }
}

// Functions may have infinite derivatives anywhere; sources have finite ones for finite features.
Guard guard_of(const Operands& operands, const Aligned& aligned) {
  if (operands.call().program->has_custom()) return Guard::kPairs;
  if (is_unreadable(operands.call().operands[0])) return Guard::kScores;
  for (const Use& use : operands.uses()) {
    if (use.role != Role::kRowFeatures && use.role != Role::kColumnFeatures) continue;
    if (!aligned.of(side_of(use.role))[use.slot].isfinite().all().item<bool>()) return Guard::kPairs;
  }
  return Guard::kScores;
}

ScoreTile scores_of(const Operands& operands, const Tile& tile, Order order) {
  const Call& call = operands.call();
  Aligned aligned = operands.align(tile);
  const Tensor keep = keep_of(operands, aligned);
  if (keep.defined()) clean(operands, tile, keep, aligned);
  const Guard guard = keep.defined() ? guard_of(operands, aligned) : Guard::kNone;
  ScoreTile out(call, evaluate(call, aligned, keep, {order, guard}), keep);
  out.values = operands.values();
  if (!keep.defined() || !out.values.defined()) return out;
  const Tensor columns = out.keep.expand_as(out.scores).any(-2).unsqueeze(-1);
  out.values = at::where(columns, out.values, number_like(0, out.values));
  out.finite = is_unreadable(out.values) || out.values.isfinite().all().item<bool>();
  return out;
}

// Batch dimensions that only another operand has.
Tensor with_batch(const Operands& operands, const Tensor& result) {
  std::vector<Index> sizes = operands.batch();
  const auto n_batch = static_cast<std::int64_t>(sizes.size());
  for (std::int64_t d = n_batch; d < result.dim(); ++d) sizes.push_back(result.size(d));
  return result.expand(sizes);
}

// The selected columns [*batch, N, k], without gradient.
Tensor select(const Operands& operands) {
  const at::NoGradGuard no_gradients;
  const Call& call = operands.call();
  const bool single = Selection(call).single;
  if (!is_unreadable(call.operands[0])) {
    const Tensor indices = forward(call)[1];
    return single ? indices.unsqueeze(-1) : indices;
  }
  const ScoreTile tile = scores_of(operands, operands.whole(), Order::kNone);
  const Tensor indices = Topk::reduce(tile)[1].narrow(-1, 0, single ? 1 : call.k);
  return with_batch(operands, indices);
}

std::vector<Tensor> selected(const Operands& operands) {
  const Call& call = operands.call();
  const Selection selection(call);
  const Tensor j = select(operands);
  const PairScores x = evaluate_pairs(operands, operands.align_pairs(operands.whole(), j), Order::kAny);
  const Tensor scores = with_batch(operands, ScoreTile(call, x.scores, x.keep).filled(selection.worst));
  return {selection.single ? scores.squeeze(-1) : scores, selection.single ? j.squeeze(-1) : j};
}

std::vector<Tensor> diagonal(const Operands& operands) {
  Tile tile = operands.whole();
  tile.n_rows = std::min(operands.n_rows(), operands.n_columns());
  const PairScores x = evaluate_pairs(operands, operands.align_pairs(tile, diagonal_columns(operands, 0, tile.n_rows)), Order::kAny);
  return {ScoreTile(operands.call(), x.scores, x.keep).filled(0).squeeze(-1)};
}

}  // namespace

std::vector<Tensor> differentiable(const Call& call, const RowRange& rows) {
  const Operands operands(call);
  std::vector<Tensor> out;
  if (is_selection(call)) return selected(operands);
  Tile tile = operands.whole();
  tile.row = rows.begin;
  if (rows.length >= 0) tile.n_rows = rows.length;
  if (is(call, kDiagonalInfo))
    out = diagonal(operands);
  else if (is(call, kDenseInfo))
    out = {scores_of(operands, tile, Order::kAny).filled(call.fill)};
  else
    out = consumer_entry(call).whole(scores_of(operands, tile, Order::kAny));
  for (Tensor& result : out) result = with_batch(operands, result);
  return out;
}

Index differentiable_rows(const Call& call) {
  const Operands operands(call);
  if (is_selection(call) || is(call, kDiagonalInfo) || is(call, kDenseInfo)) return operands.n_rows();
  return plan_recorded_rows(operands);
}

}  // namespace torchpairwise::aten
