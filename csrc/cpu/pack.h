// Packing: features as register tiles read them.
//
// Columns: panels[p][d][kTileColumns], the features of kTileColumns rows of Y side by side; rows: panel[d][kTileRows]. A row that holds a
// number that is not finite is packed as zeros and flagged `bad`: its pairs are evaluated one by one from the original features, so that a
// NaN that stands behind a mask never meets a sum, and one that does not is handed on as arithmetic says.
#pragma once

#include "core/math.h"
#include "core/vector.h"
#include "cpu/problem.h"

namespace torchpairwise::cpu::TP_ISA {

using namespace vectors::TP_ISA;

template <class T>
struct Packed {
  T* panels = nullptr;           // [n / kWidth][D][kWidth]
  T* norms = nullptr;            // [n]: |row|^2 of the packed (centred) row, where asked for
  unsigned char* bad = nullptr;  // [n]
  Index n_bad = 0;
};

// Features [d, n_features) of one row, moved to the panel at `to`; adds to the row's norm and to `check`, which stays 0 for finite numbers.
template <class T, int kWidth>
TP_HD void pack_row(const T* row, Index stride, Index d, Index n_features, const T* centre, T* to, T& norm, T& check) {
  for (; d < n_features; ++d) {
    const T value = centre == nullptr ? row[d * stride] : row[d * stride] - centre[d];
    to[d * kWidth] = value;
    norm += value * value;
    check += value * T(0);
  }
}

// The whole squares of kLanes rows x kLanes features, transposed in registers. Returns the features done. Rows from `count` on are read as
// rows[count - 1]; a panel narrower than a vector is written in ascending order of features, so that what a store spills over is
// overwritten.
template <class T, int kWidth>
TP_HD Index pack_squares(const T* rows, Index row_stride, Index count, Index n_features, const T* centre, T* to, T* norms, T* checks) {
  constexpr int kSquare = kLanes<T>;
  Vector<T> sums[kSquare] = {}, zeros[kSquare] = {};
  Index d = 0;
  for (; d + kSquare <= n_features; d += kSquare) {
    Vector<T> square[kSquare];
    const Vector<T> shift = centre == nullptr ? Vector<T>{} : load(centre + d);
#pragma GCC unroll 16
    for (int n = 0; n < kSquare; ++n) {
      square[n] = load(rows + least(n, count - 1) * row_stride + d) - shift;
      sums[n] += square[n] * square[n];
      zeros[n] += square[n] * T(0);
    }
    transpose<T>(square);
#pragma GCC unroll 16
    for (int n = 0; n < kSquare; ++n) store(to + (d + n) * kWidth, square[n]);
  }
  for (int n = 0; n < kSquare; ++n) {
    norms[n] = horizontal_sum<T>(sums[n]);
    checks[n] = horizontal_sum<T>(zeros[n]);
  }
  return d;
}

// Slack behind a row panel for the stores of pack_squares.
template <class T>
inline constexpr Index kPanelSlack = kLanes<T>;

// Packs rows [begin, begin + count) of `from` (minus `centre`, if any) in panels of `kWidth`, filled up with zeros to `padded` rows.
template <class T, int kWidth>
void pack(const Operand& from, Index begin, Index count, Index padded, const T* centre, Packed<T>& out) {
  const Index n_features = from.size[1], row_stride = from.stride[0], feature_stride = from.stride[1];
  constexpr Index kGroup = kWidth < kLanes<T> ? kWidth : kLanes<T>;
  out.n_bad = 0;
  for (Index first = 0; first < padded; first = least(first + kGroup, (first / kWidth + 1) * kWidth)) {
    const Index group = least(least(kGroup, kWidth - first % kWidth), padded - first), present = least(group, count - first);
    T* to = out.panels + first / kWidth * n_features * kWidth + first % kWidth;
    const T* rows = static_cast<const T*>(from.data) + (begin + first) * row_stride;
    T norms[kLanes<T>] = {}, checks[kLanes<T>] = {};
    Index d = 0;
    if (feature_stride == 1 && present > 0 && (kWidth <= kLanes<T> || group == kLanes<T>))
      d = pack_squares<T, kWidth>(rows, row_stride, present, n_features, centre, to, norms, checks);
    for (Index n = 0; n < group; ++n) {
      T norm = norms[n], check = checks[n];
      if (n < present) pack_row<T, kWidth>(rows + n * row_stride, feature_stride, d, n_features, centre, to + n, norm, check);
      const bool bad = n < present && check != T(0), absent = n >= present;
      if (bad || absent)
        for (Index k = 0; k < n_features; ++k) to[k * kWidth + n] = T(0);
      out.bad[first + n] = bad;
      out.n_bad += bad;
      if (out.norms != nullptr) out.norms[first + n] = bad || absent ? T(0) : norm;
    }
  }
}

// Copies entries [begin, begin + count) of a vector, filled up with zeros.
template <class T>
void pack_vector(const Operand& from, Index begin, Index count, Index padded, T* to) {
  const T* data = static_cast<const T*>(from.data) + begin * from.stride[0];
  for (Index n = 0; n < count; ++n) to[n] = data[n * from.stride[0]];
  for (Index n = count; n < padded; ++n) to[n] = T(0);
}

}  // namespace torchpairwise::cpu::TP_ISA
