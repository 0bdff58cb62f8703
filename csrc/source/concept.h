// What a source is.
//
// A source gives the raw score of a pair of feature vectors x, y [D] as a sum over features. It is a struct of static functions:
//
//   static constexpr SourceInfo kInfo;
//   template <class T> static T map(T accumulator, T x, T y);   // accumulator + the term of one feature
//   template <class T> static T pull(T x, T y);                 // d term / d x
//   template <class T> static T pull_column(T x, T y);          // d term / d y
//
// `T` is a number or a vector of numbers. Laws: map(0, x, x) is the exact self-score where the record says `zero_diagonal`; terms are
// summed in the order of the features, so that the value of a pair depends on the pair alone.
//
// `form` says how tiles may be evaluated. kProduct: the score is the dot product. kDifference: only by `map`. kGramOrDifference: by
// `map`, or as |x|^2 + |y|^2 - 2 x.y from rows moved to a common centre, where every pair whose score is below kRescueRatio of
// |x|^2 + |y|^2 is evaluated again by `map`: that keeps the relative error of the score below 1e-5.
#pragma once

namespace torchpairwise {

enum class Form { kProduct, kDifference, kGramOrDifference };

struct SourceInfo {
  const char* name;
  const char* formula;
  Form form;
  bool symmetric;      // score(x, y) == score(y, x)
  bool zero_diagonal;  // score(x, x) == 0 exactly
};

// The expansion loses about 8 ulp (5e-7) of |x|^2 + |y|^2; a score above 1/16 of that keeps its error below 1e-5.
inline constexpr double kRescueRatio = 1.0 / 16;

}  // namespace torchpairwise
