// Forward of the native CPU path. Tasks are (batch entry, block of rows); with few rows, (.., part of the columns), merged in order.
#include <sstream>

#include "core/counter.h"
#include "ops/cpu_prepared.h"
#include "plan/why_not.h"

namespace torchpairwise::ops {
namespace {

template <class T>
std::vector<Tensor> allocate_results(Prepared<T>& prepared) {
  const Call& call = prepared.call();
  const at::TensorOptions options = call.operands[0].options();
  const plan::Shape& shape = prepared.shape();
  std::vector<Tensor> out;
  for (const ResultInfo& result : results_of(*call.consumer)) {
    std::vector<std::int64_t> sizes = prepared.batch().vec();
    for (const char letter : result.sizes) sizes.push_back(letter == 'N' ? shape.n_rows : (letter == 'C' ? shape.n_values : call.k));
    out.push_back(at::empty(sizes, result.is_index ? options.dtype(at::kLong) : options));
  }
  return out;
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
    cpu::Result out[kMaxResults];
    for (std::size_t k = 0; k < targets.size(); ++k) out[k] = targets[k].result(n / n_blocks);
    kernels.finish(problem, begin, rows, state, out);
  };
  const auto sweep = [&](Index n, Index split, void* state, void* scratch) {
    const Problem& problem = problems[n / n_blocks];
    const Index begin = n % n_blocks * block, end = std::min(begin + block, problem.n_rows);
    kernels.init(problem, end - begin, state);
    evaluated_pairs() += kernels.sweep(problem, begin, end, std::min(split * part, problem.n_columns),
                                       std::min((split + 1) * part, problem.n_columns), state, scratch);
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

// dense: blocks of rows, or of columns where rows are few.
template <class T>
std::vector<Tensor> forward_dense(const Call& call) {
  Prepared<T> prepared(call);
  std::vector<std::int64_t> sizes = prepared.batch().vec();
  const Problem& shared = prepared.problem();
  sizes.insert(sizes.end(), {shared.n_rows, shared.n_columns});
  const Tensor out = at::empty(sizes, call.operands[0].options());
  if (out.numel() == 0) return {out};
  plan_forward(prepared);
  const Batched target(out, prepared.batch(), 2);
  std::vector<Problem> problems;
  for (Index n = 0; n < prepared.n_batches(); ++n) problems.push_back(prepared.entry(n));
  const cpu::Kernels& kernels = prepared.kernels();
  const Index block = shared.tiles.block_rows, n_blocks = plan::divide_up(shared.n_rows, block);
  const Index splits = n_blocks * prepared.n_batches() >= at::get_num_threads() ? 1 : at::get_num_threads();
  const Index part = plan::round_up(plan::divide_up(shared.n_columns, splits), shared.tiles.tile_columns);
  run_tasks(n_blocks * prepared.n_batches() * splits, out.numel() > plan::kPairsPerTask, kernels.sweep_workspace(problems[0]),
            [&](Index n, void* workspace) {
              const Index entry = n / splits / n_blocks, begin = n / splits % n_blocks * block, column = n % splits * part;
              evaluated_pairs() +=
                  kernels.write_scores(problems[entry], begin, std::min(begin + block, shared.n_rows), std::min(column, shared.n_columns),
                                       std::min(column + part, shared.n_columns), target.result(entry), call.fill, workspace);
            });
  return {out};
}

bool is_dense(const Call& call) { return std::string(call.consumer->name) == kDenseInfo.name; }

}  // namespace

std::vector<std::string> cpu_why_not(const Call& call) {
  std::vector<std::string> reasons = plan::why_not_program(*call.program);
  const auto refuse = [&](bool when, const std::string& reason) {
    if (when) reasons.push_back(reason);
  };
  const Tensor& first = call.operands[0];
  refuse(!first.device().is_cpu(), "the inputs are on " + first.device().str() + ", not on the CPU");
  refuse(first.scalar_type() != at::kFloat && first.scalar_type() != at::kDouble, "the native kernels take float32 and float64");
  refuse(cpu::kernels<float>().find_consumer(call.consumer->name) < 0 && !is_dense(call),
         std::string(call.consumer->name) + " is not a streamed reduction");
  return reasons;
}

std::vector<Tensor> cpu_forward(const Call& call) {
  return by_dtype(call, [&]<class T>() { return is_dense(call) ? forward_dense<T>(call) : forward<T>(call); });
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
