// The plan: every tuning number of the native CPU path, with the limit or the measurement that set it. Pure functions of the shapes.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace torchpairwise::plan {

// Shapes that a plan depends on.
struct Shape {
  Index n_rows = 0, n_columns = 0;
  Index n_features = 0;  // of all sources together
  Index n_values = 0;    // C
  Index item_bytes = 4;
  Index state_bytes = 8;                  // of one row's consumer state
  int tile_rows = 12, tile_columns = 32;  // of a register tile
};

inline Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }
inline Index divide_up(Index value, Index by) { return (value + by - 1) / by; }

// A strip of scores (register rows x tile columns) must stay in half of a 32 KB first-level cache, beside the columns' panels that pass
// through.
inline constexpr Index kStripBytes = 24 * 1024;
// The packed columns of a tile must stay in a quarter of a 1 MB second-level cache.
inline constexpr Index kPanelBytes = 256 * 1024;
// Row states of a block, too; the block must still be tall, since the columns are packed anew for each block.
inline constexpr Index kStateBytes = 256 * 1024;
inline constexpr Index kBlockRows = 768;
// Backward keeps a strip for each step and float64 sums for each row.
inline constexpr Index kReplayColumns = 256;
inline constexpr Index kReplayBlockRows = 384;
// Below this many pairs the threads cost more than they give: waking one takes about as long as 20000 pairs.
inline constexpr Index kPairsPerTask = 20000;
// A row block of backward owns its columns while it works; more chunks than threads even out masked problems.
inline constexpr Index kChunksPerThread = 4;

// Up to this many features the difference form of squared distances is as fast as the expansion, and exact.
inline constexpr Index kDifferenceFeatures = 16;

// Two-sided sweeps write a block of 192 rows down transposed: it must stay in a quarter of a 1 MB second-level cache, beside the panels.
inline constexpr Index kSidesColumns = 128;
// Chunks of a symmetric matrix: n of them evaluate (1 + 1 / n) / 2 of the pairs. An even number, for the rounds of a tournament.
inline constexpr Index kMirrorChunks = 16;

// The half of a symmetric matrix pays where evaluating a pair costs more than handing it to a second row's state: measured, 10000 rows of
// 32 features run 1.2 times as fast as the whole, of 64 1.4, of 256 1.7; 1500 rows of 64 no faster.
inline bool mirror_pays(Index n_rows, Index n_features) { return n_features >= 64 && n_rows * n_features >= 200000; }

// Pairs that the half evaluates: those of two different chunks once, those of a chunk with itself all.
inline Index mirrored_pairs(Index n_rows) {
  const Index chunk = divide_up(std::max<Index>(1, n_rows), kMirrorChunks);
  Index pairs = 0;
  for (Index begin = 0; begin < n_rows; begin += chunk) pairs += std::min(chunk, n_rows - begin) * (n_rows - begin);
  return pairs;
}

inline Index tile_columns(const Shape& shape, Index strip_bytes) {
  const Index by_strip = strip_bytes / (shape.tile_rows * shape.item_bytes);
  const Index by_panel = kPanelBytes / std::max<Index>(1, (shape.n_features + shape.n_values) * shape.item_bytes);
  const Index most = std::max<Index>(shape.tile_columns, std::min(by_strip, by_panel) / shape.tile_columns * shape.tile_columns);
  return std::min(most, round_up(std::max<Index>(1, shape.n_columns), shape.tile_columns));
}

// Forward: rows of a block.
inline Index block_rows(const Shape& shape) {
  const Index by_state = kStateBytes / std::max<Index>(1, shape.state_bytes);
  const Index most = std::clamp<Index>(by_state, shape.tile_rows, kBlockRows) / shape.tile_rows * shape.tile_rows;
  return std::max<Index>(1, std::min(most, shape.n_rows));
}

// Forward: blocks small enough that every thread has work, in whole register tiles; a function of the shape and the number of threads.
inline Index balanced_block_rows(const Shape& shape, Index n_batches, int n_threads) {
  const Index wanted = divide_up(shape.n_rows * n_batches, n_threads * kChunksPerThread);
  const Index enough = divide_up(kPairsPerTask, std::max<Index>(1, shape.n_columns));
  const Index rows = round_up(std::max({wanted, enough, Index(shape.tile_rows)}), shape.tile_rows);
  return std::min(block_rows(shape), rows);
}

// Forward with few rows: columns are split into this many parts, a function of the shape alone, merged in order.
inline Index column_splits(const Shape& shape, Index n_batches) {
  constexpr Index kFewTasks = 8, kColumnsPerPart = 4096;
  const Index row_tasks = n_batches * divide_up(std::max<Index>(1, shape.n_rows), 4 * shape.tile_rows);
  if (row_tasks >= kFewTasks) return 1;
  return std::clamp<Index>(std::min(kFewTasks / row_tasks, shape.n_columns / kColumnsPerPart), 1, kFewTasks);
}

// Backward: rows and columns are cut into this many chunks each.
inline Index replay_chunks(const Shape& shape, int n_threads) {
  const Index pairs = shape.n_rows * shape.n_columns;
  if (n_threads == 1 || pairs < 2 * kPairsPerTask) return 1;
  const Index most = std::max<Index>(1, std::min(shape.n_rows / shape.tile_rows, shape.n_columns / shape.tile_columns));
  return std::clamp<Index>(divide_up(pairs, 4 * kPairsPerTask), 1, std::min<Index>(most, n_threads * kChunksPerThread));
}

}  // namespace torchpairwise::plan
