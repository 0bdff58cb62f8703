// logsumexp and softmax_matmul. Contract: concept.h.
//
// The state is (m, sum_j exp(s_j - m) [, sum_j exp(s_j - m) V_j]) with m the largest score so far; a larger one rescales the sums. A row
// whose scores are all -inf keeps m = -inf and an empty sum; one score of +inf makes the sum infinite.
#pragma once

#include "consumer/concept.h"

namespace torchpairwise::consumer::TP_ISA {

template <class T>
struct SoftmaxState {
  T maximum;
  double sum;
};

// The shift that exp(s - shift) uses for a maximum m: infinite maxima shift by 0, so that no inf - inf appears.
template <class T>
TP_HD T softmax_shift(T maximum) {
  return math::absolute(maximum) == math::kInfinity<T> ? T(0) : maximum;
}

// Raises the maximum of `state` and returns the factor by which sums made with the old one must be multiplied.
template <class T>
TP_HD double softmax_raise(SoftmaxState<T>* state, T maximum) {
  if (!(maximum > state->maximum)) return 1.0;
  const double factor = state->maximum == -math::kInfinity<T>
                            ? 1.0
                            : math::exp(static_cast<double>(softmax_shift(state->maximum)) - static_cast<double>(softmax_shift(maximum)));
  state->maximum = maximum;
  state->sum *= factor;
  return factor;
}

// Adds a row of scores; `weights` (may be the scores) gets exp(s - shift).
template <class T, bool kStore>
TP_HD double softmax_update(SoftmaxState<T>* state, T* scores, Index width) {
  T maximum = -math::kInfinity<T>;
#pragma omp simd reduction(max : maximum)
  for (Index j = 0; j < width; ++j) maximum = scores[j] > maximum ? scores[j] : maximum;
  const double factor = softmax_raise(state, maximum);
  const T shift = softmax_shift(state->maximum);
  T sum = T(0);
#pragma omp simd reduction(+ : sum)
  for (Index j = 0; j < width; ++j) {
    const T weight = math::exp(scores[j] - shift);
    if (kStore) scores[j] = weight;
    sum += weight;
  }
  state->sum += sum;
  return factor;
}

// Writes the logsumexp as result n, and what rounding took from it as result n + 1.
template <class T>
TP_HD void write_logsumexp(const SoftmaxState<T>& state, Index row, int n, const Outputs& outputs) {
  const double exact = std::log(state.sum) + static_cast<double>(softmax_shift(state.maximum));
  const T rounded = static_cast<T>(exact);
  outputs.at<T>(n, row) = rounded;
  outputs.at<T>(n + 1, row) = math::absolute(rounded) == math::kInfinity<T> ? T(0) : static_cast<T>(exact - static_cast<double>(rounded));
}

// P_j = exp(s_j - logsumexp - remainder); a row whose logsumexp is infinite has no gradient.
template <class T>
TP_HD bool softmax_weights(const Strip<T>& strip, Index row, T logsumexp, T remainder, T* weights) {
  const bool finite = math::absolute(logsumexp) != math::kInfinity<T>;
  const T* scores = strip.row(row);
  if (finite)
    for (Index j = 0; j < strip.width; ++j) weights[j] = math::exp((scores[j] - logsumexp) - remainder);
  else
    for (Index j = 0; j < strip.width; ++j) weights[j] = T(0);
  return finite;
}

template <class T>
struct LogSumExp : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kLogSumExpInfo;
  using State = SoftmaxState<T>;
  static T neutral(const Options&) { return -math::kInfinity<T>; }
  static Index state_bytes(const Options&) { return sizeof(State); }
  static void init(State* state, const Options&) { *state = {-math::kInfinity<T>, 0}; }
  static void update(State* state, const Strip<T>& strip, Index row, const Options&) {
    softmax_update<T, false>(state, strip.row(row), strip.width);
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options&) {
    State other = *from;
    softmax_raise(into, other.maximum);
    softmax_raise(&other, into->maximum);
    into->sum += other.sum;
  }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options&) { write_logsumexp(*state, row, 0, outputs); }
  static void cotangent(const Strip<T>& strip, Index row, const RowGradient<T>& x, T* gradient) {
    if (softmax_weights(strip, row, x.saved[0], x.saved[1], gradient))
      for (Index j = 0; j < strip.width; ++j) gradient[j] *= x.gradient[0];
  }
};

// State: SoftmaxState followed by the C sums, all of them doubles in size.
template <class T>
struct SoftmaxMatmul : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kSoftmaxMatmulInfo;
  struct State {
    SoftmaxState<T> softmax;
    double factor;  // of the strip being added: set by update, used by accumulate
    TP_HD double* sums() { return reinterpret_cast<double*>(this + 1); }
    TP_HD const double* sums() const { return reinterpret_cast<const double*>(this + 1); }
  };
  static_assert(sizeof(State) % sizeof(double) == 0);

  static T neutral(const Options&) { return -math::kInfinity<T>; }
  static Index state_bytes(const Options& options) {
    return static_cast<Index>(sizeof(State)) + options.n_values * static_cast<Index>(sizeof(double));
  }
  static void init(State* state, const Options& options) {
    state->softmax = {-math::kInfinity<T>, 0};
    state->factor = 1;
    for (Index c = 0; c < options.n_values; ++c) state->sums()[c] = 0;
  }
  static void update(State* state, const Strip<T>& strip, Index row, const Options&) {
    state->factor = softmax_update<T, true>(&state->softmax, strip.row(row), strip.width);
  }
  static void accumulate(State* state, const T* product, const Options& options) {
    double* sums = state->sums();
    const double factor = state->factor;
    for (Index c = 0; c < options.n_values; ++c) sums[c] = sums[c] * factor + product[c];
  }
  static void merge(State* into, const State* from, const Options& options) {
    SoftmaxState<T> other = from->softmax;
    const double factor = softmax_raise(&into->softmax, other.maximum);
    const double other_factor = softmax_raise(&other, into->softmax.maximum);
    into->softmax.sum += other.sum;
    for (Index c = 0; c < options.n_values; ++c) into->sums()[c] = into->sums()[c] * factor + from->sums()[c] * other_factor;
  }
  // A row without a kept pair, or with scores of -inf only, is 0.
  static void finish(const State* state, Index row, const Outputs& outputs, const Options& options) {
    const double sum = state->softmax.sum;
    const double inverse = sum == 0 ? 0.0 : 1.0 / sum;
    for (Index c = 0; c < options.n_values; ++c) outputs.at<T>(0, row, c) = static_cast<T>(state->sums()[c] * inverse);
    write_logsumexp(state->softmax, row, 1, outputs);
  }
  // The strip's scores become the weights P (for the gradient of V); G_j = P_j (gradient . V_j - delta + gradient_logsumexp).
  static void cotangent(const Strip<T>& strip, Index row, const RowGradient<T>& x, T* gradient) {
    T* weights = strip.row(row);
    softmax_weights(strip, row, x.saved[1], x.saved[2], weights);
    const T shift = x.gradient[1] - x.delta;
    for (Index j = 0; j < strip.width; ++j) gradient[j] = weights[j] * (x.value_product[j] + shift);
  }
};

}  // namespace torchpairwise::consumer::TP_ISA
