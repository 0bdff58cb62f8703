// sum, mean and matmul: linear consumers. Contract: concept.h.
#pragma once

#include "consumer/concept.h"

namespace torchpairwise::consumer::TP_ISA {

template <class T>
struct Sum : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kSumInfo;
  struct State {
    double sum;
  };
  static T neutral(const Options&) { return T(0); }
  static Index state_bytes(const Options&) { return sizeof(State); }
  static void init(State* state, const Options&) { state->sum = 0; }
  static void update(State* state, const Strip<T>& strip, Index row, const Options&) {
    const T* scores = strip.row(row);
    T sum = T(0);
#pragma omp simd reduction(+ : sum)
    for (Index j = 0; j < strip.width; ++j) sum += scores[j];
    state->sum += sum;
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options&) { into->sum += from->sum; }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options&) {
    outputs.at<T>(0, row) = static_cast<T>(state->sum);
  }
  static void cotangent(const Strip<T>& strip, Index, const RowGradient<T>& x, T* gradient) {
    for (Index j = 0; j < strip.width; ++j) gradient[j] = x.gradient[0];
  }
};

template <class T>
struct Mean : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kMeanInfo;
  struct State {
    double sum;
    Index count;
  };
  static T neutral(const Options&) { return T(0); }
  static Index state_bytes(const Options&) { return sizeof(State); }
  static void init(State* state, const Options&) { *state = {0, 0}; }
  static void update(State* state, const Strip<T>& strip, Index row, const Options&) {
    const T* scores = strip.row(row);
    T sum = T(0);
#pragma omp simd reduction(+ : sum)
    for (Index j = 0; j < strip.width; ++j) sum += scores[j];
    state->sum += sum;
    Index count = strip.n_columns;
    if (strip.keep != nullptr) {
      count = 0;
      for (Index j = 0; j < strip.n_columns; ++j) count += strip.keep[row * strip.stride + j];
    }
    state->count += count;
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options&) {
    into->sum += from->sum;
    into->count += from->count;
  }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options&) {
    outputs.at<T>(0, row) = static_cast<T>(state->sum / static_cast<double>(state->count));
    outputs.at<T>(1, row) = static_cast<T>(state->count);
  }
  static void cotangent(const Strip<T>& strip, Index, const RowGradient<T>& x, T* gradient) {
    const T share = x.gradient[0] / x.saved[1];
    for (Index j = 0; j < strip.width; ++j) gradient[j] = share;
  }
};

// weights = scores; state: one sum for each value column.
template <class T>
struct Matmul : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kMatmulInfo;
  using State = double;
  static T neutral(const Options&) { return T(0); }
  static Index state_bytes(const Options& options) { return options.n_values * static_cast<Index>(sizeof(double)); }
  static void init(State* state, const Options& options) {
    for (Index c = 0; c < options.n_values; ++c) state[c] = 0;
  }
  static void update(State*, const Strip<T>&, Index, const Options&) {}
  static void accumulate(State* state, const T* product, const Options& options) {
    for (Index c = 0; c < options.n_values; ++c) state[c] += product[c];
  }
  static void merge(State* into, const State* from, const Options& options) {
    for (Index c = 0; c < options.n_values; ++c) into[c] += from[c];
  }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options& options) {
    for (Index c = 0; c < options.n_values; ++c) outputs.at<T>(0, row, c) = static_cast<T>(state[c]);
  }
  static void cotangent(const Strip<T>& strip, Index, const RowGradient<T>& x, T* gradient) {
    for (Index j = 0; j < strip.width; ++j) gradient[j] = x.value_product[j];
  }
};

}  // namespace torchpairwise::consumer::TP_ISA
