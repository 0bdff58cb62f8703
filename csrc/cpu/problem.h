// What a kernel call receives: plain pointers and sizes of one batch entry. No tensors, no allocation.
#pragma once

#include "core/types.h"
#include "expr/step.h"

namespace torchpairwise::cpu {

struct Operand {
  const void* data = nullptr;
  Index size[2] = {0, 0};    // features and values: rows, features; vectors: length, 1
  Index stride[2] = {0, 0};  // in elements
};

enum class ConsumerId : std::uint8_t { kSum, kMean, kLogSumExp, kMatmul, kSoftmaxMatmul, kMin, kMax, kTopk };

// Tile sizes of a call (plan/plan.h).
struct Tiles {
  Index block_rows = 0;       // rows whose state is kept while the columns stream by
  Index tile_columns = 0;     // columns packed at a time
  Index workspace_bytes = 0;  // of one thread
};

struct Problem {
  const Step* steps = nullptr;
  int n_steps = 0;
  const MaskStep* mask_steps = nullptr;
  int n_mask_steps = 0;
  bool masks_transposed = false;
  bool fast = false;  // plain expansion of distances allowed
  int depth = 1;
  const double* constants = nullptr;
  Operand operands[kMaxSlots];
  const void* centres[kMaxSteps] = {};  // per source step in Gram form: [D] of the compute type
  Index n_rows = 0, n_columns = 0;
  ConsumerId consumer = ConsumerId::kSum;
  Operand values;  // [M, C]
  Index k = 0;
  bool largest = false;
  Tiles tiles;
};

// A result or gradient of one batch entry; strides in elements.
struct Result {
  void* data = nullptr;
  Index stride[2] = {0, 0};
};

// What replay reads and writes besides the problem. Absent gradients have a null pointer.
struct Replay {
  Operand gradient;            // of the result: [N] or [N, C]
  Operand gradient_logsumexp;  // [N], of the second result of softmax_matmul; may be absent
  Operand saved;               // logsumexp [N] (logsumexp, softmax_matmul) or count [N] (mean)
  Operand output;              // [N, C] of softmax_matmul
  Result rows[kMaxSlots];      // gradients of row-side uses: features [N, D], vectors [N]
  Result columns[kMaxSlots];   // gradients of column-side uses
  Result values;               // [M, C]
  double* scalars = nullptr;   // [kMaxSlots], added to
};

}  // namespace torchpairwise::cpu
