// How many pairs have been evaluated since the library was loaded, by either path, forward and backward. Tiles that a mask empties are not
// evaluated and not counted. Tests and explain() rely on it; one addition a task costs nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace torchpairwise {

inline std::atomic<std::int64_t>& evaluated_pairs() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

}  // namespace torchpairwise
