// An expression on one tile of columns: packs what the tile needs once, then evaluates strips of rows, step by step.
//
// A strip is kTileRows rows x tile_columns scores: it stays in the first-level cache while sources, nodes and the consumer pass over it, so
// every step is one vector loop and steps combine freely without a template for each combination.
#pragma once

#include "core/math.h"
#include "cpu/arena.h"
#include "cpu/pack.h"
#include "cpu/score.h"
#include "expr/list.h"

namespace torchpairwise::cpu::TP_ISA {

template <class T>
struct StepMemory {
  Packed<T> columns, rows;       // sources
  T* column_argument = nullptr;  // nodes with a column vector: [width]
  DirectPair* direct = nullptr;
  Index n_direct = 0;
  T* scores = nullptr;      // [kTileRows][stride]: the step's result
  int input[2] = {-1, -1};  // steps whose scores it takes
  bool gram = false;
};

// The position of a strip.
struct StripPlace {
  Index first_row, n_rows;
  Index first_column, n_columns, width;  // width: n_columns rounded up to whole register tiles
};

template <class T>
class Expression {
 public:
  // keep_all: every step keeps its own scores (for replay); otherwise nodes overwrite their input.
  Expression(const Problem& problem, bool keep_all, Arena& arena) : problem_(problem) {
    const Index tile = problem.tiles.tile_columns;
    stride_ = tile + kLanes<T>;  // off a power of two, so that the rows of a strip do not share cache sets
    int stack[kMaxDepth], top = 0;
    T* buffers[kMaxDepth] = {};
    for (int n = 0; n < problem.n_steps; ++n) {
      const Step& step = problem.steps[n];
      StepMemory<T>& memory = steps_[n];
      if (step.kind == StepKind::kSource || step.kind == StepKind::kTable) {
        if (step.kind == StepKind::kSource) take_source(step, memory, n, tile, arena);
        stack[top++] = n;
      } else if (step.kind == StepKind::kNode) {
        memory.input[0] = stack[top - 1];
        stack[top - 1] = n;
        if (argument_letter(step) == 'c') memory.column_argument = arena.take<T>(tile);
      } else {
        memory.input[0] = stack[top - 2];
        memory.input[1] = stack[top - 1];
        stack[--top - 1] = n;
      }
      T*& buffer = buffers[top - 1];
      if (keep_all || buffer == nullptr) buffer = arena.take<T>(kTileRows * stride_);
      memory.scores = buffer;
    }
    if (keep_all) spare_ = arena.take<T>(kTileRows * stride_);
    for (int mask = 0; mask < problem.n_masks; ++mask) {
      const int depth = mask_depth(mask);
      keep_[mask] = arena.take<unsigned char>(kTileRows * stride_ * (depth > 0 ? depth : 1));
    }
  }

  Index stride() const { return stride_; }
  Index n_evaluated() const { return n_evaluated_; }  // pairs, so far
  const Problem& problem() const { return problem_; }
  StepMemory<T>& step(int n) { return steps_[n]; }
  T* result() { return steps_[problem_.n_steps - 1].scores; }
  const unsigned char* keep() const { return keep_[0]; }
  // Of the last strip evaluated: 1 where the select takes its first score.
  const unsigned char* choice(const Step& select) const { return keep_[select.id]; }
  T* spare() { return spare_; }  // one more strip, with keep_all

  void pack_columns(Index first, Index count, Index width) {
    for (int n = 0; n < problem_.n_steps; ++n) {
      const Step& step = problem_.steps[n];
      if (step.kind == StepKind::kSource)
        pack<T, kTileColumns<T>>(problem_.operands[step.slot[1]], first, count, width, centre(n), steps_[n].columns);
      else if (steps_[n].column_argument != nullptr)
        pack_vector(problem_.operands[step.slot[0]], first, count, width, steps_[n].column_argument);
    }
  }

  // Scores of the strip into result(); and every step's own if keep_all.
  void evaluate(const StripPlace& place) {
    n_evaluated_ += place.n_rows * place.n_columns;
    for (int n = 0; n < problem_.n_steps; ++n) {
      const Step& step = problem_.steps[n];
      if (step.kind == StepKind::kSource)
        SourceList::visit(step.id, [&]<class Source>() { evaluate_source<Source>(n, place); });
      else if (step.kind == StepKind::kJoin)
        JoinList::visit(step.id, [&]<class Join>() { evaluate_join<Join>(n, place); });
      else if (step.kind == StepKind::kTable)
        TableList::visit(step.id, [&]<class Table>() { evaluate_table<Table>(n, place); });
      else if (step.kind == StepKind::kSelect)
        evaluate_select(n, place);
      else
        NodeList::visit(step.id, [&]<class Node>() { evaluate_node<Node>(n, place); });
    }
  }

