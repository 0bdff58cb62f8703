// Two-sided sweeps of the native CPU path: which thread takes which pairs, and where the states go.
//
// Rows and columns are cut into chunks. A task evaluates a chunk of rows against a chunk of columns into states of its own and merges these
// into the states of the whole; no two tasks of a phase share a chunk, and phases follow each other, so that every state is merged in one
// order, whatever thread does it.
#include <numeric>
#include <sstream>

#include "core/counter.h"
#include "expr/list.h"
#include "ops/cpu_prepared.h"
#include "ops/sweep.h"

namespace torchpairwise::ops {
namespace {

struct ChunkPair {
  Index row, column;
};
using Phase = std::vector<ChunkPair>;

// All pairs of n chunks with n chunks: in phase p chunk i of the rows meets chunk (i + p) mod n of the columns.
std::vector<Phase> all_pairs(Index n) {
  std::vector<Phase> phases(n);
  for (Index p = 0; p < n; ++p)
    for (Index i = 0; i < n; ++i) phases[p].push_back({i, (i + p) % n});
  return phases;
}

// Every unordered pair of n chunks once, as the rounds of a tournament (n is even), and then each chunk with itself.
std::vector<Phase> half_of_pairs(Index n) {
  std::vector<Phase> phases;
  for (Index round = 0; round + 1 < n; ++round) {
    Phase phase;
    for (Index k = 0; k < n / 2; ++k) {
      const Index a = k == 0 ? n - 1 : (round + k) % (n - 1), b = (round + n - 1 - k) % (n - 1);
      phase.push_back({std::min(a, b), std::max(a, b)});
    }
    phases.push_back(phase);
  }
  Phase diagonal;
  for (Index i = 0; i < n; ++i) diagonal.push_back({i, i});
  phases.push_back(diagonal);
  return phases;
}

// A consumer of the sweep, with its results and the states of all its rows (or columns).
struct Item {
  const Call* call;
  bool over_rows;  // dim -2: states of columns
  Batched values;
  std::vector<Tensor> results;
  std::vector<Batched> targets;
  Index n_states = 0, state_bytes = 0;
  Tensor states;
  Problem problem;  // of the current batch entry

  char* state(Index n) const { return static_cast<char*>(states.data_ptr()) + n * state_bytes; }
};

template <class T>
class Sweep {
 public:
  // `calls` are in the orientation of the matrix, not transposed. `mirrored`: one consumer of the rows of a symmetric matrix.
  Sweep(const std::vector<Call>& calls, const std::vector<std::int64_t>& dims, bool mirrored)
      : prepared_(calls[0]), kernels_(prepared_.kernels()), mirrored_(mirrored) {
    for (std::size_t n = 0; n < calls.size(); ++n) extend_batch(calls[n]);
    for (std::size_t n = 0; n < calls.size(); ++n) add(calls[n], dims[n] == -2);
    const plan::Shape& shape = prepared_.shape();
    prepared_.set_tiles(std::max<Index>(1, shape.n_rows), std::min(plan::tile_columns(shape, plan::kStripBytes), plan::kSidesColumns));
    n_chunks_ = mirrored ? plan::kMirrorChunks : plan::replay_chunks(shape, at::get_num_threads());
    const Index whole = std::lcm<Index>(shape.tile_rows, shape.tile_columns);
    const auto chunk = [&](Index size) {
      return plan::round_up(plan::divide_up(std::max<Index>(1, size), n_chunks_), mirrored ? 1 : whole);
    };
    chunk_rows_ = chunk(shape.n_rows);
    chunk_columns_ = mirrored ? chunk_rows_ : chunk(shape.n_columns);
  }

  std::vector<Tensor> run() {
    const Problem& shared = prepared_.problem();
    const std::vector<Phase> phases = mirrored_ ? half_of_pairs(n_chunks_) : all_pairs(n_chunks_);
    for (Index entry = 0; entry < n_batches(); ++entry) {
      const Problem problem = prepared_.entry(entry);
      for (Item& item : items_) begin(item, problem, entry);
      const Index workspace = local_bytes() + kernels_.sides_workspace(problem, sides_of(nullptr, true));
      if (shared.n_rows > 0 && shared.n_columns > 0)
        for (const Phase& phase : phases)
          run_tasks(static_cast<Index>(phase.size()), shared.n_rows * shared.n_columns > plan::kPairsPerTask, workspace,
                    [&](Index n, void* memory) { task(problem, phase[n], static_cast<char*>(memory)); });
      for (Item& item : items_) finish(item, entry);
    }
    std::vector<Tensor> out;
    for (const Item& item : items_) out.insert(out.end(), item.results.begin(), item.results.end());
    return out;
  }

