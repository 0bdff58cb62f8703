// Sources that compare two feature vectors. Contract: concept.h.
#pragma once

#include "core/math.h"
#include "source/concept.h"

namespace torchpairwise {

// x . y
struct Linear {
  static constexpr SourceInfo kInfo{"linear", "sum_d x_d y_d", Form::kProduct, true, false};
  template <class T>
  TP_HD static T map(T accumulator, T x, T y) {
    return accumulator + x * y;
  }
  template <class T>
  TP_HD static T pull(T, T y) {
    return y;
  }
  template <class T>
  TP_HD static T pull_column(T x, T) {
    return x;
  }
};

// |x - y|^2
struct SquaredEuclidean {
  static constexpr SourceInfo kInfo{"sqeuclidean", "sum_d (x_d - y_d)^2", Form::kGramOrDifference, true, true};
  template <class T>
  TP_HD static T map(T accumulator, T x, T y) {
    const T difference = x - y;
    return accumulator + difference * difference;
  }
  template <class T>
  TP_HD static T pull(T x, T y) {
    const T difference = x - y;
    return difference + difference;
  }
  template <class T>
  TP_HD static T pull_column(T x, T y) {
    return pull(y, x);
  }
};

// |x - y|_1; the derivative where x_d = y_d is 0.
struct Manhattan {
  static constexpr SourceInfo kInfo{"manhattan", "sum_d |x_d - y_d|", Form::kDifference, true, true};
  template <class T>
  TP_HD static T map(T accumulator, T x, T y) {
    return accumulator + math::absolute(x - y);
  }
  template <class T>
  TP_HD static T pull(T x, T y) {
    return math::sign(x - y);
  }
  template <class T>
  TP_HD static T pull_column(T x, T y) {
    return math::sign(y - x);
  }
};

}  // namespace torchpairwise
