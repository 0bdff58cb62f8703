#include "aten/masks.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "aten/entries.h"
#include "aten/transforms.h"
#include "expr/list.h"

namespace torchpairwise::aten {
namespace {

// The arguments of a rule, in the orientation in which the expression was written.
struct RuleArguments {
  Tensor i, j;           // pair indices
  Tensor rows, columns;  // labels or flags, aligned with them
  Index n_rows = 0, n_columns = 0;
  double constant[2] = {0, 0};
};

struct RuleEntry {
  const char* name;
  Tensor (*keep)(const RuleArguments&);
};

// A bound of an index difference as an integer: indices are below 2^53, so nothing beyond it matters.
Index bound(double value) {
  constexpr double kMost = 9007199254740992.0;
  return static_cast<Index>(std::floor(std::min(std::max(value, -kMost), kMost)));
}

Tensor causal(const RuleArguments& x) { return x.j.le(x.i + (x.constant[0] != 0 ? x.n_columns - x.n_rows : 0)); }
Tensor within(const Tensor& difference, const RuleArguments& x) {
  return difference.ge(-bound(x.constant[0])).logical_and(difference.le(bound(x.constant[1])));
}
Tensor band(const RuleArguments& x) { return within(x.j - x.i, x); }
Tensor between(const RuleArguments& x) { return within(x.columns - x.rows, x); }
Tensor same_group(const RuleArguments& x) { return x.rows.eq(x.columns); }
Tensor mask_rows(const RuleArguments& x) { return x.rows; }
Tensor mask_columns(const RuleArguments& x) { return x.columns; }
Tensor first_rows(const RuleArguments& x) { return x.i.lt(x.constant[0]); }
Tensor first_columns(const RuleArguments& x) { return x.j.lt(x.constant[0]); }
Tensor dilated(const RuleArguments& x) { return (x.j - x.i).remainder(x.constant[0]).eq(0); }
Tensor off_diagonal(const RuleArguments& x) { return x.i.ne(x.j); }

constexpr RuleEntry kRules[] = {
    {"causal", causal},
    {"band", band},
    {"same_group", same_group},
    {"rows", mask_rows},
    {"columns", mask_columns},
    {"off_diagonal", off_diagonal},
    {"between", between},
    {"first_rows", first_rows},
    {"first_columns", first_columns},
    {"dilated", dilated},
};

const RuleEntry& rule_entry(int id) {
  static const std::vector<const RuleEntry*> entries = entries_of<MaskList>(kRules, "aten/masks.cpp");
  return *entries[id];
}

void set_constants(const Call& call, const MaskStep& step, double (&constant)[2]) {
  for (int n = 0; n < 2; ++n)
    if (step.constant[n] >= 0) constant[n] = call.constants[step.constant[n]];
}

Tensor rule(const Call& call, const Aligned& aligned, const MaskStep& step) {
  const bool transposed = call.program->masks_transposed();
  RuleArguments x;
  x.i = aligned.i;
  x.j = aligned.j;
  x.n_rows = aligned.n_rows;
  x.n_columns = aligned.n_columns;
  if (transposed) {
    std::swap(x.i, x.j);
    std::swap(x.n_rows, x.n_columns);
  }
  if (step.slot[0] >= 0) x.rows = (transposed ? aligned.columns : aligned.rows)[step.slot[0]];
  if (step.slot[1] >= 0) x.columns = (transposed ? aligned.rows : aligned.columns)[step.slot[1]];
  set_constants(call, step, x.constant);
  return rule_entry(step.id).keep(x);
}

// The vector of a rule for classification: its numbers must be readable here and the same for the whole box. False where they are not.
bool readable(const Operands& operands, const Tile& tile, int slot, const void*& data, Index& stride) {
  if (slot < 0) return true;
  const Tensor x = operands.narrow_batch(operands.lifted(slot), tile.batch);
  Index n_entries = 1;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d) n_entries *= x.size(d);
  if (!x.is_cpu() || n_entries != 1) return false;
  data = x.const_data_ptr();
  stride = x.stride(-1);
  return true;
}

Coverage classify_rule(const Operands& operands, const Tile& tile, const MaskStep& step) {
  const bool transposed = operands.call().program->masks_transposed();
  MaskArgument x;
  x.n_rows = transposed ? operands.n_columns() : operands.n_rows();
  x.n_columns = transposed ? operands.n_rows() : operands.n_columns();
  set_constants(operands.call(), step, x.constant);
  if (!readable(operands, tile, step.slot[0], x.rows, x.row_stride) || !readable(operands, tile, step.slot[1], x.columns, x.column_stride))
    return Coverage::kMixed;
  const Index i0 = transposed ? tile.column : tile.row, i1 = i0 + (transposed ? tile.n_columns : tile.n_rows);
  const Index j0 = transposed ? tile.row : tile.column, j1 = j0 + (transposed ? tile.n_rows : tile.n_columns);
  Coverage out = Coverage::kMixed;
  MaskList::visit(step.id, [&]<class Rule>() { out = Rule::classify(x, i0, i1, j0, j1); });
  return out;
}

Coverage inverse(Coverage x) { return x == Coverage::kMixed ? x : (x == Coverage::kEmpty ? Coverage::kFull : Coverage::kEmpty); }

Coverage combine(MaskKind kind, Coverage x, Coverage y) {
  const Coverage decides = kind == MaskKind::kAnd ? Coverage::kEmpty : Coverage::kFull;
  return x == decides || y == decides ? decides : (x == y ? x : Coverage::kMixed);
}

}  // namespace

Tensor keep_of(const Call& call, const Aligned& aligned, int n) {
  std::vector<Tensor> stack;
  for (const MaskStep& step : call.program->masks()[n]) {
    if (step.kind == MaskKind::kRule) {
      stack.push_back(rule(call, aligned, step));
      continue;
    }
    if (step.kind == MaskKind::kNot) {
      stack.back() = stack.back().logical_not();
      continue;
    }
    const Tensor last = stack.back();
    stack.pop_back();
    stack.back() = step.kind == MaskKind::kAnd ? stack.back().logical_and(last) : stack.back().logical_or(last);
  }
  return stack.empty() ? Tensor() : stack.back();
}

Coverage coverage_of(const Operands& operands, const Tile& tile) {
  const std::vector<MaskStep>& steps = operands.call().program->mask_steps();
  if (steps.empty()) return Coverage::kFull;
  if (tile.n_rows == 0 || tile.n_columns == 0 || is_unreadable(operands.call().operands[0])) return Coverage::kMixed;
  std::vector<Coverage> stack;
  for (const MaskStep& step : steps) {
    if (step.kind == MaskKind::kRule) {
      stack.push_back(classify_rule(operands, tile, step));
    } else if (step.kind == MaskKind::kNot) {
      stack.back() = inverse(stack.back());
    } else {
      const Coverage last = stack.back();
      stack.pop_back();
      stack.back() = combine(step.kind, stack.back(), last);
    }
  }
  return stack[0];
}

}  // namespace torchpairwise::aten
