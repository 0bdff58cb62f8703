// What a kernel call receives: plain pointers and sizes of one batch entry. No tensors, no allocation.
#pragma once

#include "consumer/info.h"
#include "core/types.h"
#include "expr/step.h"

namespace torchpairwise::cpu {

struct Operand {
  const void* data = nullptr;
  Index size[2] = {0, 0};    // features and values: rows, features; vectors: length, 1
  Index stride[2] = {0, 0};  // in elements
};

// Tile sizes of a call (plan/plan.h).
struct Tiles {
  Index block_rows = 0;       // rows whose state is kept while the columns stream by
  Index tile_columns = 0;     // columns packed at a time
  Index workspace_bytes = 0;  // of one thread
};

struct MaskSteps {
  const MaskStep* steps = nullptr;
  int n_steps = 0;
};

struct Problem {
  const Step* steps = nullptr;
  int n_steps = 0;
  MaskSteps masks[kMaxMasks];  // the first leaves pairs out, the others belong to selects
  int n_masks = 1;
  bool masks_transposed = false;
  bool fast = false;  // plain expansion of distances allowed
  int depth = 1;
  const double* constants = nullptr;
  Operand operands[kMaxSlots];
  const void* centres[kMaxSteps] = {};  // per source step in Gram form: [D] of the compute type
  Index n_rows = 0, n_columns = 0;
  int consumer = 0;  // counts in ConsumerList (Kernels::find_consumer)
  Operand values;    // [M, C]
  Index k = 0;
  bool largest = false;
  double low = 0, high = 0;
  Tiles tiles;
};

// A result or gradient of one batch entry; strides in elements.
struct Result {
  void* data = nullptr;
  Index stride[2] = {0, 0};
};

// A consumer of a two-sided sweep. `states` are those of the rows (or columns) of the task, from its first one on.
struct Side {
  int consumer = 0;
  Operand values;  // of rows [M, C], of columns [N, C]
  Index k = 0;
  bool largest = false;
  double low = 0, high = 0;
  void* states = nullptr;
};

struct Sides {
  Side rows[kMaxSides], columns[kMaxSides];
  int n_rows = 0, n_columns = 0;
};

// What replay reads and writes besides the problem. Absent gradients have a null pointer.
struct Replay {
  Operand gradients[kMaxResults];  // of the results: [N], or [N, C] of result 0 where values are taken
  Operand saved[kMaxResults];      // the results that the consumer's record names as saved
  Result rows[kMaxSlots];          // gradients of row-side uses: features [N, D], vectors [N]
  Result columns[kMaxSlots];       // gradients of column-side uses
  Result values;                   // [M, C]
  double* scalars = nullptr;       // [kMaxSlots], added to
  double* tables[kMaxSlots] = {};  // by slot: [T], added to
};

}  // namespace torchpairwise::cpu
