#include "ops/cpu.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <functional>
#include <map>
#include <sstream>

#include "cpu/kernels.h"
#include "plan/plan.h"
#include "plan/why_not.h"
#include "source/list.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;
using cpu::Problem;

// Dimensions of a tensor that belong to one batch entry.
int core_dimensions(Role role) {
  switch (role) {
    case Role::kRowFeatures:
    case Role::kColumnFeatures:
      return 2;
    case Role::kScalar:
      return 0;
    default:
      return 1;
  }
}

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

int consumer_index(const Call& call) {
  const std::string name = call.consumer->name;
  static const char* const kNames[] = {"sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max", "topk"};
  for (int n = 0; n < 8; ++n)
    if (name == kNames[n]) return n;
  return -1;
}

std::int64_t product_of(at::IntArrayRef sizes) {
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
    problem_.mask_steps = program.mask_steps().data();
    problem_.n_mask_steps = static_cast<int>(program.mask_steps().size());
    problem_.masks_transposed = program.masks_transposed();
    problem_.fast = program.choices().fast;
    problem_.depth = program.depth();
    problem_.constants = call.constants.data();
    problem_.consumer = static_cast<cpu::ConsumerId>(consumer_index(call));
    problem_.k = call.k;
    problem_.largest = call.largest;
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

  // Tile sizes are set before entry() is called.
  void set_tiles(Index block_rows, Index tile_columns) {
    problem_.tiles.block_rows = block_rows;
    problem_.tiles.tile_columns = tile_columns;
  }

 private:
  void find_roles(const Program& program) {
    roles_.resize(call_.operands.size(), Role::kScalar);
    for (const Use& use : program.uses()) {
      roles_[use.slot] = use.role;
      if (use.role == Role::kRowFeatures) {
        problem_.n_rows = call_.operands[use.slot].size(-2);
        shape_.n_features += call_.operands[use.slot].size(-1);
      }
      if (use.role == Role::kColumnFeatures) problem_.n_columns = call_.operands[use.slot].size(-2);
    }
  }

  void find_batch() {
    for (std::size_t slot = 0; slot < call_.operands.size(); ++slot) extend_batch(call_.operands[slot], core_dimensions(roles_[slot]));
    if (call_.values.defined()) extend_batch(call_.values, 2);
  }
  void extend_batch(const Tensor& tensor, int n_core) {
    batch_ = at::infer_size(batch_, tensor.sizes().slice(0, tensor.dim() - n_core));
  }

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
void run_tasks(Index n_tasks, bool parallel, Index workspace_bytes, const std::function<void(Index, void*)>& task) {
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

Tensor new_result(const Call& call, at::IntArrayRef batch, std::vector<std::int64_t> core, at::ScalarType dtype) {
  std::vector<std::int64_t> sizes(batch.begin(), batch.end());
  sizes.insert(sizes.end(), core.begin(), core.end());
  return at::empty(sizes, call.operands[0].options().dtype(dtype));
}

template <class T>
std::vector<Tensor> allocate_results(Prepared<T>& prepared) {
  const Call& call = prepared.call();
  const at::ScalarType dtype = call.operands[0].scalar_type();
  const Index n = prepared.problem().n_rows;
  const auto rows = [&](at::ScalarType type) { return new_result(call, prepared.batch(), {n}, type); };
  switch (prepared.problem().consumer) {
    case cpu::ConsumerId::kSum:
    case cpu::ConsumerId::kLogSumExp:
      return {rows(dtype)};
    case cpu::ConsumerId::kMean:
      return {rows(dtype), rows(dtype)};
    case cpu::ConsumerId::kMin:
    case cpu::ConsumerId::kMax:
      return {rows(dtype), rows(at::kLong)};
    case cpu::ConsumerId::kMatmul:
      return {new_result(call, prepared.batch(), {n, call.values.size(-1)}, dtype)};
    case cpu::ConsumerId::kSoftmaxMatmul:
      return {new_result(call, prepared.batch(), {n, call.values.size(-1)}, dtype), rows(dtype)};
    case cpu::ConsumerId::kTopk:
      return {new_result(call, prepared.batch(), {n, call.k}, dtype), new_result(call, prepared.batch(), {n, call.k}, at::kLong)};
  }
  return {};
}

template <class T>
void plan_forward(Prepared<T>& prepared) {
  const plan::Shape& shape = prepared.shape();
  prepared.set_tiles(plan::balanced_block_rows(shape, prepared.n_batches(), at::get_num_threads()),
                     plan::tile_columns(shape, plan::kStripBytes));
}

template <class T>
std::vector<Tensor> forward(const Call& call) {
  Prepared<T> prepared(call);
  const std::vector<Tensor> results = allocate_results(prepared);
  const Problem& shared = prepared.problem();
  if (prepared.n_batches() == 0 || shared.n_rows == 0) return results;
  plan_forward(prepared);
  std::vector<Batched> targets;
  for (const Tensor& result : results)
    targets.emplace_back(result, prepared.batch(), static_cast<int>(result.dim() - prepared.batch().size()));
  std::vector<Problem> problems;
  for (Index n = 0; n < prepared.n_batches(); ++n) problems.push_back(prepared.entry(n));

  const cpu::Kernels& kernels = prepared.kernels();
  const Index block = shared.tiles.block_rows, n_blocks = plan::divide_up(shared.n_rows, block);
  const Index splits = plan::column_splits(prepared.shape(), prepared.n_batches());
  const Index part = plan::round_up(plan::divide_up(std::max<Index>(1, shared.n_columns), splits), shared.tiles.tile_columns);
  const Index state_bytes = plan::round_up(prepared.shape().state_bytes * block, 64);
  const Index workspace = kernels.sweep_workspace(problems[0]);
  const Index n_blocks_total = n_blocks * prepared.n_batches();
  const bool parallel = shared.n_rows * shared.n_columns * prepared.n_batches() > plan::kPairsPerTask;

  const auto finish = [&](Index n, const void* state) {
    const Problem& problem = problems[n / n_blocks];
    const Index begin = n % n_blocks * block, rows = std::min(block, problem.n_rows - begin);
    cpu::Result out[2];
    for (std::size_t k = 0; k < targets.size(); ++k) out[k] = targets[k].result(n / n_blocks);
    kernels.finish(problem, begin, rows, state, out);
  };
  const auto sweep = [&](Index n, Index split, void* state, void* scratch) {
    const Problem& problem = problems[n / n_blocks];
    const Index begin = n % n_blocks * block, end = std::min(begin + block, problem.n_rows);
    kernels.init(problem, end - begin, state);
    kernels.sweep(problem, begin, end, std::min(split * part, problem.n_columns), std::min((split + 1) * part, problem.n_columns), state,
                  scratch);
  };
  if (splits == 1) {
    run_tasks(n_blocks_total, parallel, workspace + state_bytes, [&](Index n, void* memory) {
      void* scratch = static_cast<char*>(memory) + state_bytes;
      sweep(n, 0, memory, scratch);
      finish(n, memory);
    });
    return results;
  }
  const Tensor states = at::empty({n_blocks_total * splits * state_bytes}, at::kByte);
  const auto state = [&](Index n, Index split) { return static_cast<char*>(states.data_ptr()) + (n * splits + split) * state_bytes; };
  run_tasks(n_blocks_total * splits, parallel, workspace,
            [&](Index n, void* scratch) { sweep(n / splits, n % splits, state(n / splits, n % splits), scratch); });
  for (Index n = 0; n < n_blocks_total; ++n) {
    const Problem& problem = problems[n / n_blocks];
    for (Index split = 1; split < splits; ++split)
      kernels.merge(problem, std::min(block, problem.n_rows - n % n_blocks * block), state(n, 0), state(n, split));
    finish(n, state(n, 0));
  }
  return results;
}

// Gradient buffers of one operand: one for its uses by rows and one for those by columns, which different threads write.
struct GradientBuffers {
  Tensor rows, columns;
  Batched batched_rows, batched_columns;
  bool wanted = false;
};

template <class T>
class Backward {
 public:
  Backward(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved, const std::vector<bool>& needs)
      : call_(call), prepared_(call), needs_(needs) {
    allocate_gradients();
    const auto core = [&](const Tensor& x) { return static_cast<int>(x.dim() - prepared_.batch().size()); };
    const auto bind = [&](const Tensor& x) { return x.defined() ? Batched(x, prepared_.batch(), core(x)) : Batched(); };
    Tensor gradient = gradients[0];
    if (!gradient.defined()) gradient = at::zeros({}, saved[0].options()).expand(saved[0].sizes());
    gradient_ = bind(gradient);
    switch (prepared_.problem().consumer) {
      case cpu::ConsumerId::kSoftmaxMatmul:
        output_ = bind(saved[0]);
        saved_ = bind(saved[1]);
        if (gradients.size() > 1) gradient_logsumexp_ = bind(gradients[1]);
        break;
      case cpu::ConsumerId::kMean:
        saved_ = bind(saved[1]);
        break;
      default:
        saved_ = bind(saved[0]);
    }
  }

  std::vector<Tensor> run() {
    const Problem& shared = prepared_.problem();
    if (prepared_.n_batches() > 0 && shared.n_rows > 0 && shared.n_columns > 0) evaluate();
    return collect();
  }

  // Sets the tile sizes and returns the scratch memory of a thread.
  Index plan_tiles() {
    const plan::Shape& shape = prepared_.shape();
    const Index strip = plan::kReplayColumns * shape.tile_rows * shape.item_bytes;
    prepared_.set_tiles(std::min<Index>(plan::kReplayBlockRows, std::max<Index>(1, shape.n_rows)), plan::tile_columns(shape, strip));
    const Problem problem = prepared_.entry(0);
    return prepared_.kernels().replay_workspace(problem, replay_of(0, nullptr));
  }

 private:
  void allocate_gradients() {
    buffers_.resize(call_.operands.size());
    for (const Use& use : call_.program->uses()) {
      GradientBuffers& buffer = buffers_[use.slot];
      if (!needs_[use.slot] || !call_.operands[use.slot].is_floating_point()) continue;
      buffer.wanted = true;
      if (use.role == Role::kScalar) continue;
      const bool row = use.role == Role::kRowFeatures || use.role == Role::kRowVector;
      Tensor& target = row ? buffer.rows : buffer.columns;
      if (target.defined()) continue;
      target = at::zeros(call_.operands[use.slot].sizes(), call_.operands[use.slot].options());
      (row ? buffer.batched_rows : buffer.batched_columns) = Batched(target, prepared_.batch(), core_dimensions(use.role));
    }
    if (!call_.values.defined() || !needs_.back()) return;
    values_ = at::zeros(call_.values.sizes(), call_.values.options());
    batched_values_ = Batched(values_, prepared_.batch(), 2);
  }

  cpu::Replay replay_of(Index n, double* scalars) {
    cpu::Replay replay;
    replay.gradient = gradient_.operand(n);
    replay.gradient_logsumexp = gradient_logsumexp_.operand(n);
    replay.saved = saved_.operand(n);
    replay.output = output_.operand(n);
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
      if (buffers_[slot].rows.defined()) replay.rows[slot] = buffers_[slot].batched_rows.result(n);
      if (buffers_[slot].columns.defined()) replay.columns[slot] = buffers_[slot].batched_columns.result(n);
    }
    if (values_.defined()) replay.values = batched_values_.result(n);
    replay.scalars = scalars;
    return replay;
  }

  bool shares_gradients() const {
    bool shares = batched_values_.is_broadcast();
    for (const GradientBuffers& buffer : buffers_) shares |= buffer.batched_rows.is_broadcast() || buffer.batched_columns.is_broadcast();
    return shares;
  }

  // Batch entries go to the threads whole if they own their gradients; otherwise each entry is cut into chunks of rows and of columns, and
  // in phase p the task of row chunk i takes the column chunk (i + p) mod n: no two tasks of a phase share a row or a column.
  void evaluate() {
    const Index workspace = plan_tiles(), n_batches = prepared_.n_batches();
    std::vector<Problem> problems;
    for (Index n = 0; n < n_batches; ++n) problems.push_back(prepared_.entry(n));
    const Problem& shared = prepared_.problem();
    const int n_threads = at::get_num_threads();
    const bool whole = n_threads == 1 || (n_batches >= n_threads && !shares_gradients());
    const Index n_chunks = whole ? 1 : plan::replay_chunks(prepared_.shape(), n_threads);
    const Index rows = plan::round_up(plan::divide_up(shared.n_rows, n_chunks), prepared_.shape().tile_rows);
    const Index columns = plan::round_up(plan::divide_up(shared.n_columns, n_chunks), prepared_.shape().tile_columns);
    std::vector<double> scalars(n_batches * n_chunks * n_chunks * kMaxSlots, 0.0);
    const auto task = [&](Index entry, Index i, Index j, void* scratch) {
      const Index row = i * rows, column = j * columns;
      if (row >= shared.n_rows || column >= shared.n_columns) return;
      double* totals = scalars.data() + ((entry * n_chunks + i) * n_chunks + j) * kMaxSlots;
      prepared_.kernels().replay(problems[entry], replay_of(entry, totals), row, std::min(row + rows, shared.n_rows), column,
                                 std::min(column + columns, shared.n_columns), scratch);
    };
    if (whole) {
      const bool parallel = n_batches * shared.n_rows * shared.n_columns > plan::kPairsPerTask && !shares_gradients();
      run_tasks(n_batches, parallel, workspace, [&](Index n, void* scratch) { task(n, 0, 0, scratch); });
    } else {
      for (Index entry = 0; entry < n_batches; ++entry)
        for (Index phase = 0; phase < n_chunks; ++phase)
          run_tasks(n_chunks, true, workspace, [&](Index i, void* scratch) { task(entry, i, (i + phase) % n_chunks, scratch); });
    }
    scalar_totals_.assign(kMaxSlots, 0.0);
    for (std::size_t n = 0; n < scalars.size(); ++n) scalar_totals_[n % kMaxSlots] += scalars[n];
  }

  std::vector<Tensor> collect() {
    std::vector<Tensor> out;
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
      if (!needs_[slot]) continue;
      const GradientBuffers& buffer = buffers_[slot];
      Tensor gradient = buffer.rows.defined() ? buffer.rows : buffer.columns;
      if (buffer.rows.defined() && buffer.columns.defined()) gradient.add_(buffer.columns);
      if (!gradient.defined()) {
        const double total = scalar_totals_.empty() ? 0.0 : scalar_totals_[slot];
        gradient = at::full(call_.operands[slot].sizes(), total, call_.operands[slot].options());
      }
      out.push_back(gradient);
    }
    if (values_.defined()) out.push_back(values_);
    return out;
  }

  const Call& call_;
  Prepared<T> prepared_;
  const std::vector<bool>& needs_;
  std::vector<GradientBuffers> buffers_;
  Tensor values_;
  Batched batched_values_, gradient_, gradient_logsumexp_, saved_, output_;
  std::vector<double> scalar_totals_;
};

