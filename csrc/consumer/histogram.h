// histogram: counts of kept scores in bins of equal width. Contract: concept.h.
#pragma once

#include "consumer/concept.h"
#include "consumer/edges.h"

namespace torchpairwise::consumer::TP_ISA {

// State: one count for each of the k bins.
template <class T>
struct Histogram : IgnoresExcluded {
  static constexpr const ConsumerInfo& kInfo = kHistogramInfo;
  using State = Index;
  static T neutral(const Options&) { return std::numeric_limits<T>::quiet_NaN(); }  // is in no bin
  static Index state_bytes(const Options& options) { return options.k * static_cast<Index>(sizeof(State)); }
  static void init(State* state, const Options& options) {
    for (Index n = 0; n < options.k; ++n) state[n] = 0;
  }
  static void update(State* state, const Strip<T>& strip, Index row, const Options& options) {
    const Edges edges{options.low, options.high, options.k};
    const T* scores = strip.row(row);
    for (Index j = 0; j < strip.n_columns; ++j)
      if (const Index bin = edges.bin_of(static_cast<double>(scores[j])); bin >= 0) ++state[bin];
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options& options) {
    for (Index n = 0; n < options.k; ++n) into[n] += from[n];
  }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options& options) {
    for (Index n = 0; n < options.k; ++n) outputs.at<Index>(0, row, n) = state[n];
  }
  static void cotangent(const Strip<T>&, Index, const RowGradient<T>&, T*) {}
};

}  // namespace torchpairwise::consumer::TP_ISA
