// Pair masks: rules that keep or drop the pair (i, j). True means keep.
//
// Contract of a mask rule:
//
//   static constexpr MaskInfo kInfo;
//   static bool keep(const MaskArgument& argument, Index i, Index j);
//   static Coverage classify(const MaskArgument& argument, Index i0, Index i1, Index j0, Index j1);
//
// Laws: classify of a tile [i0, i1) x [j0, j1) is kEmpty or kFull only if every pair of the tile agrees; kMixed is always allowed.
// Rules take their sizes and vectors from MaskArgument, in the orientation of the expression as it was written; a transposed sweep swaps
// i and j before it asks (Program::transposed).
#pragma once

#include "core/macros.h"
#include "core/types.h"

namespace torchpairwise {

enum class Coverage : std::uint8_t { kEmpty, kMixed, kFull };

struct MaskInfo {
  const char* name;
  // One letter an argument. #: number; R, C: row or column group labels (int64); r, c: row or column booleans.
  const char* signature;
  const char* formula;
};

struct MaskArgument {
  Index n_rows = 0;
  Index n_columns = 0;
  double constant[2] = {0, 0};
  const void* rows = nullptr;  // labels (int64) or booleans (one byte)
  const void* columns = nullptr;
  Index row_stride = 0;  // in elements
  Index column_stride = 0;

  TP_HD Index row_label(Index i) const { return static_cast<const std::int64_t*>(rows)[i * row_stride]; }
  TP_HD Index column_label(Index j) const { return static_cast<const std::int64_t*>(columns)[j * column_stride]; }
  TP_HD bool row_flag(Index i) const { return static_cast<const std::uint8_t*>(rows)[i * row_stride] != 0; }
  TP_HD bool column_flag(Index j) const { return static_cast<const std::uint8_t*>(columns)[j * column_stride] != 0; }
};

namespace detail {

// Coverage of lower <= j - i <= upper on a tile, from the extreme differences of its corners.
TP_HD Coverage classify_band(double lower, double upper, Index i0, Index i1, Index j0, Index j1) {
  const double least = double(j0 - (i1 - 1)), greatest = double(j1 - 1 - i0);
  if (greatest < lower || least > upper) return Coverage::kEmpty;
  return least >= lower && greatest <= upper ? Coverage::kFull : Coverage::kMixed;
}

struct Range {
  Index least, greatest;
};

template <class Label>
TP_HD Range range_of(Label label, Index begin, Index end) {
  Range range{label(begin), label(begin)};
  for (Index i = begin + 1; i < end; ++i) {
    const Index value = label(i);
    range.least = value < range.least ? value : range.least;
    range.greatest = value > range.greatest ? value : range.greatest;
  }
  return range;
}

template <class Flag>
TP_HD Coverage classify_flags(Flag flag, Index begin, Index end) {
  bool any = false, all = true;
  for (Index i = begin; i < end; ++i) {
    any |= flag(i);
    all &= flag(i);
  }
  return all ? Coverage::kFull : (any ? Coverage::kMixed : Coverage::kEmpty);
}

}  // namespace detail

// #: 1 aligns the last row with the last column (lower_right), 0 the first with the first (upper_left).
struct Causal {
  static constexpr MaskInfo kInfo{"causal", "#", "j <= i + a (M - N)"};
  TP_HD static double upper(const MaskArgument& x) { return x.constant[0] != 0 ? double(x.n_columns - x.n_rows) : 0.0; }
  TP_HD static bool keep(const MaskArgument& x, Index i, Index j) { return double(j - i) <= upper(x); }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index j0, Index j1) {
    return detail::classify_band(-1e18, upper(x), i0, i1, j0, j1);
  }
};

struct Band {
  static constexpr MaskInfo kInfo{"band", "##", "-a <= j - i <= b"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index j) {
    return double(j - i) >= -x.constant[0] && double(j - i) <= x.constant[1];
  }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index j0, Index j1) {
    return detail::classify_band(-x.constant[0], x.constant[1], i0, i1, j0, j1);
  }
};

