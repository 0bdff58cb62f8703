// Gradients of the operands and values, collected from tiles.
#pragma once

#include "aten/operands.h"

namespace torchpairwise::aten {

class Gradients {
 public:
  // `needs` has one entry for each operand and then one for the values, where the call has them.
  Gradients(const Operands& operands, const std::vector<bool>& needs);

  bool needs(int slot) const { return needs_[slot]; }
  bool needs_values() const { return values_.defined(); }
  // The uses of operands that need a gradient.
  const std::vector<Use>& uses() const { return uses_; }

  // Replaces the needed operands by tensors of their own that record; the list of them is in the order of uses().
  std::vector<Tensor> make_leaves(Aligned& aligned) const;
  // Adds gradients of such leaves (undefined: none).
  void add(const Tile& tile, const std::vector<Tensor>& gradients);
  // The same for gathered pairs: column operands were read at `j` [*batch, r, k].
  void add_pairs(const Tile& tile, const Tensor& j, const std::vector<Tensor>& gradients);
  void add_values(const Tile& tile, const Tensor& gradient);

  // The needed ones, in the shape and dtype of what they belong to.
  std::vector<Tensor> take();

 private:
  const Operands& operands_;
  std::vector<bool> needs_;
  std::vector<Use> uses_;
  // Sums over tiles are kept in float64: by slot in the shape of the operand, and the same memory with all batch dimensions.
  std::vector<Tensor> buffers_, lifted_;
  Tensor values_, lifted_values_;
};

}  // namespace torchpairwise::aten
