// The operation `sweep`: several consumers of both sides in one pass. Each item of it is a consumer call of its own over the same scores.
#pragma once

#include "ops/replay.h"

namespace torchpairwise::ops {

struct SweepArguments {
  std::vector<Arguments> items;  // with dim -1 (rows) or -2 (columns)
};

// Items from `consumers` such as "logsumexp"; dims, values, k and largest have one entry each.
SweepArguments read_sweep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// The results of all items, one item after the other.
std::vector<at::Tensor> cpu_sweep(const std::vector<Call>& calls, const std::vector<std::int64_t>& dims);

// True if the scores are those of a matrix with itself that equals its transpose: its pairs need be evaluated on one side of the diagonal.
bool is_symmetric(const Call& call);
// True if it is, and large enough for the half to cost less than the whole: forward() then runs mirrored.
bool mirror_pays(const Call& call);

}  // namespace torchpairwise::ops
