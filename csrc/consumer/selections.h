// min, max and topk. Contract: concept.h.
//
// Order of candidates: smaller key first (key = score, or -score where the largest are wanted), then the lower column; NaN after
// everything. Excluded pairs have the key +inf.
#pragma once

#include <algorithm>

#include "consumer/concept.h"
#include "core/vector.h"

namespace torchpairwise::consumer::TP_ISA {

template <class T, bool kLargest>
struct Extremum {
  static constexpr const ConsumerInfo& kInfo = kLargest ? kMaxInfo : kMinInfo;
  struct State {
    T value;
    Index index;  // -1 until a score that is not NaN has come
  };
  static constexpr T kWorst = kLargest ? -math::kInfinity<T> : math::kInfinity<T>;
  TP_HD static bool better(T a, T b) { return kLargest ? a > b : a < b; }

  static T neutral(const Options&) { return kWorst; }
  static Index state_bytes(const Options&) { return sizeof(State); }
  static void init(State* state, const Options&) { *state = {kWorst, -1}; }
  static void update(State* state, const Strip<T>& strip, Index row, const Options&) {
    const T* scores = strip.row(row);
    T best = kWorst;
    if (kLargest) {
#pragma omp simd reduction(max : best)
      for (Index j = 0; j < strip.width; ++j) best = scores[j] > best ? scores[j] : best;
    } else {
#pragma omp simd reduction(min : best)
      for (Index j = 0; j < strip.width; ++j) best = scores[j] < best ? scores[j] : best;
    }
    if (!better(best, state->value) && state->index >= 0) return;
    for (Index j = 0; j < strip.n_columns; ++j) {
      if (scores[j] != best) continue;
      *state = {best, strip.first_column + j};
      return;
    }
  }
  static void skip(State* state, Index first_column, Index, const Options&) {
    if (state->index < 0 || (state->value == kWorst && first_column < state->index)) *state = {kWorst, first_column};
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options&) {
    if (from->index < 0) return;
    if (into->index < 0 || better(from->value, into->value) || (from->value == into->value && from->index < into->index)) *into = *from;
  }
  // A row of NaN gives NaN at its first column.
  static void finish(const State* state, Index row, const Outputs& outputs, const Options&) {
    outputs.at<T>(0, row) = state->index < 0 ? std::numeric_limits<T>::quiet_NaN() : state->value;
    outputs.at<Index>(1, row) = state->index < 0 ? 0 : state->index;
  }
  static void cotangent(const Strip<T>&, Index, const RowGradient<T>&, T*) {}  // gradients go to the selected pairs alone
};

template <class T>
struct Candidate {
  T key;
  Index index;
};

struct Better {
  template <class T>
  TP_HD bool operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    const bool a_nan = a.key != a.key, b_nan = b.key != b.key;
    if (a_nan || b_nan) return a_nan == b_nan ? a.index < b.index : b_nan;
    return a.key < b.key || (a.key == b.key && a.index < b.index);
  }
};

// Candidates that may still be among the k best are appended; a full buffer is cut back to its k best. `threshold` is the k-th best key.
template <class T>
struct Topk {
  static constexpr const ConsumerInfo& kInfo = kTopkInfo;
  struct State {
    Index count;
    T threshold;
    bool full;  // k candidates have been seen, and the threshold holds
    TP_HD Candidate<T>* candidates() { return reinterpret_cast<Candidate<T>*>(this + 1); }
    TP_HD const Candidate<T>* candidates() const { return reinterpret_cast<const Candidate<T>*>(this + 1); }
  };

  // Room for the k best and as many newcomers again: each cut costs O(k) and is paid by at least that many newcomers.
  TP_HD static Index capacity(const Options& options) { return 2 * options.k + 32; }
  static T neutral(const Options& options) { return options.largest ? -math::kInfinity<T> : math::kInfinity<T>; }
  static Index state_bytes(const Options& options) {
    return static_cast<Index>(sizeof(State)) + capacity(options) * static_cast<Index>(sizeof(Candidate<T>));
  }
  static void init(State* state, const Options&) { *state = {0, T(0), false}; }

  static void cut(State* state, const Options& options) {
    Candidate<T>* begin = state->candidates();
    if (state->count > options.k) {
      std::nth_element(begin, begin + options.k - 1, begin + state->count, Better{});
      state->count = options.k;
      state->full = true;
      state->threshold = begin[options.k - 1].key;
    }
  }
  static void append(State* state, Candidate<T> candidate, const Options& options) {
    state->candidates()[state->count++] = candidate;
    if (state->count == capacity(options)) cut(state, options);
  }

  static bool may_enter(const State* state, T key) {
    if (!state->full) return true;
    return state->threshold == state->threshold ? key < state->threshold : key == key;
  }
  static void append_range(State* state, const Strip<T>& strip, const T* scores, Index begin, Index end, const Options& options) {
    const T sign = options.largest ? T(-1) : T(1);
    for (Index j = begin; j < end && j < strip.n_columns; ++j)
      if (const T key = sign * scores[j]; may_enter(state, key)) append(state, {key, strip.first_column + j}, options);
  }

  // Scores are compared with the threshold in groups of vectors; only lanes that may enter are looked at one by one.
  static void update(State* state, const Strip<T>& strip, Index row, const Options& options) {
    if (options.k == 0) return;
    using vectors::TP_ISA::load;
    constexpr Index kLanes = vectors::TP_ISA::kLanes<T>, kGroup = 2 * kLanes;  // divides the width of a strip
    const T* scores = strip.row(row);
    const T sign = options.largest ? T(-1) : T(1);
    Index j = 0;
    for (; j < strip.width && !(state->full && state->threshold == state->threshold); j += kGroup)
      append_range(state, strip, scores, j, j + kGroup, options);
    for (; j < strip.width; j += kGroup) {
      const auto threshold = vectors::TP_ISA::broadcast(state->threshold);
      const auto first = sign * load(scores + j), second = sign * load(scores + j + kLanes);
      unsigned bits = vectors::TP_ISA::less_bits(first, threshold) | vectors::TP_ISA::less_bits(second, threshold) << kLanes;
      for (; bits != 0; bits &= bits - 1) {
        const Index lane = j + __builtin_ctz(bits);
        append_range(state, strip, scores, lane, lane + 1, options);
      }
    }
    if (!state->full && state->count > options.k) cut(state, options);
  }
  static void skip(State* state, Index first_column, Index n_columns, const Options& options) {
    if (options.k == 0 || (state->full && state->threshold == state->threshold)) return;  // k candidates are no worse
    for (Index j = 0; j < n_columns && j < options.k; ++j) append(state, {math::kInfinity<T>, first_column + j}, options);
  }
  static void accumulate(State*, const T*, const Options&) {}
  static void merge(State* into, const State* from, const Options& options) {
    for (Index n = 0; n < from->count; ++n) append(into, from->candidates()[n], options);
  }
  static void finish(const State* state, Index row, const Outputs& outputs, const Options& options) {
    Candidate<T>* begin = const_cast<State*>(state)->candidates();
    std::sort(begin, begin + state->count, Better{});
    for (Index n = 0; n < options.k; ++n) {
      outputs.at<T>(0, row, n) = options.largest ? -begin[n].key : begin[n].key;
      outputs.at<Index>(1, row, n) = begin[n].index;
    }
  }
  static void cotangent(const Strip<T>&, Index, const RowGradient<T>&, T*) {}
};

}  // namespace torchpairwise::consumer::TP_ISA
