// What a consumer is.
//
// A consumer reduces the scores of a row while its columns stream by. It is a struct of static functions on the states of a strip of rows:
//
//   static constexpr const ConsumerInfo& kInfo;
//   static T neutral(const Options&);                      the score that changes nothing: excluded pairs are overwritten with it
//   static Index state_bytes(const Options&);              of one row
//   static void init(State, const Options&);               the empty state
//   static void update(State, Strip, row, const Options&)  adds the strip's scores of one row; with values, leaves the weights of the row
//   static void skip(State, first_column, n_columns, const Options&)  a tile all of whose pairs are excluded: selections still rank them
//   static void accumulate(State, product, const Options&) with values: adds the row of weights @ V
//   static void merge(State into, State from, const Options&)
//   static void finish(State, row, const Outputs&, const Options&)
//   static void cotangent(Strip, row, RowGradient, gradient)  d loss / d score of one row, from the incoming gradient and the saved results
//
// Laws: init is neutral for merge; merge is associative up to rounding, and exactly so for selections; update of a strip filled with
// neutral(options) changes nothing but counts. Columns arrive in ascending order, so that an equal score that comes later loses.
// Sums are kept in float32 within a strip and in float64 across strips.
//
// Toy consumer, the sum of squares: state one double; neutral 0; update adds sum_j s_j^2; merge adds; finish writes; cotangent 2 g s_j.
#pragma once

#include "consumer/info.h"
#include "core/macros.h"
#include "core/math.h"
#include "core/types.h"

namespace torchpairwise::consumer::TP_ISA {

struct Options {
  Index n_values = 0;  // C
  Index k = 0;
  bool largest = false;
  double low = 0, high = 0;
};

// Scores of a few rows and one tile of columns. Entries from n_columns to width hold the neutral value, as excluded pairs do.
template <class T>
struct Strip {
  T* scores;
  Index stride;
  Index n_columns, width;
  Index first_column;
  const unsigned char* keep;  // [rows][stride]; null when every pair is kept and width == n_columns

  TP_HD T* row(Index r) const { return scores + r * stride; }
};

// Where the results of the call go: entry (row, c) of result n is data[n][row * stride[n][0] + c * stride[n][1]].
struct Outputs {
  void* data[kMaxResults] = {};
  Index stride[kMaxResults][2] = {};

  template <class T>
  TP_HD T& at(int result, Index row, Index column = 0) const {
    return static_cast<T*>(data[result])[row * stride[result][0] + column * stride[result][1]];
  }
};

// For consumers to which an excluded pair is nothing.
struct IgnoresExcluded {
  template <class State>
  TP_HD static void skip(State*, Index, Index, const Options&) {}
};

// What a row of replay knows.
template <class T>
struct RowGradient {
  T gradient[kMaxResults] = {};      // by result: 0 where there is none, and of results with value columns
  T saved[kMaxResults] = {};         // by result, likewise
  T delta = T(0);                    // with values: sum_c gradient_c result_c of result 0, where it is saved
  const T* value_product = nullptr;  // with values: [width], sum_c gradient_c V_jc
};

}  // namespace torchpairwise::consumer::TP_ISA
