#include "aten/softmax.h"

#include <ATen/ATen.h>

#include <limits>

#include "aten/sources.h"

namespace torchpairwise::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor shift_of(const Tensor& maximum) { return maximum.masked_fill(maximum.isinf(), 0); }

// The factor that turns sums made with the maximum `from` into sums for the maximum `to`, in float64. Empty sums stay as they are.
Tensor factor_of(const Tensor& from, const Tensor& to) {
  const Tensor factor = (shift_of(from).to(at::kDouble) - shift_of(to).to(at::kDouble)).exp();
  return factor.masked_fill(from.eq(-kInfinity), 1);
}

Tensor largest(const Tensor& scores) { return scores.amax(-1); }

// (m, sum) of a tile and its weights exp(s - m).
State summed(const ScoreTile& tile, Tensor& weights) {
  const Tensor scores = tile.filled(-kInfinity), maximum = largest(scores);
  weights = (scores - shift_of(maximum).unsqueeze(-1)).exp_();
  return {maximum, weights.sum(-1).to(at::kDouble)};
}

// Recorded: rows without a finite logsumexp take no part in it.
struct Normalised {
  Tensor weights;  // exp(s - m); 0 in those rows
  Tensor sum;      // 1 in those rows
  Tensor logsumexp;
};

Normalised normalise(const ScoreTile& tile) {
  if (tile.scores.size(-1) == 0) {
    const Tensor sum = tile.scores.sum(-1);
    return {tile.scores, sum + 1, sum - kInfinity};
  }
  Tensor scores = tile.filled(-kInfinity);
  const Tensor maximum = largest(scores.detach()), infinite = maximum.isinf();
  scores = at::where(infinite.unsqueeze(-1), number_like(-kInfinity, scores), scores);
  const Tensor shift = shift_of(maximum), weights = (scores - shift.unsqueeze(-1)).exp();
  const Tensor sum = weights.sum(-1).masked_fill(infinite, 1);
  return {weights, sum, at::where(infinite, maximum, sum.log() + shift)};
}

}  // namespace

Tensor softmax_weights(const ScoreTile& tile, const Tensor& logsumexp, const Tensor& remainder, const Tensor& total) {
  const Tensor infinite = logsumexp.isinf().unsqueeze(-1);
  const Tensor shifted = (tile.filled(-kInfinity) - logsumexp.unsqueeze(-1)).sub_(remainder.unsqueeze(-1));
  const Tensor weights = shifted.exp_().masked_fill_(infinite, 0);
  return total.defined() ? weights / total.unsqueeze(-1) : weights;
}

bool needs_totals(const Tensor& logsumexp) {
  constexpr double kError = 1e-4;  // of a weight: half an ulp of the logsumexp
  const double largest =
      2 * kError /
      (logsumexp.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  const Tensor size = logsumexp.abs();
  return size.gt(largest).logical_and(size.lt(kInfinity)).any().item<bool>();
}

State LogSumExp::neutral(const Rows& rows) {
  return {at::full(rows.sizes, -kInfinity, rows.options), at::zeros(rows.sizes, rows.options.dtype(at::kDouble))};
}
State LogSumExp::reduce(const ScoreTile& tile) {
  Tensor weights;
  return summed(tile, weights);
}
State LogSumExp::merge(const State& a, const State& b, const Call&) {
  const Tensor maximum = at::maximum(a[0], b[0]), a_factor = factor_of(a[0], maximum), b_factor = factor_of(b[0], maximum);
  return {maximum, a[1] * a_factor + b[1] * b_factor};
}
std::vector<Tensor> LogSumExp::finish(const State& state, const Rows& rows) {
  const Tensor exact = state[1].log() + shift_of(state[0]), rounded = exact.to(rows.options.dtype());
  return {rounded, (exact - rounded).masked_fill_(rounded.isinf(), 0)};
}
Cotangent LogSumExp::cotangent(const ScoreTile& tile, const ResultGradients& x) {
  return {softmax_weights(tile, x.saved[0], x.saved[1], x.total) * x.gradients[0].unsqueeze(-1), Tensor()};
}
std::vector<Tensor> LogSumExp::whole(const ScoreTile& tile) {
  const Tensor logsumexp = normalise(tile).logsumexp;
  return {logsumexp, at::zeros_like(logsumexp.detach())};
}

State SoftmaxMatmul::neutral(const Rows& rows) {
  State state = LogSumExp::neutral(rows);
  std::vector<Index> sizes = rows.sizes;
  sizes.push_back(rows.call.values.size(-1));
  state.push_back(at::zeros(sizes, rows.options.dtype(at::kDouble)));
  return state;
}
State SoftmaxMatmul::reduce(const ScoreTile& tile) {
  Tensor weights;
  State state = summed(tile, weights);
  state.push_back(masked_product(weights, tile.values, tile.keep, tile.finite).to(at::kDouble));
  return state;
}
State SoftmaxMatmul::merge(const State& a, const State& b, const Call&) {
  const Tensor maximum = at::maximum(a[0], b[0]), a_factor = factor_of(a[0], maximum), b_factor = factor_of(b[0], maximum);
  return {maximum, a[1] * a_factor + b[1] * b_factor, a[2] * a_factor.unsqueeze(-1) + b[2] * b_factor.unsqueeze(-1)};
}
// A row without a kept pair, or with scores of -inf only, is 0.
std::vector<Tensor> SoftmaxMatmul::finish(const State& state, const Rows& rows) {
  const Tensor inverse = state[1].reciprocal().masked_fill_(state[1].eq(0), 0);
  const std::vector<Tensor> logsumexp = LogSumExp::finish(state, rows);
  return {state[2] * inverse.unsqueeze(-1), logsumexp[0], logsumexp[1]};
}
// G_j = P_j (gradient . V_j - gradient . output + gradient of the logsumexp)
Cotangent SoftmaxMatmul::cotangent(const ScoreTile& tile, const ResultGradients& x) {
  const Tensor weights = softmax_weights(tile, x.saved[1], x.saved[2], x.total);
  Tensor inner;
  if (x.gradients[0].defined()) inner = product(x.gradients[0], tile.values.mT()) - (x.gradients[0] * x.saved[0]).sum(-1, true);
  if (x.gradients[1].defined()) inner = inner.defined() ? inner + x.gradients[1].unsqueeze(-1) : x.gradients[1].unsqueeze(-1);
  return {weights * inner, weights};
}
std::vector<Tensor> SoftmaxMatmul::whole(const ScoreTile& tile) {
  const Normalised x = normalise(tile);
  const Tensor output = masked_product(x.weights, tile.values, tile.keep, tile.finite) / x.sum.unsqueeze(-1);
  const Tensor undefined = x.logsumexp.detach().eq(kInfinity).unsqueeze(-1);  // a score of +inf: inf / inf
  return {at::where(undefined, number_like(std::numeric_limits<double>::quiet_NaN(), output), output), x.logsumexp,
          at::zeros_like(x.logsumexp.detach())};
}

}  // namespace torchpairwise::aten
