// Sources in tensor operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchpairwise::aten {

using at::Tensor;

// How far the scores will be differentiated.
enum class Order {
  kNone,   // not at all
  kFirst,  // once, tile by tile, with the exact derivatives and no more memory than the tile
  kAny,    // any number of times: recorded operations, of which no tensor has more than one entry a pair (manhattan under torch.func: D)
};

struct SourceSettings {
  Order order = Order::kNone;
  bool fast = false;  // plain expansion of squared distances
};

// Scores [*batch, r, c] of aligned features: x [*batch, r, 1, D] and y [*batch, 1, c, D], or pairs that broadcast to [*batch, r, c, D].
// `id` counts in SourceList.
Tensor apply_source(int id, const Tensor& x, const Tensor& y, const SourceSettings& settings);

// True if every row meets every column, so that products may be taken.
inline bool all_pairs(const Tensor& x, const Tensor& y) { return x.size(-2) == 1 && y.size(-3) == 1; }

// a [*batch, r, n] @ b [*batch, n, c]; a side without batch entries of its own is not repeated.
Tensor product(const Tensor& a, const Tensor& b);

}  // namespace torchpairwise::aten
