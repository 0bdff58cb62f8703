#include "aten/gradients.h"

#include <ATen/ATen.h>

#include <optional>

namespace torchpairwise::aten {
namespace {

Tensor zeros_in_double(const Tensor& like) { return at::zeros(like.sizes(), like.options().dtype(at::kDouble)); }

}  // namespace

Gradients::Gradients(const Operands& operands, const std::vector<bool>& needs) : operands_(operands), needs_(needs) {
  const Call& call = operands.call();
  buffers_.resize(call.operands.size());
  lifted_.resize(call.operands.size());
  for (const Use& use : operands.uses()) {
    if (!needs[use.slot] || !call.operands[use.slot].is_floating_point()) continue;
    uses_.push_back(use);
    if (buffers_[use.slot].defined()) continue;
    buffers_[use.slot] = zeros_in_double(call.operands[use.slot]);
    lifted_[use.slot] = operands.lift(buffers_[use.slot], use.role);
  }
  if (!call.values.defined() || !needs.back()) return;
  values_ = zeros_in_double(call.values);
  lifted_values_ = operands.lift(values_, 2);
}

std::vector<Tensor> Gradients::make_leaves(Aligned& aligned) const {
  std::vector<Tensor> leaves;
  for (const Use& use : uses_) {
    Tensor& x = aligned.of(side_of(use.role))[use.slot];
    x = x.detach().requires_grad_();
    leaves.push_back(x);
  }
  return leaves;
}

void Gradients::add(const Tile& tile, const std::vector<Tensor>& gradients) {
  for (std::size_t n = 0; n < uses_.size(); ++n)
    if (gradients[n].defined()) operands_.aligned(lifted_[uses_[n].slot], uses_[n].role, tile).add_(gradients[n]);
}

void Gradients::add_pairs(const Tile& tile, const Tensor& j, const std::vector<Tensor>& gradients) {
  for (std::size_t n = 0; n < uses_.size(); ++n) {
    if (!gradients[n].defined()) continue;
    Tensor target = lifted_[uses_[n].slot];
    if (side_of(uses_[n].role) != Side::kColumns) {
      operands_.aligned(target, uses_[n].role, tile).add_(gradients[n]);
      continue;
    }
    target = operands_.narrow_batch(target, tile.batch);
    c10::List<std::optional<Tensor>> indices;
    for (const Tensor& index : operands_.pair_indices(target, j)) indices.push_back(index);
    target.index_put_(indices, gradients[n].to(at::kDouble), /*accumulate=*/true);
  }
}

void Gradients::add_values(const Tile& tile, const Tensor& gradient) {
  Tensor target = operands_.narrow_batch(lifted_values_, tile.batch).narrow(-2, tile.column, tile.n_columns);
  target.add_(gradient.sum_to_size(target.sizes()));
}

std::vector<Tensor> Gradients::take() {
  const Call& call = operands_.call();
  std::vector<Tensor> out;
  for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
    if (!needs_[slot]) continue;
    const Tensor& like = call.operands[slot];
    out.push_back(buffers_[slot].defined() ? buffers_[slot].to(like.scalar_type()) : at::zeros(like.sizes(), like.options()));
    buffers_[slot] = lifted_[slot] = Tensor();
  }
  if (values_.defined()) out.push_back(values_.to(call.values.scalar_type()));
  return out;
}

}  // namespace torchpairwise::aten