  // What the masks say about a block of pairs.
  Coverage classify(Index first_row, Index n_rows, Index first_column, Index n_columns) const {
    const MaskSteps& mask = problem_.masks[0];
    if (mask.n_steps == 0) return Coverage::kFull;
    Coverage stack[kMaxMaskSteps];
    int top = 0;
    for (int n = 0; n < mask.n_steps; ++n) {
      const MaskStep& step = mask.steps[n];
      if (step.kind == MaskKind::kRule) {
        const MaskArgument argument = mask_argument(step);
        MaskList::visit(step.id, [&]<class Rule>() {
          stack[top] = problem_.masks_transposed
                           ? Rule::classify(argument, first_column, first_column + n_columns, first_row, first_row + n_rows)
                           : Rule::classify(argument, first_row, first_row + n_rows, first_column, first_column + n_columns);
        });
        ++top;
      } else if (step.kind == MaskKind::kNot) {
        const Coverage x = stack[top - 1];
        stack[top - 1] = x == Coverage::kEmpty ? Coverage::kFull : (x == Coverage::kFull ? Coverage::kEmpty : Coverage::kMixed);
      } else {
        const Coverage x = stack[top - 2], y = stack[top - 1];
        const Coverage decides = step.kind == MaskKind::kAnd ? Coverage::kEmpty : Coverage::kFull;
        --top;
        stack[top - 1] = x == decides || y == decides ? decides : (x == y ? x : Coverage::kMixed);
      }
    }
    return stack[0];
  }

  // keep() for the strip: 1 where the pair is kept and is not padding. Returns false when that is everywhere.
  bool fill_keep(const StripPlace& place, Coverage coverage) {
    if (coverage == Coverage::kFull && place.n_columns == place.width) return false;
    unsigned char* keep = keep_[0];
    if (coverage == Coverage::kFull) {
      for (Index r = 0; r < kTileRows; ++r) fill(keep + r * stride_, 1, place.width);
    } else {
      evaluate_mask(0, place);
    }
    for (Index r = 0; r < kTileRows; ++r) fill(keep + r * stride_ + place.n_columns, 0, place.width - place.n_columns);
    return true;
  }

  // The argument `a` of a node's row vector or scalar at row i.
  T row_argument(const Step& step, Index i) const {
    if (step.slot[0] < 0) return step.constant[0] < 0 ? T(0) : static_cast<T>(problem_.constants[step.constant[0]]);
    const Operand& operand = problem_.operands[step.slot[0]];
    const T* data = static_cast<const T*>(operand.data);
    return argument_letter(step) == 'r' ? data[i * operand.stride[0]] : data[0];
  }
  TableArgument table_argument(const Step& step) const {
    TableArgument argument;
    for (int k = 0; k < 2; ++k)
      if (step.constant[k] >= 0) argument.constant[k] = problem_.constants[step.constant[k]];
    const Operand& first = problem_.operands[step.slot[1]];
    argument.rows = static_cast<const std::int64_t*>(first.data);
    argument.row_stride = first.stride[0];
    if (step.slot[2] < 0) {
      argument.column_stride = first.stride[1];
    } else {
      const Operand& second = problem_.operands[step.slot[2]];
      argument.columns = static_cast<const std::int64_t*>(second.data);
      argument.column_stride = second.stride[0];
    }
    return argument;
  }
  // The entry that pair (i, j) of the sweep looks up; -1 for none.
  template <class Table>
  static Index table_index(const TableArgument& argument, const Step& step, Index i, Index j, Index size) {
    const bool turned = step.swapped && step.slot[2] >= 0;  // stored indices come turned already
    const Index index = turned ? Table::index(argument, j, i) : Table::index(argument, i, j);
    return index < size ? index : Index(-1);
  }

  // The second argument, which is always a number.
  T second_argument(const Step& step) const {
    const int index = step.slot[0] < 0 ? step.constant[1] : step.constant[0];
    return index < 0 ? T(0) : static_cast<T>(problem_.constants[index]);
  }
  static char argument_letter(const Step& step) {
    char letter = 0;
    NodeList::visit(step.id, [&]<class Node>() { letter = Node::kInfo.signature[0]; });
    return letter;
  }

