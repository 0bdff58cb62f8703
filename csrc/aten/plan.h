// Tile sizes of the tensor path. Pure functions of the shapes; every number names the limit that set it.
#pragma once

#include <algorithm>
#include <vector>

#include "core/types.h"

namespace torchpairwise::aten {

// What a plan depends on.
struct TensorShape {
  Index n_batches = 1, n_rows = 0, n_columns = 0;
  Index bytes_per_pair = 4;  // of all tensors with one entry a pair that live at a time
  Index bytes_per_row = 8;   // of the consumer's state
  Index chunk_size = 0;      // the caller's limit of rows and columns; 0: none
  bool is_cpu = true;
};

struct TensorTile {
  Index batches = 1, rows = 1, columns = 1;
  Index workspace_bytes = 0;
};

// CPU: the handful of tensors that a step reads and writes should stay in a second-level cache of 1 MB a core, and a tile must still cost
// far more than the 20 or so calls of torch (2 us each) that evaluate it.
inline constexpr Index kHostWorkspaceBytes = 4 << 20;
// Other devices: a launch costs 5 us, in which the memory moves some 10 MB.
inline constexpr Index kDeviceWorkspaceBytes = 64 << 20;
// Second derivatives record a block of rows against all columns: large enough that the calls of torch do not count, small beside the inputs
// of the problems that need streaming at all (20000 rows and columns make a matrix of 1.6 GB).
inline constexpr Index kRecordedBytes = 64 << 20;
// Reductions along a row and products with V want rows of columns that long; longer ones only make the tile flatter.
inline constexpr Index kTileColumns = 1024;

// Squared distances: up to this many features their differences, 3 passes over the tile each, cost no more than the product, the norms and
// the search for pairs to evaluate again.
inline constexpr Index kDifferenceFeatures = 8;

inline TensorTile tensor_tile(const TensorShape& shape) {
  const Index budget = shape.is_cpu ? kHostWorkspaceBytes : kDeviceWorkspaceBytes;
  const Index most = shape.chunk_size > 0 ? shape.chunk_size : std::max({shape.n_rows, shape.n_columns, Index(1)});
  const Index n_rows = std::max<Index>(1, shape.n_rows), n_columns = std::max<Index>(1, shape.n_columns);
  const Index pairs = std::max<Index>(1, budget / shape.bytes_per_pair);
  TensorTile tile;
  tile.columns = std::min({n_columns, most, kTileColumns, pairs});
  tile.rows = std::min(
      {n_rows, most, std::max<Index>(1, pairs / tile.columns), std::max<Index>(1, budget / std::max<Index>(1, shape.bytes_per_row))});
  tile.columns = std::min({n_columns, most, std::max(tile.columns, pairs / tile.rows)});
  const Index each = tile.rows * tile.columns * shape.bytes_per_pair + tile.rows * shape.bytes_per_row;
  tile.batches = std::clamp<Index>(budget / each, 1, std::max<Index>(1, shape.n_batches));
  tile.workspace_bytes = tile.batches * each;
  return tile;
}

// A box of batch entries: a range of every batch dimension.
struct Box {
  std::vector<Index> start, length;
};

// Cuts the batch dimensions into boxes of at most `most` entries. Inner dimensions stay whole as long as they fit.
inline std::vector<Box> boxes(const std::vector<Index>& sizes, Index most) {
  Box box;
  box.start.assign(sizes.size(), 0);
  box.length.assign(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 0; most = std::max<Index>(1, most / box.length[d])) box.length[d] = std::min(sizes[d], most);
  std::vector<Box> out;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return out;
  const std::vector<Index> step = box.length;
  for (;;) {
    for (std::size_t d = 0; d < sizes.size(); ++d) box.length[d] = std::min(step[d], sizes[d] - box.start[d]);
    out.push_back(box);
    std::size_t d = sizes.size();
    for (; d > 0; box.start[d - 1] = 0, --d)
      if ((box.start[d - 1] += step[d - 1]) < sizes[d - 1]) break;
    if (d == 0) return out;
  }
}

}  // namespace torchpairwise::aten
