// min, max and topk. Contract: consumers.h.
//
// State: the best scores of each row and their columns, [*batch, r, n], best first. Order: smaller key first (key = score, or -score where
// the largest are wanted), then the lower column; NaN after everything. Left-out pairs have the key +inf.
#pragma once

#include "aten/consumers.h"

namespace torchpairwise::aten {

struct Topk {
  static constexpr const ConsumerInfo& kInfo = kTopkInfo;
  static State neutral(const Rows& rows);
  static State reduce(const ScoreTile& tile);
  static State merge(const State& a, const State& b, const Call& call);
  static std::vector<Tensor> finish(const State& state, const Rows& rows);
};

// How a call selects: min and max are the first of one.
struct Selection {
  explicit Selection(const Call& call);
  Index k;
  bool largest;
  bool single;   // the results have no axis of size k
  double worst;  // the score of a left-out pair
};

}  // namespace torchpairwise::aten
