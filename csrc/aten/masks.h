// Pair masks in tensor operations; the same rules as expr/masks.h.
#pragma once

#include "aten/operands.h"
#include "expr/masks.h"

namespace torchpairwise::aten {

// True where a pair is kept, in a shape that broadcasts against the scores; undefined if the program has no mask.
Tensor keep_of(const Operands& operands, const Aligned& aligned);

// What the masks say about a tile without looking at its pairs.
Coverage coverage_of(const Operands& operands, const Tile& tile);

}  // namespace torchpairwise::aten
