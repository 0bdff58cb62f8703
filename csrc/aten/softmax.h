// logsumexp and softmax_matmul. Contract: consumers.h.
//
// State: (m, sum_j exp(s_j - m) [, sum_j exp(s_j - m) V_j]) with m the largest score so far; an infinite m shifts by 0. A row whose scores
// are all -inf keeps an empty sum; one score of +inf makes the sum infinite.
#pragma once

#include "aten/consumers.h"

namespace torchpairwise::aten {

struct LogSumExp {
  static constexpr const ConsumerInfo& kInfo = kLogSumExpInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

struct SoftmaxMatmul {
  static constexpr const ConsumerInfo& kInfo = kSoftmaxMatmulInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

// P_j = exp(s_j - logsumexp - remainder), divided by `total` where it is defined. A row whose logsumexp is infinite has no weights.
Tensor softmax_weights(const ScoreTile& tile, const Tensor& logsumexp, const Tensor& remainder, const Tensor& total);

// True if exp(s_j - logsumexp) is so far from the weights, because of the rounding of a large logsumexp, that their sum must be taken.
bool needs_totals(const Tensor& logsumexp);

}  // namespace torchpairwise::aten
