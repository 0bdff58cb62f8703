#include "aten/tables.h"

#include <ATen/ATen.h>

#include "aten/entries.h"
#include "expr/list.h"

namespace torchpairwise::aten {
namespace {

struct TableArguments {
  Tensor difference;  // q_j - p_i, of rules with places
  Tensor indices;     // of lookup
  double constant[2] = {0, 0};

  Index least() const { return static_cast<Index>(constant[0]); }
  Index most() const { return static_cast<Index>(constant[1]); }
};

struct TableEntry {
  const char* name;
  Tensor (*index)(const TableArguments&);
};

Tensor relative(const TableArguments& x) { return x.difference.clamp(x.least(), x.most()) - x.least(); }
Tensor diagonals(const TableArguments& x) {
  const Tensor outside = x.difference.lt(x.least()).logical_or(x.difference.gt(x.most()));
  return (x.difference - x.least()).masked_fill(outside, -1);
}
Tensor lookup(const TableArguments& x) { return x.indices; }

constexpr TableEntry kTables[] = {{"relative", relative}, {"diagonals", diagonals}, {"lookup", lookup}};

}  // namespace

Tensor table_index(const Call& call, const Aligned& aligned, const Step& step) {
  static const std::vector<const TableEntry*> entries = entries_of<TableList>(kTables, "aten/tables.cpp");
  TableArguments x;
  for (int n = 0; n < 2; ++n)
    if (step.constant[n] >= 0) x.constant[n] = call.constants[step.constant[n]];
  if (step.slot[2] < 0)
    x.indices = aligned.others[step.slot[1]];
  else if (step.swapped)
    x.difference = aligned.rows[step.slot[2]] - aligned.columns[step.slot[1]];
  else
    x.difference = aligned.columns[step.slot[2]] - aligned.rows[step.slot[1]];
  return entries[step.id]->index(x);
}

}  // namespace torchpairwise::aten
