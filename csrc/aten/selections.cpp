#include "aten/selections.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <limits>

namespace torchpairwise::aten {
namespace {

Tensor key_of(const Tensor& scores, bool largest) { return largest ? scores.neg() : scores; }

Tensor with_rows(const Tensor& x, std::vector<Index> rows) {
  rows.push_back(x.size(-1));
  return x.expand(rows);
}

// The k best of candidates that stand in the order of their columns wherever their keys are equal.
State ordered(const Tensor& scores, const Tensor& columns, Index k, bool largest) {
  // Adding 0 makes -0 and 0 the same key for every sorting algorithm. A stable ascending sort puts NaN last.
  const Tensor key = key_of(scores, largest) + 0.0;
  Tensor order = std::get<1>(key.sort(/*stable=*/true, -1, /*descending=*/false));
  order = order.narrow(-1, 0, std::min(k, order.size(-1)));
  return {scores.gather(-1, order), columns.gather(-1, order)};
}

// The first column that holds the best score of its row. A row of NaN has none: its first column.
Tensor first_best(const Tensor& key) {
  const Tensor best = key.masked_fill(key.isnan(), std::numeric_limits<double>::infinity()).amin(-1, true);
  return key.eq(best).to(at::kByte).argmax(-1, true);
}

// Columns of the k best of each row in ascending order; among equal keys at the border the lowest columns.
Tensor best_columns(const Tensor& key, Index k) {
  const Tensor border = std::get<0>(key.topk(k, -1, /*largest=*/false, /*sorted=*/false)).amax(-1, true);  // NaN if one of them is
  const Tensor key_nan = key.isnan(), border_nan = border.isnan();
  const Tensor better = key.lt(border).logical_or(border_nan.logical_and(key_nan.logical_not()));
  const Tensor equal = key.eq(border).logical_or(border_nan.logical_and(key_nan));
  const Tensor room = k - better.sum(-1, true), chosen = better.logical_or(equal.logical_and(equal.cumsum(-1).le(room)));
  const Index n = key.size(-1);
  const Tensor columns = at::arange(n, key.options().dtype(at::kLong)).masked_fill(chosen.logical_not(), n);
  return std::get<0>(columns.topk(k, -1, /*largest=*/false, /*sorted=*/true));
}

}  // namespace

Selection::Selection(const Call& call) : k(call.k), largest(call.largest), single(!is(call, kTopkInfo)) {
  if (single) {
    k = 1;
    largest = is(call, kMaxInfo);
  }
  worst = largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

State Topk::neutral(const Rows& rows) {
  std::vector<Index> sizes = rows.sizes;
  sizes.push_back(0);
  return {at::empty(sizes, rows.options), at::empty(sizes, rows.options.dtype(at::kLong))};
}

State Topk::reduce(const ScoreTile& tile) {
  const Selection selection(tile.call);
  const Tensor scores = tile.filled(selection.worst);
  const Index n = scores.size(-1);
  if (selection.k == 1) {
    const Tensor column = first_best(key_of(scores, selection.largest));
    return {scores.gather(-1, column), column + tile.first_column};
  }
  // Sorting everything costs no more than choosing half of it first.
  if (2 * selection.k >= n) {
    const Tensor columns = at::arange(tile.first_column, tile.first_column + n, scores.options().dtype(at::kLong)).expand_as(scores);
    return ordered(scores, columns, selection.k, selection.largest);
  }
  const Tensor columns = best_columns(key_of(scores, selection.largest), selection.k);
  return ordered(scores.gather(-1, columns), columns + tile.first_column, selection.k, selection.largest);
}

State Topk::merge(const State& a, const State& b, const Call& call) {
  const Selection selection(call);
  // A tile without a mask may have fewer batch dimensions than one with labels.
  const std::vector<Index> rows = at::infer_size(a[0].sizes().slice(0, a[0].dim() - 1), b[0].sizes().slice(0, b[0].dim() - 1));
  const auto joined = [&](const Tensor& x, const Tensor& y) { return at::cat({with_rows(x, rows), with_rows(y, rows)}, -1); };
  return ordered(joined(a[0], b[0]), joined(a[1], b[1]), selection.k, selection.largest);
}

std::vector<Tensor> Topk::finish(const State& state, const Rows& rows) {
  const bool single = Selection(rows.call).single;
  return {single ? state[0].squeeze(-1) : state[0], single ? state[1].squeeze(-1) : state[1]};
}

}  // namespace torchpairwise::aten
