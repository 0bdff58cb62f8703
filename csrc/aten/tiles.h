// The tiles of a call, in the order in which they are visited.
#pragma once

#include <functional>

#include "aten/operands.h"

namespace torchpairwise::aten {

// Tile sizes of a forward or backward pass, or of one over gathered pairs, k of each row (tile.columns of them at a time).
TensorTile plan_forward(const Operands& operands);
TensorTile plan_replay(const Operands& operands);
TensorTile plan_pairs(const Operands& operands, Index k, bool replay);

// Rows that a recorded evaluation against all columns, differentiated twice, takes at a time.
Index plan_recorded_rows(const Operands& operands);

// Calls `visit` for every box of batch entries and range of `plan.rows` rows; the tile has all columns.
void for_each_row_tile(const Operands& operands, const TensorTile& plan, Index n_rows, const std::function<void(const Tile&)>& visit);

// Calls `visit` for the ranges of at most `columns` columns of a tile, from left to right.
void for_each_column_tile(const Tile& tile, Index columns, const std::function<void(const Tile&)>& visit);

}  // namespace torchpairwise::aten
