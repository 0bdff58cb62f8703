// Backward of the native CPU path: which thread replays which pairs, and where the gradients go.
#include "core/counter.h"
#include "ops/cpu_prepared.h"

namespace torchpairwise::ops {
namespace {

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
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      gradients_[n] = bind(gradients[n]);
      saved_[n] = bind(saved[n]);
    }
    if (call.consumer->takes_values && !gradients[0].defined())
      gradients_[0] = bind(at::zeros({}, saved[0].options()).expand(saved[0].sizes()));
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
    return prepared_.kernels().replay_workspace(problem, replay_of(0, nullptr, nullptr));
  }

 private:
  void allocate_gradients() {
    buffers_.resize(call_.operands.size());
    for (const Use& use : call_.program->uses()) {
      GradientBuffers& buffer = buffers_[use.slot];
      if (!needs_[use.slot] || !call_.operands[use.slot].is_floating_point()) continue;
      buffer.wanted = true;
      if (use.role == Role::kScalar || use.role == Role::kTable) continue;
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

  // `scalars` and `tables` are the sums of one task; tables follow each other in the order of their slots.
  cpu::Replay replay_of(Index n, double* scalars, double* tables) {
    cpu::Replay replay;
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
      if (!is_table(slot)) continue;
      replay.tables[slot] = tables;
      if (tables != nullptr) tables += call_.operands[slot].size(-1);
    }
    for (int result = 0; result < kMaxResults; ++result) {
      replay.gradients[result] = gradients_[result].operand(n);
      replay.saved[result] = saved_[result].operand(n);
    }
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
      if (buffers_[slot].rows.defined()) replay.rows[slot] = buffers_[slot].batched_rows.result(n);
      if (buffers_[slot].columns.defined()) replay.columns[slot] = buffers_[slot].batched_columns.result(n);
    }
    if (values_.defined()) replay.values = batched_values_.result(n);
    replay.scalars = scalars;
    return replay;
  }

  bool is_table(std::size_t slot) const { return buffers_[slot].wanted && prepared_.role(slot) == Role::kTable; }
  Index table_entries() const {
    Index total = 0;
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot)
      if (is_table(slot)) total += call_.operands[slot].size(-1);
    return total;
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
    // A row chunk has one task at a time, so that its tasks share their sums of tables.
    const Index n_entries = table_entries();
    tables_ = at::zeros({n_batches, n_chunks, n_entries}, call_.operands[0].options().dtype(at::kDouble));
    const auto task = [&](Index entry, Index i, Index j, void* scratch) {
      const Index row = i * rows, column = j * columns;
      if (row >= shared.n_rows || column >= shared.n_columns) return;
      double* totals = scalars.data() + ((entry * n_chunks + i) * n_chunks + j) * kMaxSlots;
      double* tables = tables_.data_ptr<double>() + (entry * n_chunks + i) * n_entries;
      evaluated_pairs() +=
          prepared_.kernels().replay(problems[entry], replay_of(entry, totals, tables), row, std::min(row + rows, shared.n_rows), column,
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

  // The gradient of a table: the sums of the row chunks, [*batch, T] in the order of the batch, without the dimensions that it repeats.
  Tensor table_gradient(std::size_t slot, Index& place) const {
    const Tensor& table = call_.operands[slot];
    std::vector<std::int64_t> sizes = prepared_.batch().vec();
    sizes.push_back(table.size(-1));
    if (!tables_.defined()) return at::zeros(table.sizes(), table.options());
    const Tensor sums = tables_.narrow(-1, place, table.size(-1)).sum(1);
    place += table.size(-1);
    return sums.view(sizes).sum_to_size(table.sizes()).to(table.scalar_type());
  }

  std::vector<Tensor> collect() {
    std::vector<Tensor> out;
    Index place = 0;
    for (std::size_t slot = 0; slot < buffers_.size(); ++slot) {
      if (!needs_[slot]) continue;
      const GradientBuffers& buffer = buffers_[slot];
      if (is_table(slot)) {
        out.push_back(table_gradient(slot, place));
        continue;
      }
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
  Batched batched_values_, gradients_[kMaxResults], saved_[kMaxResults];
  std::vector<double> scalar_totals_;
  Tensor tables_;  // [n_batches, row chunks, entries]
};

// V without columns: what is left is the gradient of softmax_matmul's second result, the logsumexp.
std::vector<Tensor> replay_without_columns(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved,
                                           const std::vector<bool>& needs) {
  std::vector<Tensor> out;
  const bool has_gradient = gradients.size() > 1 && gradients[1].defined();
  if (has_gradient) {
    Call reduced = call;
    reduced.consumer = &kLogSumExpInfo;
    reduced.values = Tensor();
    out = cpu_replay(reduced, {gradients[1], Tensor()}, {saved[1], saved[2]}, std::vector<bool>(needs.begin(), needs.end() - 1));
  } else {
    for (std::size_t slot = 0; slot < call.operands.size(); ++slot)
      if (needs[slot]) out.push_back(at::zeros(call.operands[slot].sizes(), call.operands[slot].options()));
  }
  if (needs.back()) out.push_back(at::zeros(call.values.sizes(), call.values.options()));
  return out;
}

}  // namespace

std::vector<Tensor> cpu_replay(const Call& call, const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved,
                               const std::vector<bool>& needs) {
  if (call.values.defined() && call.values.size(-1) == 0) return replay_without_columns(call, gradients, saved, needs);
  return by_dtype(call, [&]<class T>() { return Backward<T>(call, gradients, saved, needs).run(); });
}

}  // namespace torchpairwise::ops
