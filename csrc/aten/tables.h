// Tables in tensor operations; the same rules as expr/tables.h.
#pragma once

#include "aten/operands.h"

namespace torchpairwise::aten {

// The entries that the pairs of a tile look up, [*batch, r, c]; -1 where a pair looks up none.
Tensor table_index(const Call& call, const Aligned& aligned, const Step& step);

}  // namespace torchpairwise::aten
