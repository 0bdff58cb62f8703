#include "aten/histogram.h"

#include <ATen/ATen.h>

#include "consumer/edges.h"

namespace torchpairwise::aten {

State Histogram::neutral(const Rows& rows) {
  std::vector<Index> sizes = rows.sizes;
  sizes.push_back(rows.call.k);
  return {at::zeros(sizes, rows.options.dtype(at::kLong))};
}

State Histogram::reduce(const ScoreTile& tile) {
  const Call& call = tile.call;
  const consumer::Edges edges{call.low, call.high, call.k};
  std::vector<double> inner;
  for (Index n = 1; n < call.k; ++n) inner.push_back(edges.edge(n));
  const Tensor scores = tile.scores.detach().to(at::kDouble);
  const Tensor bounds = at::tensor(inner, scores.options());
  Tensor counted = scores.ge(call.low).logical_and(scores.le(call.high));
  if (tile.keep.defined()) counted = counted.logical_and(tile.keep);
  std::vector<Index> sizes(scores.sizes().begin(), scores.sizes().end());
  sizes.back() = call.k;
  const Tensor bins = at::bucketize(scores, bounds, /*out_int32=*/false, /*right=*/true);
  return {at::zeros(sizes, scores.options().dtype(at::kLong)).scatter_add(-1, bins, counted.to(at::kLong))};
}

State Histogram::merge(const State& a, const State& b, const Call&) { return {a[0] + b[0]}; }
std::vector<Tensor> Histogram::finish(const State& state, const Rows&) { return state; }
Cotangent Histogram::cotangent(const ScoreTile& tile, const ResultGradients&) { return {at::zeros_like(tile.scores), Tensor()}; }
std::vector<Tensor> Histogram::whole(const ScoreTile& tile) { return reduce(tile); }

}  // namespace torchpairwise::aten
