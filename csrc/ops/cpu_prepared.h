// A call prepared for the kernels: roles, batch, pointers of an entry; and the loop that hands tasks to torch's threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <functional>
#include <map>

#include "cpu/kernels.h"
#include "ops/cpu.h"
#include "ops/validate.h"
#include "plan/plan.h"
#include "source/list.h"

namespace torchpairwise::ops {

using at::Tensor;
using cpu::Problem;

// A tensor seen as a batch of matrices, vectors or numbers; broadcast batch dimensions have stride 0.
class Batched {
 public:
  Batched() = default;
  Batched(const Tensor& tensor, at::IntArrayRef batch, int n_core) {
    std::vector<std::int64_t> sizes(batch.begin(), batch.end());
    for (int d = n_core; d > 0; --d) sizes.push_back(tensor.size(-d));
    tensor_ = tensor.expand(sizes);
    n_core_ = n_core;
  }

  bool defined() const { return tensor_.defined(); }

  void* data(Index entry) const {
    Index offset = 0;
    for (std::int64_t d = tensor_.dim() - n_core_ - 1; d >= 0; --d) {
      offset += entry % tensor_.size(d) * tensor_.stride(d);
      entry /= tensor_.size(d);
    }
    return static_cast<char*>(tensor_.data_ptr()) + offset * tensor_.element_size();
  }

  cpu::Operand operand(Index entry) const {
    cpu::Operand out;
    if (!defined()) return out;
    out.data = data(entry);
    for (int d = 0; d < n_core_; ++d) {
      out.size[d] = tensor_.size(tensor_.dim() - n_core_ + d);
      out.stride[d] = tensor_.stride(tensor_.dim() - n_core_ + d);
    }
    return out;
  }

  cpu::Result result(Index entry) const {
    const cpu::Operand x = operand(entry);
    return {const_cast<void*>(x.data), {x.stride[0], x.stride[1]}};
  }

  // True if two batch entries share memory.
  bool is_broadcast() const {
    for (std::int64_t d = 0; defined() && d + n_core_ < tensor_.dim(); ++d)
      if (tensor_.size(d) > 1 && tensor_.stride(d) == 0) return true;
    return false;
  }

