// Backward: every tile is evaluated again and differentiated by autograd, starting from the consumer's cotangent.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "aten/aten.h"
#include "aten/masks.h"
#include "aten/pairs.h"
#include "aten/selections.h"
#include "aten/softmax.h"
#include "aten/tiles.h"
#include "aten/transforms.h"

namespace torchpairwise::aten {
namespace {

bool all_finite(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return !x.defined() || x.isfinite().all().item<bool>(); });
}

class Replay {
 public:
  Replay(const Operands& operands, const std::vector<Tensor>& given, const std::vector<Tensor>& saved, Gradients& gradients)
      : operands_(operands), call_(operands.call()), results_(operands), given_(given), saved_(saved), gradients_(gradients) {
    const bool products = call_.values.defined() && !call_.program->mask_steps().empty();
    finite_ = !products || all_finite({call_.values, given_[0]});
  }

  void run() {
    const TensorTile plan = plan_replay(operands_);
    const int logsumexp = is(call_, kDenseInfo) ? -1 : consumer_entry(call_).logsumexp;
    const bool totals = logsumexp >= 0 && needs_totals(saved_[logsumexp]);
    for_each_row_tile(operands_, plan, operands_.n_rows(), [&](const Tile& rows) {
      if (totals) total_ = total_of(rows, plan.columns, logsumexp);
      for_each_column_tile(rows, plan.columns, [&](const Tile& tile) {
        const Coverage coverage = coverage_of(operands_, tile);
        if (coverage != Coverage::kEmpty) replay_tile(tile, coverage);
      });
    });
  }

 private:
  // sum_j exp(s_ij - logsumexp_i)
  Tensor total_of(const Tile& rows, Index columns, int n_logsumexp) const {
    const Tensor logsumexp = results_.part(saved_[n_logsumexp], n_logsumexp, rows);
    const Tensor remainder = results_.part(saved_[n_logsumexp + 1], n_logsumexp + 1, rows);
    Tensor total = at::zeros(logsumexp.sizes(), logsumexp.options().dtype(at::kDouble));
    for_each_column_tile(rows, columns, [&](const Tile& tile) {
      const Coverage coverage = coverage_of(operands_, tile);
      if (coverage == Coverage::kEmpty) return;
      const Aligned aligned = operands_.align(tile);
      const Tensor keep = coverage == Coverage::kFull ? Tensor() : keep_of(operands_, aligned);
      const ScoreTile scores(call_, evaluate(call_, aligned, keep, {}), keep);
      total.add_(softmax_weights(scores, logsumexp, remainder, Tensor()).sum(-1));
    });
    return total.masked_fill_(total.eq(0), 1).to(logsumexp.scalar_type());
  }

  // A mask selects the gradient of left-out pairs to 0; where one of their derivatives is infinite the sums are NaN all the same. Such a
  // tile is evaluated again with every left-out pair replaced by a harmless one.
  void replay_tile(const Tile& tile, Coverage coverage) {
    const std::vector<Tensor> found = differentiate(tile, coverage, Guard::kNone, true);
    if (coverage == Coverage::kFull || all_finite(found)) {
      gradients_.add(tile, found);
      return;
    }
    const TensorTile plan = plan_pairs(operands_, tile.n_columns, true);
    Index n_batches = 1;
    for (const Index length : tile.batch.length) n_batches *= length;
    const Index rows = std::max<Index>(1, plan.rows * plan.batches / n_batches);
    Tile part = tile;
    const Tensor total = total_;
    for (part.row = tile.row; part.row < tile.row + tile.n_rows; part.row += rows) {
      part.n_rows = std::min(rows, tile.row + tile.n_rows - part.row);
      if (total.defined()) total_ = total.narrow(-1, part.row - tile.row, part.n_rows);
      gradients_.add(part, differentiate(part, coverage, Guard::kPairs, false));
    }
    total_ = total;
  }

  // Gradients of the needed operands of a tile; those of the values are added on the way if `with_values`.
  std::vector<Tensor> differentiate(const Tile& tile, Coverage coverage, Guard guard, bool with_values) {
    Aligned aligned = operands_.align(tile);
    const Tensor keep = coverage == Coverage::kFull ? Tensor() : keep_of(operands_, aligned);
    const at::AutoGradMode recording(true);
    const std::vector<Tensor> leaves = gradients_.make_leaves(aligned);
    const Tensor scores = evaluate(call_, aligned, keep, {leaves.empty() ? Order::kNone : Order::kFirst, guard});
    const Tensor cotangent = cotangent_of(tile, scores.detach(), keep, with_values);
    std::vector<Tensor> out(leaves.size());
    if (scores.requires_grad()) out = torch::autograd::grad({scores}, leaves, {cotangent}, std::nullopt, false, true);
    return out;
  }

  Tensor cotangent_of(const Tile& tile, const Tensor& scores, const Tensor& keep, bool with_values) {
    const at::NoGradGuard no_gradients;
    ScoreTile x(call_, scores, keep);
    x.finite = finite_;
    const ResultGradients given{results_.parts(given_, tile), results_.parts(saved_, tile), total_};
    x.values = operands_.values_of(tile);
    Cotangent out = is(call_, kDenseInfo) ? Cotangent{given.gradients[0], Tensor()} : consumer_entry(call_).cotangent(x, given);
    if (with_values && gradients_.needs_values() && given.gradients[0].defined())
      gradients_.add_values(tile, masked_product(out.weights.mT(), given.gradients[0], keep.defined() ? keep.mT() : keep, finite_));
    if (keep.defined()) out.scores = at::where(keep, out.scores, number_like(0, out.scores));
    return out.scores.expand(at::infer_size(out.scores.sizes(), scores.sizes())).sum_to_size(scores.sizes());
  }

  const Operands& operands_;
  const Call& call_;
  Results results_;
  const std::vector<Tensor>&given_, &saved_;
  Gradients& gradients_;
  bool finite_;
  Tensor total_;  // of the rows that are being replayed: ResultGradients::total
};

// Gradients of min, max, topk and diagonal belong to listed pairs.
bool replay_listed(const Operands& operands, const std::vector<Tensor>& given, const std::vector<Tensor>& saved, Gradients& gradients) {
  const Call& call = operands.call();
  if (is(call, kDiagonalInfo)) {
    replay_pairs(operands, given[0].unsqueeze(-1), diagonal_columns(operands, 0, given[0].size(-1)), gradients);
    return true;
  }
  if (!is_selection(call)) return false;
  const bool single = Selection(call).single;
  replay_pairs(operands, single ? given[0].unsqueeze(-1) : given[0], single ? saved[1].unsqueeze(-1) : saved[1], gradients);
  return true;
}

}  // namespace

std::vector<Tensor> replay(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved,
                           const std::vector<bool>& needs) {
  const RecordingGuard recording;
  const at::NoGradGuard no_gradients;
  const Operands operands(call);
  Gradients out(operands, needs);
  const bool any = std::any_of(gradients.begin(), gradients.end(), [](const Tensor& x) { return x.defined(); });
  if (any && !replay_listed(operands, gradients, saved, out)) Replay(operands, gradients, saved, out).run();
  return out.take();
}

}  // namespace torchpairwise::aten