// The rows and columns of a larger matrix: labels are their places in it.
struct Between {
  static constexpr MaskInfo kInfo{"between", "RC##", "-a <= q_j - p_i <= b"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index j) {
    const double difference = double(x.column_label(j) - x.row_label(i));
    return difference >= -x.constant[0] && difference <= x.constant[1];
  }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index j0, Index j1) {
    const detail::Range rows = detail::range_of([&](Index i) { return x.row_label(i); }, i0, i1);
    const detail::Range columns = detail::range_of([&](Index j) { return x.column_label(j); }, j0, j1);
    return detail::classify_band(-x.constant[0], x.constant[1], rows.least, rows.greatest + 1, columns.least, columns.greatest + 1);
  }
};

struct SameGroup {
  static constexpr MaskInfo kInfo{"same_group", "RC", "a_i == b_j"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index j) { return x.row_label(i) == x.column_label(j); }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index j0, Index j1) {
    const detail::Range rows = detail::range_of([&](Index i) { return x.row_label(i); }, i0, i1);
    const detail::Range columns = detail::range_of([&](Index j) { return x.column_label(j); }, j0, j1);
    if (rows.greatest < columns.least || columns.greatest < rows.least) return Coverage::kEmpty;
    return rows.least == rows.greatest && columns.least == columns.greatest ? Coverage::kFull : Coverage::kMixed;
  }
};

struct FirstRows {
  static constexpr MaskInfo kInfo{"first_rows", "#", "i < a"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index) { return double(i) < x.constant[0]; }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index, Index) {
    return double(i1) <= x.constant[0] ? Coverage::kFull : (double(i0) >= x.constant[0] ? Coverage::kEmpty : Coverage::kMixed);
  }
};

struct FirstColumns {
  static constexpr MaskInfo kInfo{"first_columns", "#", "j < a"};
  TP_HD static bool keep(const MaskArgument& x, Index, Index j) { return double(j) < x.constant[0]; }
  TP_HD static Coverage classify(const MaskArgument& x, Index, Index, Index j0, Index j1) {
    return double(j1) <= x.constant[0] ? Coverage::kFull : (double(j0) >= x.constant[0] ? Coverage::kEmpty : Coverage::kMixed);
  }
};

// Every a-th diagonal, the main one among them.
struct Dilated {
  static constexpr MaskInfo kInfo{"dilated", "#", "(j - i) mod a == 0"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index j) { return (j - i) % static_cast<Index>(x.constant[0]) == 0; }
  TP_HD static Coverage classify(const MaskArgument& x, Index, Index, Index, Index) {
    return x.constant[0] == 1 ? Coverage::kFull : Coverage::kMixed;
  }
};

struct MaskRows {
  static constexpr MaskInfo kInfo{"rows", "r", "a_i"};
  TP_HD static bool keep(const MaskArgument& x, Index i, Index) { return x.row_flag(i); }
  TP_HD static Coverage classify(const MaskArgument& x, Index i0, Index i1, Index, Index) {
    return detail::classify_flags([&](Index i) { return x.row_flag(i); }, i0, i1);
  }
};

struct MaskColumns {
  static constexpr MaskInfo kInfo{"columns", "c", "a_j"};
  TP_HD static bool keep(const MaskArgument& x, Index, Index j) { return x.column_flag(j); }
  TP_HD static Coverage classify(const MaskArgument& x, Index, Index, Index j0, Index j1) {
    return detail::classify_flags([&](Index j) { return x.column_flag(j); }, j0, j1);
  }
};

// exclude_self: the pair of a row with itself, by index and never by value.
struct OffDiagonal {
  static constexpr MaskInfo kInfo{"off_diagonal", "", "i != j"};
  TP_HD static bool keep(const MaskArgument&, Index i, Index j) { return i != j; }
  TP_HD static Coverage classify(const MaskArgument&, Index i0, Index i1, Index j0, Index j1) {
    if (j1 <= i0 || i1 <= j0) return Coverage::kFull;
    return i1 - i0 == 1 && j1 - j0 == 1 ? Coverage::kEmpty : Coverage::kMixed;
  }
};

}  // namespace torchpairwise