  // JSON fields for explain().
  std::string describe() {
    for (Item& item : items_) item.problem = problem_of(prepared_.problem(), item);
    const Problem& problem = prepared_.problem();
    Index bytes = local_bytes();
    if (n_batches() > 0) bytes += kernels_.sides_workspace(prepared_.entry(0), sides_of(nullptr, true));
    bytes *= at::get_num_threads();
    for (const Item& item : items_) bytes += item.n_states * item.state_bytes;
    std::ostringstream out;
    out << "\"instruction_set\": \"" << kernels_.instruction_set << "\", \"tile\": [" << chunk_rows_ << ", " << problem.tiles.tile_columns
        << "], \"strip\": [" << kernels_.tile_rows << ", " << problem.tiles.tile_columns << "], \"workspace_bytes\": " << bytes;
    return out.str();
  }

 private:
  Index n_batches() const { return product_of(batch_); }

  void extend_batch(const Call& call) {
    Prepared<T> one(call);
    batch_ = at::infer_size(batch_, one.batch());
    prepared_.widen(batch_);
  }

  void add(const Call& call, bool over_rows) {
    Item item;
    item.call = &call;
    item.over_rows = over_rows;
    const plan::Shape& shape = prepared_.shape();
    item.n_states = over_rows ? shape.n_columns : shape.n_rows;
    if (call.values.defined()) item.values = Batched(call.values, batch_, 2);
    item.problem = problem_of(prepared_.problem(), item);
    item.state_bytes = kernels_.state_bytes(item.problem);
    for (const ResultInfo& result : results_of(*call.consumer)) {
      std::vector<std::int64_t> sizes = batch_;
      const Index n_values = call.values.defined() ? call.values.size(-1) : 0;
      for (const char letter : result.sizes) sizes.push_back(letter == 'N' ? item.n_states : (letter == 'C' ? n_values : call.k));
      const at::TensorOptions options = call.operands[0].options();
      item.results.push_back(at::empty(sizes, result.is_index ? options.dtype(at::kLong) : options));
      item.targets.emplace_back(item.results.back(), batch_, static_cast<int>(sizes.size() - batch_.size()));
    }
    item.states = at::empty({item.n_states * item.state_bytes + 64}, at::kByte);
    items_.push_back(std::move(item));
  }

  Problem problem_of(const Problem& matrix, const Item& item) const {
    Problem problem = matrix;
    const Call& call = *item.call;
    problem.consumer = kernels_.find_consumer(call.consumer->name);
    problem.k = call.k;
    problem.largest = call.largest;
    problem.low = call.low;
    problem.high = call.high;
    problem.values = cpu::Operand();
    problem.values.size[1] = call.values.defined() ? call.values.size(-1) : 0;
    return problem;
  }

  void begin(Item& item, const Problem& problem, Index entry) {
    item.problem = problem_of(problem, item);
    if (item.values.defined()) item.problem.values = item.values.operand(entry);
    kernels_.init(item.problem, item.n_states, item.state(0));
  }

  void finish(Item& item, Index entry) {
    cpu::Result out[kMaxResults];
    for (std::size_t k = 0; k < item.targets.size(); ++k) out[k] = item.targets[k].result(entry);
    const Index chunk = item.over_rows ? chunk_columns_ : chunk_rows_;
    run_tasks(plan::divide_up(item.n_states, chunk), item.n_states > chunk, 0, [&](Index n, void*) {
      const Index begin = n * chunk;
      kernels_.finish(item.problem, begin, std::min(chunk, item.n_states - begin), item.state(begin), out);
    });
  }

  // Bytes of a task's own states.
  Index local_bytes() const {
    Index bytes = 0;
    for (const Item& item : items_) bytes += plan::round_up((item.over_rows ? chunk_columns_ : chunk_rows_) * item.state_bytes, 64);
    return mirrored_ ? 2 * bytes : bytes;
  }

  // The sides of a task whose states lie at `memory`; a mirrored matrix feeds its consumer from both, or on the diagonal from one.
  cpu::Sides sides_of(char* memory, bool both) const {
    cpu::Sides sides;
    const auto add_side = [&](const Item& item, bool over_rows) {
      cpu::Side& side = over_rows ? sides.columns[sides.n_columns++] : sides.rows[sides.n_rows++];
      side = {item.problem.consumer, item.problem.values, item.problem.k, item.problem.largest,
              item.problem.low,      item.problem.high,   memory};
      if (memory != nullptr) memory += plan::round_up((over_rows ? chunk_columns_ : chunk_rows_) * item.state_bytes, 64);
    };
    for (const Item& item : items_) add_side(item, item.over_rows);
    if (mirrored_ && both) add_side(items_[0], true);
    return sides;
  }