 private:
  Tensor tensor_;
  int n_core_ = 0;
};

inline std::int64_t product_of(at::IntArrayRef sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

// The call as the kernels see it, without the pointers of a batch entry.
template <class T>
class Prepared {
 public:
  explicit Prepared(const Call& call) : call_(call), kernels_(cpu::kernels<T>()) {
    const Program& program = *call.program;
    find_roles(program);
    find_batch();
    problem_.steps = program.steps().data();
    problem_.n_steps = static_cast<int>(program.steps().size());
    problem_.n_masks = static_cast<int>(program.masks().size());
    for (int n = 0; n < problem_.n_masks; ++n) problem_.masks[n] = {program.masks()[n].data(), static_cast<int>(program.masks()[n].size())};
    problem_.masks_transposed = program.masks_transposed();
    problem_.fast = program.choices().fast;
    problem_.depth = program.depth();
    problem_.constants = call.constants.data();
    problem_.consumer = kernels_.find_consumer(call.consumer->name);
    problem_.k = call.k;
    problem_.largest = call.largest;
    problem_.low = call.low;
    problem_.high = call.high;
    for (std::size_t slot = 0; slot < call.operands.size(); ++slot)
      operands_.emplace_back(call.operands[slot], batch_, core_dimensions(roles_[slot]));
    if (call.values.defined()) values_ = Batched(call.values, batch_, 2);
    problem_.values.size[1] = call.values.defined() ? call.values.size(-1) : 0;
    shape_.n_rows = problem_.n_rows;
    shape_.n_columns = problem_.n_columns;
    shape_.n_values = problem_.values.size[1];
    shape_.item_bytes = sizeof(T);
    shape_.tile_rows = kernels_.tile_rows;
    shape_.tile_columns = kernels_.tile_columns;
    shape_.state_bytes = kernels_.state_bytes(problem_);
  }

  // The problem of one batch entry.
  Problem entry(Index n) {
    Problem problem = problem_;
    for (std::size_t slot = 0; slot < operands_.size(); ++slot) problem.operands[slot] = operands_[slot].operand(n);
    problem.values = values_.operand(n);
    for (int step = 0; step < problem.n_steps; ++step)
      if (is_gram(problem.steps[step])) problem.centres[step] = centre(problem.operands[problem.steps[step].slot[1]]);
    return problem;
  }

  Problem& problem() { return problem_; }
  const Call& call() const { return call_; }
  const plan::Shape& shape() const { return shape_; }
  const cpu::Kernels& kernels() const { return kernels_; }
  at::IntArrayRef batch() const { return batch_; }
  Index n_batches() const { return product_of(batch_); }
  Role role(std::size_t slot) const { return roles_[slot]; }

  // More batch dimensions, of tensors that are not the call's.
  void widen(at::IntArrayRef batch) {
    batch_ = at::infer_size(batch_, batch);
    for (std::size_t slot = 0; slot < operands_.size(); ++slot)
      operands_[slot] = Batched(call_.operands[slot], batch_, core_dimensions(roles_[slot]));
  }

  // Tile sizes are set before entry() is called.
  void set_tiles(Index block_rows, Index tile_columns) {
    problem_.tiles.block_rows = block_rows;
    problem_.tiles.tile_columns = tile_columns;
  }

 private:
  void find_roles(const Program& program) {
    roles_.resize(call_.operands.size(), Role::kScalar);
    for (const Use& use : program.uses()) {
      const Tensor& operand = call_.operands[use.slot];
      roles_[use.slot] = use.role;
      if (use.role == Role::kRowFeatures) shape_.n_features += operand.size(-1);
      if (use.role == Role::kRowFeatures || use.role == Role::kPairIndices) problem_.n_rows = operand.size(-2);
      if (use.role == Role::kRowLabels) problem_.n_rows = operand.size(-1);
      if (use.role == Role::kColumnFeatures) problem_.n_columns = operand.size(-2);
      if (use.role == Role::kColumnLabels || use.role == Role::kPairIndices) problem_.n_columns = operand.size(-1);
    }
  }

  void find_batch() {
    for (std::size_t slot = 0; slot < call_.operands.size(); ++slot) extend_batch(call_.operands[slot], core_dimensions(roles_[slot]));
    if (call_.values.defined()) extend_batch(call_.values, 2);
  }
  void extend_batch(const Tensor& tensor, int n_core) { batch_ = at::infer_size(batch_, tensor.sizes().slice(0, tensor.dim() - n_core)); }

  bool is_gram(const Step& step) const {
    if (step.kind != StepKind::kSource) return false;
    Form form = Form::kProduct;
    SourceList::visit(step.id, [&]<class Source>() { form = Source::kInfo.form; });
    const Index n_features = call_.operands[step.slot[0]].size(-1);
    return form == Form::kGramOrDifference && n_features > 0 && (problem_.fast || n_features > plan::kDifferenceFeatures);
  }

  const void* centre(const cpu::Operand& features) {
    auto [found, added] = centres_.try_emplace(features.data);
    if (added) {
      found->second.resize(features.size[1]);
      kernels_.centre(features, found->second.data());
    }
    return found->second.data();
  }

  const Call& call_;
  const cpu::Kernels& kernels_;
  Problem problem_;
  plan::Shape shape_;
  std::vector<Role> roles_;
  std::vector<std::int64_t> batch_;
  std::vector<Batched> operands_;
  Batched values_;
  std::map<const void*, std::vector<T>> centres_;
};

// Runs `task(n, workspace)` for n < n_tasks. Threads take the next task when they are free; tasks write to places of their own, so the
// result does not depend on who takes which.
inline void run_tasks(Index n_tasks, bool parallel, Index workspace_bytes, const std::function<void(Index, void*)>& task) {
  std::atomic<Index> next{0};
  const auto work = [&](std::int64_t, std::int64_t) {
    const Tensor workspace = at::empty({workspace_bytes + 64}, at::kByte);
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data_ptr());
    void* aligned = reinterpret_cast<void*>((address + 63) / 64 * 64);
    for (Index n; (n = next.fetch_add(1)) < n_tasks;) task(n, aligned);
  };
  const Index n_workers = std::min<Index>(at::get_num_threads(), n_tasks);
  if (!parallel || n_workers <= 1)
    work(0, 1);
  else
    at::parallel_for(0, n_workers, 1, work);
}

template <class F>
auto by_dtype(const Call& call, F&& f) {
  return call.operands[0].scalar_type() == at::kDouble ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace torchpairwise::ops
