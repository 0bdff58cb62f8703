// Forward: a range of rows keeps its consumer state while tiles of columns stream by.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>

#include "aten/aten.h"
#include "aten/consumers.h"
#include "aten/evaluate.h"
#include "aten/masks.h"
#include "aten/pairs.h"
#include "aten/results.h"
#include "aten/selections.h"
#include "aten/tiles.h"

namespace torchpairwise::aten {
namespace {

class Sweep {
 public:
  explicit Sweep(const Operands& operands) : operands_(operands), call_(operands.call()) {
    finite_ = !call_.values.defined() || call_.program->mask_steps().empty() || call_.values.isfinite().all().item<bool>();
  }

  ScoreTile evaluate_tile(const Tile& tile, Coverage coverage) const {
    const Aligned aligned = operands_.align(tile);
    const Tensor keep = coverage == Coverage::kFull ? Tensor() : keep_of(operands_, aligned);
    ScoreTile out(call_, evaluate(call_, aligned, keep, {}), keep);
    out.values = operands_.values_of(tile);
    out.finite = finite_;
    out.first_column = tile.column;
    return out;
  }

  // The state of the rows of a tile after all its columns.
  State reduce(const Tile& rows, Index columns) const {
    const ConsumerEntry& entry = consumer_entry(call_);
    State state;
    for_each_column_tile(rows, columns, [&](const Tile& tile) {
      const Coverage coverage = coverage_of(operands_, tile);
      State part;
      if (coverage != Coverage::kEmpty)
        part = entry.reduce(evaluate_tile(tile, coverage));
      else if (is_selection(call_))
        part = entry.reduce(left_out(tile));
      else
        return;
      state = state.empty() ? part : entry.merge(state, part, call_);
    });
    return state.empty() ? entry.neutral(rows_of(rows)) : state;
  }

  Rows rows_of(const Tile& tile) const {
    std::vector<Index> sizes = tile.batch.length;
    sizes.push_back(tile.n_rows);
    return {call_, sizes, operands_.options()};
  }

 private:
  // A tile all of whose pairs are left out: selections still rank them.
  ScoreTile left_out(const Tile& tile) const {
    std::vector<Index> sizes(tile.batch.length.size(), 1);
    sizes.insert(sizes.end(), {tile.n_rows, tile.n_columns});
    ScoreTile out(call_, at::full(sizes, Selection(call_).worst, operands_.options()), Tensor());
    out.first_column = tile.column;
    return out;
  }

  const Operands& operands_;
  const Call& call_;
  bool finite_;
};

void forward_dense(const Operands& operands, const Results& results, const std::vector<Tensor>& out) {
  const Sweep sweep(operands);
  const TensorTile plan = plan_forward(operands);
  for_each_row_tile(operands, plan, operands.n_rows(), [&](const Tile& rows) {
    for_each_column_tile(rows, plan.columns, [&](const Tile& tile) {
      const Coverage coverage = coverage_of(operands, tile);
      Tensor target = results.part(out[0], 0, tile);
      if (coverage == Coverage::kEmpty)
        target.fill_(operands.call().fill);
      else
        target.copy_(sweep.evaluate_tile(tile, coverage).filled(operands.call().fill));
    });
  });
}

void forward_reduction(const Operands& operands, const Results& results, const std::vector<Tensor>& out) {
  const Sweep sweep(operands);
  const ConsumerEntry& entry = consumer_entry(operands.call());
  const TensorTile plan = plan_forward(operands);
  for_each_row_tile(operands, plan, operands.n_rows(), [&](const Tile& rows) {
    const std::vector<Tensor> finished = entry.finish(sweep.reduce(rows, plan.columns), sweep.rows_of(rows));
    for (std::size_t n = 0; n < out.size(); ++n) results.part(out[n], n, rows).copy_(finished[n]);
  });
}

}  // namespace

std::vector<Tensor> forward(const Call& call) {
  const at::NoGradGuard no_gradients;
  const Operands operands(call);
  const Results results(operands);
  std::vector<Tensor> out = results.allocate();
  if (std::all_of(out.begin(), out.end(), [](const Tensor& x) { return x.numel() == 0; })) return out;
  if (is(call, kDiagonalInfo))
    forward_diagonal(operands, results, out[0]);
  else if (is(call, kDenseInfo))
    forward_dense(operands, results, out);
  else
    forward_reduction(operands, results, out);
  return out;
}

std::string describe_plan(const Call& call) {
  const Operands operands(call);
  const TensorTile plan = is(call, kDiagonalInfo) ? plan_pairs(operands, 1, false) : plan_forward(operands);
  std::ostringstream text;
  text << "\"tile\": [" << plan.rows << ", " << plan.columns << "], \"workspace_bytes\": " << plan.workspace_bytes;
  return text.str();
}

}  // namespace torchpairwise::aten