  void task(const Problem& problem, const ChunkPair& pair, char* memory) {
    const Index row = pair.row * chunk_rows_, column = pair.column * chunk_columns_;
    const Index row_end = std::min(row + chunk_rows_, problem.n_rows), column_end = std::min(column + chunk_columns_, problem.n_columns);
    if (row >= row_end || column >= column_end) return;
    const bool both = mirrored_ && pair.row != pair.column;
    const cpu::Sides sides = sides_of(memory, both);
    const auto each = [&](auto&& visit) {
      int rows = 0, columns = 0;
      for (Item& item : items_) {
        const cpu::Side& side = item.over_rows ? sides.columns[columns++] : sides.rows[rows++];
        visit(item, static_cast<char*>(side.states), item.over_rows ? column : row, item.over_rows ? column_end : row_end);
      }
      if (both) visit(items_[0], static_cast<char*>(sides.columns[0].states), column, column_end);
    };
    each([&](Item& item, char* states, Index begin, Index end) { kernels_.init(item.problem, end - begin, states); });
    evaluated_pairs() += kernels_.sweep_sides(problem, sides, row, row_end, column, column_end, memory + local_bytes());
    each([&](Item& item, char* states, Index begin, Index end) { kernels_.merge(item.problem, end - begin, item.state(begin), states); });
  }

  Prepared<T> prepared_;
  const cpu::Kernels& kernels_;
  bool mirrored_;
  std::vector<std::int64_t> batch_;
  std::vector<Item> items_;
  Index n_chunks_ = 1, chunk_rows_ = 1, chunk_columns_ = 1;
};

// A step that treats rows and columns alike.
bool is_even(const Step& step, const Call& call) {
  if (step.kind == StepKind::kJoin) return true;
  if (step.kind == StepKind::kSource) {
    bool symmetric = false;
    SourceList::visit(step.id, [&]<class Source>() { symmetric = Source::kInfo.symmetric; });
    return symmetric && step.slot[0] == step.slot[1];
  }
  if (step.kind == StepKind::kTable) {
    const bool is_diagonal = step.constant[1] >= 0 && call.constants[step.constant[0]] == 0 && call.constants[step.constant[1]] == 0;
    return is_diagonal && step.slot[2] >= 0 && call.operands[step.slot[1]].is_alias_of(call.operands[step.slot[2]]);
  }
  if (step.kind != StepKind::kNode) return false;
  char letter = 0;
  NodeList::visit(step.id, [&]<class Node>() { letter = Node::kInfo.signature[0]; });
  return letter != 'r' && letter != 'c';
}

bool is_even(const MaskStep& step, const Call& call) {
  if (step.kind != MaskKind::kRule) return true;
  bool even = false;
  MaskList::visit(step.id, [&]<class Rule>() {
    const std::string name = Rule::kInfo.name;
    even = name == "off_diagonal" || name == "dilated" || (name == "same_group" && step.slot[0] == step.slot[1]) ||
           (name == "band" && call.constants[step.constant[0]] == call.constants[step.constant[1]]);
  });
  return even;
}

}  // namespace

std::vector<Tensor> cpu_sweep(const std::vector<Call>& calls, const std::vector<std::int64_t>& dims) {
  return by_dtype(calls[0], [&]<class T>() { return Sweep<T>(calls, dims, false).run(); });
}

std::vector<Tensor> cpu_mirrored(const Call& call) {
  return by_dtype(call, [&]<class T>() { return Sweep<T>({call}, {-1}, true).run(); });
}

std::string cpu_describe_mirrored(const Call& call) {
  return by_dtype(call, [&]<class T>() { return Sweep<T>({call}, {-1}, true).describe(); });
}

bool mirror_pays(const Call& call) {
  const bool selects = std::strstr(call.consumer->arguments, "int k") != nullptr;
  if (selects || !is_symmetric(call)) return false;
  Index n_rows = 0, n_features = 0;
  for (const Use& use : call.program->uses()) {
    if (use.role != Role::kRowFeatures) continue;
    n_rows = call.operands[use.slot].size(-2);
    n_features += call.operands[use.slot].size(-1);
  }
  return plan::mirror_pays(n_rows, n_features);
}

bool is_symmetric(const Call& call) {
  const auto even = [&](const auto& step) { return is_even(step, call); };
  const Program& program = *call.program;
  return std::all_of(program.steps().begin(), program.steps().end(), even) &&
         std::all_of(program.mask_steps().begin(), program.mask_steps().end(), even);
}

}  // namespace torchpairwise::ops
