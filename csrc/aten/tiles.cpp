#include "aten/tiles.h"

#include <algorithm>

#include "aten/consumers.h"
#include "aten/selections.h"

namespace torchpairwise::aten {
namespace {

Index item_bytes(const Operands& operands) { return static_cast<Index>(operands.options().dtype().itemsize()); }

// Numbers of D features that a pair costs: comparisons by functions, whose intermediates nobody knows, are taken to hold a few.
Index feature_tensors(const Operands& operands) {
  constexpr Index kOfFunctions = 4;
  return operands.call().program->has_custom() ? kOfFunctions * std::max<Index>(1, operands.n_features()) : 0;
}

TensorShape shape_of(const Operands& operands, Index tensors_per_pair) {
  TensorShape shape;
  shape.n_batches = operands.n_batches();
  shape.n_rows = operands.n_rows();
  shape.n_columns = operands.n_columns();
  shape.bytes_per_pair = (tensors_per_pair + feature_tensors(operands)) * item_bytes(operands);
  if (!operands.call().program->mask_steps().empty()) shape.bytes_per_pair += 2;
  shape.chunk_size = operands.call().program->choices().chunk_size;
  shape.is_cpu = operands.options().device().is_cpu();
  return shape;
}

// Bytes of a row's state while two of them are merged.
Index state_bytes(const Operands& operands) {
  constexpr Index kNumber = 8, kCopies = 3;
  const Call& call = operands.call();
  if (is_selection(call)) return kCopies * 2 * (item_bytes(operands) + kNumber) * Selection(call).k + kNumber;
  return kCopies * kNumber * ((call.values.defined() ? call.values.size(-1) : 0) + 2);
}

}  // namespace

TensorTile plan_forward(const Operands& operands) {
  constexpr Index kConsumer = 3;  // scores, filled scores, weights
  const Index selection = is_selection(operands.call()) ? 4 : 0;
  TensorShape shape = shape_of(operands, operands.call().program->depth() + kConsumer + selection);
  shape.bytes_per_row = state_bytes(operands);
  return tensor_tile(shape);
}

TensorTile plan_replay(const Operands& operands) {
  constexpr Index kConsumer = 4;  // cotangent, weights and what makes them
  TensorShape shape = shape_of(operands, 2 * static_cast<Index>(operands.call().program->steps().size()) + kConsumer);
  if (operands.call().values.defined()) shape.bytes_per_row = operands.call().values.size(-1) * item_bytes(operands);
  return tensor_tile(shape);
}

TensorTile plan_pairs(const Operands& operands, Index k, bool replay) {
  const Index steps = static_cast<Index>(operands.call().program->steps().size());
  const Index of_features = (replay ? 4 : 3) * std::max<Index>(1, operands.n_features());
  TensorShape shape = shape_of(operands, of_features + (replay ? 2 * steps : 1));
  shape.n_columns = k;
  return tensor_tile(shape);
}

Index plan_recorded_rows(const Operands& operands) {
  constexpr Index kOfConsumer = 24, kOfStep = 8;  // tensors alive at the deepest point of two derivatives, as measured
  const Index steps = static_cast<Index>(operands.call().program->steps().size());
  const TensorShape shape = shape_of(operands, kOfConsumer + kOfStep * steps);
  const Index pairs = kRecordedBytes / shape.bytes_per_pair;
  return std::max<Index>(1, pairs / std::max<Index>(1, shape.n_columns * shape.n_batches));
}

void for_each_row_tile(const Operands& operands, const TensorTile& plan, Index n_rows, const std::function<void(const Tile&)>& visit) {
  for (const Box& box : boxes(operands.batch(), plan.batches)) {
    Tile tile = operands.whole();
    tile.batch = box;
    for (tile.row = 0; tile.row < n_rows; tile.row += plan.rows) {
      tile.n_rows = std::min(plan.rows, n_rows - tile.row);
      visit(tile);
    }
  }
}

void for_each_column_tile(const Tile& tile, Index columns, const std::function<void(const Tile&)>& visit) {
  Tile part = tile;
  for (Index begin = 0; begin < tile.n_columns; begin += columns) {
    part.column = tile.column + begin;
    part.n_columns = std::min(columns, tile.n_columns - begin);
    visit(part);
  }
}

}  // namespace torchpairwise::aten