 private:
  const T* centre(int n) const { return steps_[n].gram ? static_cast<const T*>(problem_.centres[n]) : nullptr; }

  void take_source(const Step& step, StepMemory<T>& memory, int n, Index tile, Arena& arena) {
    const Index n_features = problem_.operands[step.slot[0]].size[1];
    memory.gram = problem_.centres[n] != nullptr;
    memory.columns.panels = arena.take<T>(tile * n_features);
    memory.columns.bad = arena.take<unsigned char>(tile);
    memory.rows.panels = arena.take<T>(kTileRows * n_features + kPanelSlack<T>);
    memory.rows.bad = arena.take<unsigned char>(kTileRows);
    memory.columns.norms = arena.take<T>(tile);
    memory.rows.norms = arena.take<T>(kTileRows);
    memory.direct = arena.take<DirectPair>(2 * kTileRows * tile);
  }

  template <class Source>
  void evaluate_source(int n, const StripPlace& place) {
    const Step& step = problem_.steps[n];
    StepMemory<T>& memory = steps_[n];
    const Operand &rows = problem_.operands[step.slot[0]], &columns = problem_.operands[step.slot[1]];
    const Index n_features = rows.size[1];
    pack<T, kTileRows>(rows, place.first_row, place.n_rows, kTileRows, centre(n), memory.rows);
    memory.n_direct = 0;
    if (memory.gram)
      memory.n_direct =
          gram_strip(memory.rows, memory.columns, n_features, place.width, !problem_.fast, memory.scores, stride_, memory.direct);
    else
      score_strip<T, Source>(memory.rows.panels, memory.columns.panels, n_features, place.width, memory.scores, stride_);
    if (memory.rows.n_bad + memory.columns.n_bad > 0) list_bad_pairs(memory, place);
    const T *x = static_cast<const T*>(rows.data), *y = static_cast<const T*>(columns.data);
    for (Index k = 0; k < memory.n_direct; ++k) {
      const DirectPair pair = memory.direct[k];
      if (pair.row >= place.n_rows || pair.column >= place.n_columns) {
        memory.direct[k--] = memory.direct[--memory.n_direct];
        continue;
      }
      memory.scores[pair.row * stride_ + pair.column] =
          direct_score<T, Source>(x + (place.first_row + pair.row) * rows.stride[0], rows.stride[1],
                                  y + (place.first_column + pair.column) * columns.stride[0], columns.stride[1], n_features);
    }
  }

  // Pairs of rows or columns with a number that is not finite; those that gram_strip has listed already may come twice.
  void list_bad_pairs(StepMemory<T>& memory, const StripPlace& place) {
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index c = 0; c < place.n_columns; ++c)
        if (memory.rows.bad[r] | memory.columns.bad[c])
          memory.direct[memory.n_direct++] = {static_cast<std::int16_t>(r), static_cast<std::int16_t>(c)};
  }

  template <class Node>
  void evaluate_node(int n, const StripPlace& place) {
    const Step& step = problem_.steps[n];
    StepMemory<T>& memory = steps_[n];
    const T b = second_argument(step);
    for (Index r = 0; r < place.n_rows; ++r) {
      const T* from = steps_[memory.input[0]].scores + r * stride_;
      T* to = memory.scores + r * stride_;
      if constexpr (Node::kInfo.signature[0] == 'c') {
        const T* a = memory.column_argument;
        for (Index j = 0; j < place.width; ++j) to[j] = Node::forward(from[j], a[j], b);
      } else {
        const T a = row_argument(step, place.first_row + r);
        for (Index j = 0; j < place.width; ++j) to[j] = Node::forward(from[j], a, b);
      }
    }
  }

  template <class Join>
  void evaluate_join(int n, const StripPlace& place) {
    StepMemory<T>& memory = steps_[n];
    for (Index r = 0; r < place.n_rows; ++r) {
      const T *first = steps_[memory.input[0]].scores + r * stride_, *second = steps_[memory.input[1]].scores + r * stride_;
      T* to = memory.scores + r * stride_;
      for (Index j = 0; j < place.width; ++j) to[j] = Join::forward(first[j], second[j]);
    }
  }

