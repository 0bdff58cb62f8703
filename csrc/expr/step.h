// A parsed program as plain data: what kernels and launches receive.
#pragma once

#include "core/types.h"

namespace torchpairwise {

enum class StepKind : std::uint8_t { kSource, kCustom, kTable, kNode, kJoin, kSelect };

// One step on the stack of scores. Sources and tables push, a node changes the last score, a join replaces the last two by one; a select
// does so by a mask: the first where it keeps the pair, else the second.
struct Step {
  StepKind kind = StepKind::kNode;
  std::int16_t id = -1;                 // index in SourceList, TableList, NodeList or JoinList; kCustom: of its key; kSelect: of its mask
  std::int16_t slot[3] = {-1, -1, -1};  // operands: row and column features of a source; argument tensor of a node; those of a table
  std::int16_t constant[2] = {-1, -1};  // arguments that are numbers
  bool swapped = false;                 // a custom comparison f(x, y) whose x are the columns, or a table, after a transposition
};

enum class MaskKind : std::uint8_t { kRule, kAnd, kOr, kNot };

// One step on the stack of masks; rules push, the others combine.
struct MaskStep {
  MaskKind kind = MaskKind::kRule;
  std::int16_t id = -1;             // index in MaskList
  std::int16_t slot[2] = {-1, -1};  // row tensor, column tensor
  std::int16_t constant[2] = {-1, -1};
};

// What a tensor operand is; it fixes the shape (without batch dimensions) and the dtype.
enum class Role : std::uint8_t {
  kRowFeatures,     // [N, D]
  kColumnFeatures,  // [M, D]
  kScalar,          // []
  kRowVector,       // [N]
  kColumnVector,    // [M]
  kRowFlags,        // [N] bool
  kColumnFlags,     // [M] bool
  kRowLabels,       // [N] int64
  kColumnLabels,    // [M] int64
  kTable,           // [T]
  kPairIndices,     // [N, M] int64
  kParameter,       // any shape, no batch: a parameter of a custom comparison
};

}  // namespace torchpairwise
