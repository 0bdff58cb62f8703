#include "aten/sums.h"

#include <ATen/ATen.h>

#include "aten/sources.h"

namespace torchpairwise::aten {
namespace {

// Kept pairs of each row, [*batch, r].
Tensor count_of(const ScoreTile& tile) {
  if (tile.keep.defined()) return tile.keep.expand_as(tile.scores).sum(-1);
  const Tensor none = tile.scores.detach().narrow(-1, 0, 0).sum(-1);
  return none + static_cast<double>(tile.scores.size(-1));
}

State added(const State& a, const State& b) {
  State out;
  for (std::size_t n = 0; n < a.size(); ++n) out.push_back(a[n] + b[n]);
  return out;
}

}  // namespace

State Sum::neutral(const Rows& rows) { return {at::zeros(rows.sizes, rows.options.dtype(at::kDouble))}; }
State Sum::reduce(const ScoreTile& tile) { return {tile.filled(0).sum(-1).to(at::kDouble)}; }
State Sum::merge(const State& a, const State& b, const Call&) { return added(a, b); }
std::vector<Tensor> Sum::finish(const State& state, const Rows&) { return state; }
Cotangent Sum::cotangent(const ScoreTile& tile, const ResultGradients& x) { return {x.gradients[0].unsqueeze(-1), Tensor()}; }
std::vector<Tensor> Sum::whole(const ScoreTile& tile) { return {tile.filled(0).sum(-1)}; }

State Mean::neutral(const Rows& rows) {
  const Tensor zero = at::zeros(rows.sizes, rows.options.dtype(at::kDouble));
  return {zero, zero};
}
State Mean::reduce(const ScoreTile& tile) { return {tile.filled(0).sum(-1).to(at::kDouble), count_of(tile).to(at::kDouble)}; }
State Mean::merge(const State& a, const State& b, const Call&) { return added(a, b); }
std::vector<Tensor> Mean::finish(const State& state, const Rows&) { return {state[0] / state[1], state[1]}; }
Cotangent Mean::cotangent(const ScoreTile& tile, const ResultGradients& x) {
  return {(x.gradients[0] / x.saved[1]).unsqueeze(-1), Tensor()};
}
std::vector<Tensor> Mean::whole(const ScoreTile& tile) {
  const Tensor count = count_of(tile).to(tile.scores.scalar_type());
  // 0 / 0 would be right for a row without pairs, but its derivative would not be 0.
  const Tensor mean = tile.filled(0).sum(-1) / count.clamp_min(1);
  return {at::where(count.eq(0), number_like(std::numeric_limits<double>::quiet_NaN(), mean), mean), count};
}

State Matmul::neutral(const Rows& rows) {
  std::vector<Index> sizes = rows.sizes;
  sizes.push_back(rows.call.values.size(-1));
  return {at::zeros(sizes, rows.options.dtype(at::kDouble))};
}
State Matmul::reduce(const ScoreTile& tile) {
  return {masked_product(tile.filled(0), tile.values, tile.keep, tile.finite).to(at::kDouble)};
}
State Matmul::merge(const State& a, const State& b, const Call&) { return added(a, b); }
std::vector<Tensor> Matmul::finish(const State& state, const Rows&) { return state; }
Cotangent Matmul::cotangent(const ScoreTile& tile, const ResultGradients& x) {
  return {product(x.gradients[0], tile.values.mT()), tile.filled(0)};
}
std::vector<Tensor> Matmul::whole(const ScoreTile& tile) { return {masked_product(tile.filled(0), tile.values, tile.keep, tile.finite)}; }

}  // namespace torchpairwise::aten