  template <class Table>
  void evaluate_table(int n, const StripPlace& place) {
    const Step& step = problem_.steps[n];
    const Operand& table = problem_.operands[step.slot[0]];
    const TableArgument argument = table_argument(step);
    const T* entries = static_cast<const T*>(table.data);
    for (Index r = 0; r < kTileRows; ++r) {
      T* to = steps_[n].scores + r * stride_;
      const Index n_columns = r < place.n_rows ? place.n_columns : 0;
      for (Index j = 0; j < n_columns; ++j) {
        const Index index = table_index<Table>(argument, step, place.first_row + r, place.first_column + j, table.size[0]);
        to[j] = index < 0 ? T(0) : entries[index * table.stride[0]];
      }
      for (Index j = n_columns; j < place.width; ++j) to[j] = T(0);
    }
  }

  void evaluate_select(int n, const StripPlace& place) {
    const Step& step = problem_.steps[n];
    StepMemory<T>& memory = steps_[n];
    evaluate_mask(step.id, place);
    for (Index r = 0; r < place.n_rows; ++r) {
      const T *first = steps_[memory.input[0]].scores + r * stride_, *second = steps_[memory.input[1]].scores + r * stride_;
      const unsigned char* choice = keep_[step.id] + r * stride_;
      for (Index j = place.n_columns; j < place.width; ++j) keep_[step.id][r * stride_ + j] = 1;
      T* to = memory.scores + r * stride_;
      for (Index j = 0; j < place.width; ++j) to[j] = choice[j] ? first[j] : second[j];
    }
  }

  MaskArgument mask_argument(const MaskStep& step) const {
    MaskArgument argument;
    argument.n_rows = problem_.masks_transposed ? problem_.n_columns : problem_.n_rows;
    argument.n_columns = problem_.masks_transposed ? problem_.n_rows : problem_.n_columns;
    for (int k = 0; k < 2; ++k)
      if (step.constant[k] >= 0) argument.constant[k] = problem_.constants[step.constant[k]];
    if (step.slot[0] >= 0) {
      argument.rows = problem_.operands[step.slot[0]].data;
      argument.row_stride = problem_.operands[step.slot[0]].stride[0];
    }
    if (step.slot[1] >= 0) {
      argument.columns = problem_.operands[step.slot[1]].data;
      argument.column_stride = problem_.operands[step.slot[1]].stride[0];
    }
    return argument;
  }

  int mask_depth(int mask) const {
    int depth = 0, most = 0;
    for (int n = 0; n < problem_.masks[mask].n_steps; ++n) {
      const MaskKind kind = problem_.masks[mask].steps[n].kind;
      depth += kind == MaskKind::kRule ? 1 : (kind == MaskKind::kNot ? 0 : -1);
      most = depth > most ? depth : most;
    }
    return most;
  }

  static void fill(unsigned char* to, unsigned char value, Index count) {
    for (Index k = 0; k < count; ++k) to[k] = value;
  }

  // keep_[mask] holds a stack of planes; the first ends up as the answer.
  void evaluate_mask(int mask, const StripPlace& place) {
    const Index plane = kTileRows * stride_;
    Index top = 0;
    for (int n = 0; n < problem_.masks[mask].n_steps; ++n) {
      const MaskStep& step = problem_.masks[mask].steps[n];
      unsigned char* out = keep_[mask] + top * plane;
      if (step.kind == MaskKind::kRule) {
        const MaskArgument argument = mask_argument(step);
        const bool transposed = problem_.masks_transposed;
        MaskList::visit(step.id, [&]<class Rule>() {
          for (Index r = 0; r < place.n_rows; ++r)
            for (Index c = 0; c < place.n_columns; ++c) {
              const Index i = place.first_row + r, j = place.first_column + c;
              out[r * stride_ + c] = transposed ? Rule::keep(argument, j, i) : Rule::keep(argument, i, j);
            }
        });
        ++top;
        continue;
      }
      unsigned char *last = out - plane, *before = last - plane;
      for (Index r = 0; r < place.n_rows; ++r)
        for (Index c = r * stride_; c < r * stride_ + place.n_columns; ++c) {
          if (step.kind == MaskKind::kNot)
            last[c] = !last[c];
          else
            before[c] = step.kind == MaskKind::kAnd ? before[c] & last[c] : before[c] | last[c];
        }
      if (step.kind != MaskKind::kNot) --top;
    }
  }

  const Problem& problem_;
  Index stride_ = 0, n_evaluated_ = 0;
  StepMemory<T> steps_[kMaxSteps];
  T* spare_ = nullptr;
  unsigned char* keep_[kMaxMasks] = {};
};

}  // namespace torchpairwise::cpu::TP_ISA