template <class F>
auto by_dtype(const Call& call, F&& f) {
  return call.operands[0].scalar_type() == at::kDouble ? f.template operator()<double>() : f.template operator()<float>();
}

// V without columns: what is left is the gradient of softmax_matmul's second result, the logsumexp.
std::vector<Tensor> replay_without_columns(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved,
                                           const std::vector<bool>& needs) {
  std::vector<Tensor> out;
  const bool has_gradient = gradients.size() > 1 && gradients[1].defined();
  if (has_gradient) {
    Call reduced = call;
    reduced.consumer = &kLogSumExpInfo;
    reduced.values = Tensor();
    out = cpu_replay(reduced, {gradients[1]}, {saved[1]}, std::vector<bool>(needs.begin(), needs.end() - 1));
  } else {
    for (std::size_t slot = 0; slot < call.operands.size(); ++slot)
      if (needs[slot]) out.push_back(at::zeros(call.operands[slot].sizes(), call.operands[slot].options()));
  }
  if (needs.back()) out.push_back(at::zeros(call.values.sizes(), call.values.options()));
  return out;
}

}  // namespace

std::vector<std::string> cpu_why_not(const Call& call) {
  std::vector<std::string> reasons = plan::why_not_program(*call.program);
  const auto refuse = [&](bool when, const std::string& reason) {
    if (when) reasons.push_back(reason);
  };
  const Tensor& first = call.operands[0];
  refuse(!first.device().is_cpu(), "the inputs are on " + first.device().str() + ", not on the CPU");
  refuse(first.scalar_type() != at::kFloat && first.scalar_type() != at::kDouble, "the native kernels take float32 and float64");
  refuse(consumer_index(call) < 0, std::string(call.consumer->name) + " is not a streamed reduction");
  return reasons;
}

