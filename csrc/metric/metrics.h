// The metrics: named rows "row transform + source + program + parameters". One row is all that a new metric needs.
//
// `program` is the text that expr/program.h reads, with parameters by name: `scale -gamma` takes the parameter gamma, negated. A
// parameter given as a number becomes a constant, given as a 0-dim tensor an operand.
#pragma once

namespace torchpairwise {

// What happens to each row of X and Y before the source sees it, once per call and differentiably.
//   kNormalize: x / |x|, a zero row stays zero. It also provides the parameters zero_rows and zero_columns: the vectors that hold 1/2
//   where a row is zero and 0 elsewhere.
enum class RowTransform { kNone, kNormalize };

struct ParameterInfo {
  const char* name;
  // The default: a number, "1/D", or "" where the caller must give one.
  const char* value;
  const char* meaning;
};

struct MetricInfo {
  const char* name;
  const char* aliases;  // separated by spaces
  const char* kind;     // similarity, distance or kernel
  RowTransform transform;
  const char* source;
  const char* program;  // the steps after the source
  ParameterInfo parameters[3];
  bool symmetric;
  bool zero_diagonal;
  const char* formula;
};

inline constexpr ParameterInfo kGamma{"gamma", "1/D", "width, > 0; a vector [D] means one width a feature (ARD)"};

inline constexpr MetricInfo kMetrics[] = {
    {"linear", "dot linear_kernel", "kernel", RowTransform::kNone, "linear", "", {}, true, false, "x . y"},
    {"sqeuclidean", "squared_euclidean", "distance", RowTransform::kNone, "sqeuclidean", "", {}, true, true, "|x - y|^2"},
    {"euclidean", "l2", "distance", RowTransform::kNone, "sqeuclidean", "sqrt", {}, true, true, "|x - y|"},
    {"manhattan", "l1 cityblock", "distance", RowTransform::kNone, "manhattan", "", {}, true, true, "sum_d |x_d - y_d|"},
    {"rbf",
     "gaussian rbf_kernel",
     "kernel",
     RowTransform::kNone,
     "sqeuclidean",
     "scale -gamma; exp",
     {kGamma},
     true,
     false,
     "exp(-gamma |x - y|^2)"},
    {"laplacian",
     "laplacian_kernel",
     "kernel",
     RowTransform::kNone,
     "manhattan",
     "scale -gamma; exp",
     {kGamma},
     true,
     false,
     "exp(-gamma sum_d |x_d - y_d|)"},
    {"cosine_similarity",
     "cosine_kernel",
     "similarity",
     RowTransform::kNormalize,
     "linear",
     "clamp -1 1",
     {},
     true,
     false,
     "x . y / (|x| |y|), 0 where a row is zero"},
    // |x/|x| - y/|y||^2 / 2 is exact for equal rows and for close ones; a zero row is at distance 1 from all.
    {"cosine_distances",
     "cosine",
     "distance",
     RowTransform::kNormalize,
     "sqeuclidean",
     "scale 0.5; add_rows zero_rows; add_columns zero_columns; clamp 0 2",
     {},
     true,
     false,
     "1 - x . y / (|x| |y|), 1 where a row is zero"},
    {"polynomial",
     "poly polynomial_kernel",
     "kernel",
     RowTransform::kNone,
     "linear",
     "scale gamma; shift coef0; pow degree",
     {{"gamma", "1/D", "factor of the product"}, {"coef0", "1", "constant term"}, {"degree", "3", "exponent, a number"}},
     true,
     false,
     "(gamma x . y + coef0)^degree"},
    {"sigmoid",
     "sigmoid_kernel",
     "kernel",
     RowTransform::kNone,
     "linear",
     "scale gamma; shift coef0; tanh",
     {{"gamma", "1/D", "factor of the product"}, {"coef0", "1", "constant term"}},
     true,
     false,
     "tanh(gamma x . y + coef0)"},
};

inline constexpr int kNumMetrics = sizeof(kMetrics) / sizeof(kMetrics[0]);

}  // namespace torchpairwise
