// Packing: features as register tiles read them.
//
// Columns: panels[p][d][kTileColumns], the features of kTileColumns rows of Y side by side; rows: panel[d][kTileRows]. A row that holds a
// number that is not finite is packed as zeros and flagged `bad`: its pairs are evaluated one by one from the original features, so that a
// NaN that stands behind a mask never meets a sum, and one that does not is handed on as arithmetic says.
#pragma once

#include "core/math.h"
#include "cpu/problem.h"
#include "core/vector.h"

namespace torchpairwise::cpu::TP_ISA {

using namespace vectors::TP_ISA;

template <class T>
struct Packed {
  T* panels = nullptr;           // [n / kWidth][D][kWidth]
  T* norms = nullptr;            // [n]: |row|^2 of the packed (centred) row, where asked for
  unsigned char* bad = nullptr;  // [n]
  Index n_bad = 0;
};

// Packs rows [begin, begin + count) of `from` (minus `centre`, if any) in panels of `kWidth`, filled up with zeros to `padded` rows.
template <class T, int kWidth>
void pack(const Operand& from, Index begin, Index count, Index padded, const T* centre, Packed<T>& out) {
  const Index n_features = from.size[1], row_stride = from.stride[0], feature_stride = from.stride[1];
  out.n_bad = 0;
  for (Index n = 0; n < padded; ++n) {
    T* to = out.panels + (n / kWidth) * n_features * kWidth + n % kWidth;
    T norm = T(0), check = T(0);
    if (n < count) {
      const T* row = static_cast<const T*>(from.data) + (begin + n) * row_stride;
      for (Index d = 0; d < n_features; ++d) {
        const T value = centre == nullptr ? row[d * feature_stride] : row[d * feature_stride] - centre[d];
        to[d * kWidth] = value;
        norm += value * value;
        check += value * T(0);
      }
    }
    const bool bad = check != T(0);
    if (n >= count || bad)
      for (Index d = 0; d < n_features; ++d) to[d * kWidth] = T(0);
    out.bad[n] = bad;
    out.n_bad += bad;
    if (out.norms != nullptr) out.norms[n] = bad ? T(0) : norm;
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