std::vector<Tensor> cpu_forward(const Call& call) {
  return by_dtype(call, [&]<class T>() { return forward<T>(call); });
}

std::vector<Tensor> cpu_replay(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved,
                               const std::vector<bool>& needs) {
  if (call.values.defined() && call.values.size(-1) == 0) return replay_without_columns(call, gradients, saved, needs);
  return by_dtype(call, [&]<class T>() { return Backward<T>(call, gradients, saved, needs).run(); });
}

std::string cpu_describe_plan(const Call& call) {
  return by_dtype(call, [&]<class T>() {
    Prepared<T> prepared(call);
    plan_forward(prepared);
    const Problem& problem = prepared.problem();
    const bool empty = prepared.n_batches() == 0;
    const Index workspace = empty ? 0 : prepared.kernels().sweep_workspace(prepared.entry(0));
    const Index state = prepared.shape().state_bytes * problem.tiles.block_rows;
    std::ostringstream out;
    out << "\"instruction_set\": \"" << prepared.kernels().instruction_set << "\", \"tile\": [" << problem.tiles.block_rows << ", "
        << problem.tiles.tile_columns << "], \"strip\": [" << prepared.kernels().tile_rows << ", " << problem.tiles.tile_columns
        << "], \"workspace_bytes\": " << (workspace + state) * at::get_num_threads();
    return out.str();
  });
}

}  // namespace torchpairwise::ops
