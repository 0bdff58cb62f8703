// Numbers and sizes used everywhere.
#pragma once

#include <cstdint>

namespace torchpairwise {

using Index = std::int64_t;  // every size, stride and offset is 64-bit

// Limits of the fused kernels' fixed arrays. A longer program runs on the tensor path; plan/why_not.h says so.
inline constexpr int kMaxSteps = 48;
inline constexpr int kMaxMaskSteps = 24;  // of one mask
inline constexpr int kMaxMasks = 4;       // the one that leaves pairs out, and those of selects
inline constexpr int kMaxSides = 8;       // consumers of one side of a sweep
inline constexpr int kMaxSlots = 48;
inline constexpr int kMaxDepth = 4;  // scores that one pair may hold at a time

}  // namespace torchpairwise
