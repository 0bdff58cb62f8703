// histogram. Contract: consumers.h.
#pragma once

#include "aten/consumers.h"

namespace torchpairwise::aten {

// State: the counts of the bins, [*batch, r, k].
struct Histogram {
  static constexpr const ConsumerInfo& kInfo = kHistogramInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

}  // namespace torchpairwise::aten
