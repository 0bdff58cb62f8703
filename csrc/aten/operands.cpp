#include "aten/operands.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index.h>

#include <algorithm>
#include <optional>

namespace torchpairwise::aten {
namespace {

// Dimensions of an operand after the batch dimensions.
int n_core_of(Role role) {
  if (role == Role::kRowFeatures || role == Role::kColumnFeatures || role == Role::kPairIndices) return 2;
  return role == Role::kScalar ? 0 : 1;
}

bool is_features(Role role) { return role == Role::kRowFeatures || role == Role::kColumnFeatures; }

Tensor range_of(const Tensor& x, std::int64_t dim, Index start, Index length) {
  return start == 0 && length == x.size(dim) ? x : x.narrow(dim, start, length);
}

}  // namespace

Side side_of(Role role) {
  switch (role) {
    case Role::kRowFeatures:
    case Role::kRowVector:
    case Role::kRowFlags:
    case Role::kRowLabels:
      return Side::kRows;
    case Role::kScalar:
    case Role::kTable:
    case Role::kPairIndices:
    case Role::kParameter:
      return Side::kNone;
    default:
      return Side::kColumns;
  }
}

Operands::Operands(const Call& call) : call_(call) {
  for (const Use& use : call.program->uses()) {
    const auto same = [&](const Use& other) { return other.slot == use.slot && side_of(other.role) == side_of(use.role); };
    if (std::none_of(uses_.begin(), uses_.end(), same)) uses_.push_back(use);
    const Tensor& x = call.operands[use.slot];
    if (use.role == Role::kRowFeatures || use.role == Role::kPairIndices) n_rows_ = x.size(-2);
    if (use.role == Role::kColumnFeatures) n_columns_ = x.size(-2);
    if (use.role == Role::kColumnLabels || use.role == Role::kPairIndices) n_columns_ = x.size(-1);
    if (use.role == Role::kRowLabels) n_rows_ = x.size(-1);
    if (is_features(use.role)) n_features_ = std::max(n_features_, x.size(-1));
    if (use.role != Role::kParameter) extend_batch(x.sizes().slice(0, x.dim() - n_core_of(use.role)));
  }
  if (call.values.defined()) extend_batch(call.values.sizes().slice(0, call.values.dim() - 2));
  lifted_ = call.operands;
  for (const Use& use : uses_) lifted_[use.slot] = lift(call.operands[use.slot], use.role);
  if (call.values.defined()) values_ = lift(call.values, 2);
}

void Operands::extend_batch(at::IntArrayRef sizes) { batch_ = at::infer_size(batch_, sizes); }

Index Operands::n_batches() const {
  Index n = 1;
  for (const Index size : batch_) n *= size;
  return n;
}

at::TensorOptions Operands::options() const {
  for (const Use& use : uses_)
    if (is_features(use.role) || use.role == Role::kTable) return call_.operands[use.slot].options();
  return call_.operands[0].options();
}

Tensor Operands::lift(const Tensor& tensor, int n_core) const {
  Tensor out = tensor;
  while (out.dim() < static_cast<std::int64_t>(batch_.size()) + n_core) out = out.unsqueeze(0);
  return out;
}

Tensor Operands::lift(const Tensor& tensor, Role role) const { return role == Role::kParameter ? tensor : lift(tensor, n_core_of(role)); }

Tensor Operands::narrow_batch(const Tensor& lifted, const Box& box) const {
  Tensor out = lifted;
  for (std::size_t d = 0; d < box.start.size(); ++d)
    if (out.size(d) != 1) out = range_of(out, d, box.start[d], box.length[d]);
  return out;
}

Tensor Operands::values_of(const Tile& tile) const {
  return values_.defined() ? range_of(narrow_batch(values_, tile.batch), -2, tile.column, tile.n_columns) : Tensor();
}

Tensor Operands::aligned(const Tensor& lifted, Role role, const Tile& tile) const {
  if (role == Role::kParameter) return lifted;
  const Tensor x = narrow_batch(lifted, tile.batch);
  const int n_core = n_core_of(role);
  if (n_core == 0) return x.unsqueeze(-1).unsqueeze(-1);
  if (role == Role::kTable) return x;
  if (role == Role::kPairIndices) return range_of(range_of(x, -2, tile.row, tile.n_rows), -1, tile.column, tile.n_columns);
  if (side_of(role) == Side::kRows) return range_of(x, x.dim() - n_core, tile.row, tile.n_rows).unsqueeze(-n_core);
  return range_of(x, x.dim() - n_core, tile.column, tile.n_columns).unsqueeze(-n_core - 1);
}

Aligned Operands::align(const Tile& tile) const {
  Aligned out;
  out.rows.resize(lifted_.size());
  out.columns.resize(lifted_.size());
  out.others.resize(lifted_.size());
  for (const Use& use : uses_) out.of(side_of(use.role))[use.slot] = aligned(lifted_[use.slot], use.role, tile);
  const at::TensorOptions numbers = options().dtype(at::kLong);
  out.n_rows = n_rows_;
  out.n_columns = n_columns_;
  out.i = at::arange(tile.row, tile.row + tile.n_rows, numbers).unsqueeze(-1);
  out.j = at::arange(tile.column, tile.column + tile.n_columns, numbers).unsqueeze(0);
  return out;
}

std::vector<Tensor> Operands::pair_indices(const Tensor& narrowed, const Tensor& j) const {
  std::vector<Tensor> out;
  const auto n_batch = static_cast<std::int64_t>(batch_.size());
  for (std::int64_t d = 0; d < n_batch; ++d) {
    std::vector<Index> shape(j.dim(), 1);
    shape[d] = narrowed.size(d);
    out.push_back(at::arange(narrowed.size(d), j.options()).view(shape));
  }
  out.push_back(j);
  return out;
}

Aligned Operands::align_pairs(const Tile& tile, const Tensor& j) const {
  Aligned out;
  out.rows.resize(lifted_.size());
  out.columns.resize(lifted_.size());
  out.others.resize(lifted_.size());
  for (const Use& use : uses_) {
    const Side side = side_of(use.role);
    if (use.role == Role::kPairIndices) {
      const Tensor x = range_of(narrow_batch(lifted_[use.slot], tile.batch), -2, tile.row, tile.n_rows);
      std::vector<Index> sizes = at::infer_size(x.sizes().slice(0, x.dim() - 1), j.sizes().slice(0, j.dim() - 1));
      const auto with = [&](Index last) {
        std::vector<Index> all = sizes;
        all.push_back(last);
        return all;
      };
      out.others[use.slot] = x.expand(with(x.size(-1))).gather(-1, j.expand(with(j.size(-1))));
      continue;
    }
    if (side != Side::kColumns) {
      out.of(side)[use.slot] = aligned(lifted_[use.slot], use.role, tile);
      continue;
    }
    const Tensor x = narrow_batch(lifted_[use.slot], tile.batch);
    c10::List<std::optional<Tensor>> indices;
    for (const Tensor& index : pair_indices(x, j)) indices.push_back(index);
    out.columns[use.slot] = at::index(x, indices);
  }
  out.n_rows = n_rows_;
  out.n_columns = n_columns_;
  out.i = at::arange(tile.row, tile.row + tile.n_rows, j.options()).unsqueeze(-1);
  out.j = j;
  return out;
}

Tile Operands::whole() const {
  Tile tile;
  tile.batch.start.assign(batch_.size(), 0);
  tile.batch.length = batch_;
  tile.n_rows = n_rows_;
  tile.n_columns = n_columns_;
  return tile;
}

}  // namespace torchpairwise::aten
