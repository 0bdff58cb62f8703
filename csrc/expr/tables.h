// Tables: scores that are looked up by the places of row and column, such as relative position biases and the identity matrix.
//
// A table step pushes table[index(i, j)], and 0 where the index is -1. It is a struct:
//
//   static constexpr TableInfo kInfo;
//   static Index index(const TableArgument& argument, Index i, Index j);
//
// i and j count rows and columns as the expression was written. Rows and columns have places of their own (p_i and q_j), so that a part of
// a matrix looks up what the whole would. The gradient of an entry is the sum over the pairs that looked it up.
#pragma once

#include "core/macros.h"
#include "core/types.h"

namespace torchpairwise {

struct TableInfo {
  const char* name;
  // One letter an argument. t: the table [T]; R, C: places of rows and columns (int64); I: indices [N, M] (int64); #: number.
  const char* signature;
  const char* formula;
};

struct TableArgument {
  double constant[2] = {0, 0};
  const std::int64_t* rows = nullptr;  // places, or indices
  const std::int64_t* columns = nullptr;
  Index row_stride = 0, column_stride = 0;  // in elements; of the indices: of its two axes

  TP_HD Index difference(Index i, Index j) const { return columns[j * column_stride] - rows[i * row_stride]; }
};

struct Relative {
  static constexpr TableInfo kInfo{"relative", "tRC##", "t[min(max(q_j - p_i, a), b) - a]"};
  TP_HD static Index index(const TableArgument& x, Index i, Index j) {
    const Index least = static_cast<Index>(x.constant[0]), most = static_cast<Index>(x.constant[1]), d = x.difference(i, j);
    return (d < least ? least : (d > most ? most : d)) - least;
  }
};

struct Diagonals {
  static constexpr TableInfo kInfo{"diagonals", "tRC##", "t[q_j - p_i - a] if a <= q_j - p_i <= b else 0"};
  TP_HD static Index index(const TableArgument& x, Index i, Index j) {
    const Index least = static_cast<Index>(x.constant[0]), most = static_cast<Index>(x.constant[1]), d = x.difference(i, j);
    return d < least || d > most ? Index(-1) : d - least;
  }
};

// Indices that the caller has stored; they must lie in the table.
struct Lookup {
  static constexpr TableInfo kInfo{"lookup", "tI", "t[I_ij]"};
  TP_HD static Index index(const TableArgument& x, Index i, Index j) { return x.rows[i * x.row_stride + j * x.column_stride]; }
};

}  // namespace torchpairwise
