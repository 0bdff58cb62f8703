// The record of a consumer. Contract: concept.h; the list: list.h.
#pragma once

namespace torchpairwise {

inline constexpr int kMaxResults = 3;

struct ConsumerInfo {
  const char* name;
  const char* formula;
  // What follows `Tensor[] operands, str program, float[] constants` in the schema, and what it returns.
  const char* arguments;
  const char* returns;
  // One word a result: its sizes after the batch dimensions (N rows, M columns, C value columns, k, P = min(N, M)); then # where it holds
  // indices (int64), % where it holds counts (int64), ! where it is another number without gradient.
  const char* results;
  // The numbers of the results that backward reads. Where values are taken, result 0 has the value columns and the others are vectors.
  const char* saved;
  bool takes_values;  // has V [*batch, M, C]
  bool differentiable;
  // Result over an empty axis: a number, or "" where the call raises.
  const char* empty;
};

inline constexpr ConsumerInfo kSumInfo{"sum", "sum_j s_ij", "int dim", "Tensor", "N", "", false, true, "0"};
// The second result is the number of kept pairs of each row.
inline constexpr ConsumerInfo kMeanInfo{"mean", "sum_j s_ij / #kept_i", "int dim", "(Tensor mean, Tensor count)", "N N!", "1", false, true,
                                        ""};
// `remainder` is what rounding took from the logsumexp: backward needs weights that sum to 1 where it is large.
inline constexpr ConsumerInfo kLogSumExpInfo{
    "logsumexp", "log sum_j exp(s_ij)", "int dim", "(Tensor logsumexp, Tensor remainder)", "N N!", "01", false, true, "-inf"};
inline constexpr ConsumerInfo kMatmulInfo{"matmul", "sum_j s_ij V_jc", "Tensor values, int dim", "Tensor", "NC", "", true, true, "0"};
// The second result is the row's logsumexp; both carry gradients. The third is its remainder.
inline constexpr ConsumerInfo kSoftmaxMatmulInfo{"softmax_matmul",
                                                 "sum_j softmax_j(s_ij) V_jc",
                                                 "Tensor values, int dim",
                                                 "(Tensor output, Tensor logsumexp, Tensor remainder)",
                                                 "NC N N!",
                                                 "012",
                                                 true,
                                                 true,
                                                 "0"};
inline constexpr ConsumerInfo kMinInfo{
    "min", "min_j s_ij and the lowest j that has it", "int dim", "(Tensor values, Tensor indices)", "N N#", "1", false, true, ""};
inline constexpr ConsumerInfo kMaxInfo{
    "max", "max_j s_ij and the lowest j that has it", "int dim", "(Tensor values, Tensor indices)", "N N#", "1", false, true, ""};
inline constexpr ConsumerInfo kTopkInfo{"topk",
                                        "the k best s_ij in order, ties by the lower j",
                                        "int k, int dim, bool largest",
                                        "(Tensor values, Tensor indices)",
                                        "Nk Nk#",
                                        "1",
                                        false,
                                        true,
                                        ""};
inline constexpr ConsumerInfo kHistogramInfo{"histogram",
                                             "#{j : e_b <= s_ij < e_b+1} for k bins with edges e_b from low to high",
                                             "int k, int dim, float low, float high",
                                             "Tensor",
                                             "Nk%",
                                             "",
                                             false,
                                             false,
                                             "0"};
inline constexpr ConsumerInfo kDiagonalInfo{"diagonal", "s_ii", "", "Tensor", "P", "", false, true, "[0]"};
inline constexpr ConsumerInfo kDenseInfo{"dense", "s_ij", "float fill", "Tensor", "NM", "", false, true, "[N, M]"};

inline constexpr const ConsumerInfo* kConsumers[] = {&kSumInfo, &kMeanInfo, &kLogSumExpInfo, &kMatmulInfo,   &kSoftmaxMatmulInfo, &kMinInfo,
                                                     &kMaxInfo, &kTopkInfo, &kHistogramInfo, &kDiagonalInfo, &kDenseInfo};

}  // namespace torchpairwise
