// Why a call does not run on the native CPU kernels. An empty list means that it does.
#pragma once

#include <string>
#include <vector>

#include "expr/program.h"

namespace torchpairwise::plan {

inline std::vector<std::string> why_not_program(const Program& program) {
  std::vector<std::string> reasons;
  const auto refuse = [&](bool when, const std::string& reason) {
    if (when) reasons.push_back(reason);
  };
  refuse(program.choices().backend == Backend::kTiles, "backend=\"tiles\" was asked for");
  refuse(program.has_custom(), "the comparison is a function, which runs on tiles of tensors");
  refuse(program.choices().chunk_size > 0, "chunk_size limits the tiles of the tensor path");
  refuse(program.steps().size() > kMaxSteps, "the expression has more than " + std::to_string(kMaxSteps) + " steps");
  refuse(program.masks().size() > kMaxMasks, "the expression has more than " + std::to_string(kMaxMasks - 1) + " selects by a mask");
  for (const std::vector<MaskStep>& mask : program.masks())
    refuse(mask.size() > kMaxMaskSteps, "the mask has more than " + std::to_string(kMaxMaskSteps) + " steps");
  refuse(program.depth() > kMaxDepth, "the expression holds more than " + std::to_string(kMaxDepth) + " scores of a pair at a time");
  refuse(program.n_slots() > kMaxSlots, "the expression has more than " + std::to_string(kMaxSlots) + " tensors");
  return reasons;
}

}  // namespace torchpairwise::plan
