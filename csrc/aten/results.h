// Results of a consumer: their shapes, and the parts of them that belong to a tile.
#pragma once

#include "aten/operands.h"

namespace torchpairwise::aten {

class Results {
 public:
  explicit Results(const Operands& operands);

  std::size_t size() const { return words_.size(); }
  std::vector<Tensor> allocate() const;
  // The part of result n (or of its gradient) of a tile, [*batch, r, ...]; undefined stays undefined.
  Tensor part(const Tensor& result, std::size_t n, const Tile& tile) const;
  std::vector<Tensor> parts(const std::vector<Tensor>& results, const Tile& tile) const;

 private:
  const Operands& operands_;
  std::vector<std::string> words_;  // ConsumerInfo::results
};

}  // namespace torchpairwise::aten
