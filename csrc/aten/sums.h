// sum, mean and matmul. Contract: consumers.h.
#pragma once

#include "aten/consumers.h"

namespace torchpairwise::aten {

struct Sum {
  static constexpr const ConsumerInfo& kInfo = kSumInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

// State: sum, number of kept pairs.
struct Mean {
  static constexpr const ConsumerInfo& kInfo = kMeanInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

// State: one sum a value column.
struct Matmul {
  static constexpr const ConsumerInfo& kInfo = kMatmulInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
  static Cotangent cotangent(const ScoreTile& tile, const ResultGradients& x);
  static std::vector<Tensor> whole(const ScoreTile& tile);
};

}  // namespace torchpairwise::aten
