// Pair masks in tensor operations; the same rules as expr/masks.h.
#pragma once

#include "aten/operands.h"
#include "expr/masks.h"

namespace torchpairwise::aten {

// True where mask n of the program keeps a pair, in a shape that broadcasts against the scores; undefined if the mask has no steps.
Tensor keep_of(const Call& call, const Aligned& aligned, int n);
// The mask that leaves pairs out.
inline Tensor keep_of(const Operands& operands, const Aligned& aligned) { return keep_of(operands.call(), aligned, 0); }

// What the masks say about a tile without looking at its pairs.
Coverage coverage_of(const Operands& operands, const Tile& tile);

}  // namespace torchpairwise::aten
