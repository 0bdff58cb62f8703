// Small matrix products on strips.
#pragma once

#include "core/vector.h"

namespace torchpairwise::cpu::TP_ISA {

using namespace vectors::TP_ISA;

// C[m][n] += sum_k A[m, k] B[k][n] for kRows x (kVectors * lanes) entries held in registers; A is read by broadcast at any stride.
template <class T, int kRows, int kVectors>
TP_HD void product_tile(Index n_inner, const T* a, Index a_row, Index a_inner, const T* b, Index b_stride, T* c, Index c_stride) {
  Vector<T> sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[m][v] = load(c + m * c_stride + v * kLanes<T>);
  for (Index k = 0; k < n_inner; ++k, a += a_inner, b += b_stride) {
    Vector<T> row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const Vector<T> am = broadcast(a[m * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[m][v] += am * row[v];
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(c + m * c_stride + v * kLanes<T>, sums[m][v]);
}

template <class T, int kRows>
void product_rows(Index n_columns, Index n_inner, const T* a, Index a_row, Index a_inner, const T* b, Index b_stride, T* c,
                  Index c_stride) {
  Index n = 0;
  for (; n + kTileColumns<T> <= n_columns; n += kTileColumns<T>)
    product_tile<T, kRows, kTileVectors>(n_inner, a, a_row, a_inner, b + n, b_stride, c + n, c_stride);
  for (; n < n_columns; n += kLanes<T>) product_tile<T, kRows, 1>(n_inner, a, a_row, a_inner, b + n, b_stride, c + n, c_stride);
}

// C [M, N] += A [M, K] B [K, N]; n_columns is a multiple of the lanes, and B and C are padded to it.
template <class T>
void product(Index n_rows, Index n_columns, Index n_inner, const T* a, Index a_row, Index a_inner, const T* b, Index b_stride, T* c,
             Index c_stride) {
  Index m = 0;
  for (; m + kTileRows <= n_rows; m += kTileRows)
    product_rows<T, kTileRows>(n_columns, n_inner, a + m * a_row, a_row, a_inner, b, b_stride, c + m * c_stride, c_stride);
  for (; m + 4 <= n_rows; m += 4)
    product_rows<T, 4>(n_columns, n_inner, a + m * a_row, a_row, a_inner, b, b_stride, c + m * c_stride, c_stride);
  for (; m < n_rows; ++m) product_rows<T, 1>(n_columns, n_inner, a + m * a_row, a_row, a_inner, b, b_stride, c + m * c_stride, c_stride);
}

// out[r][c] = sum_j W[r][j] B[c][j], vectors over j: for few c, where rows of B are contiguous in j.
template <class T>
void dot_rows(Index n_rows, Index n_outputs, Index width, const T* w, Index w_stride, const T* b, Index b_stride, T* out,
              Index out_stride) {
  for (Index r = 0; r < n_rows; ++r)
    for (Index c = 0; c < n_outputs; ++c) {
      Vector<T> sums[2] = {};
      const T *wr = w + r * w_stride, *bc = b + c * b_stride;
      for (Index j = 0; j < width; j += kTileColumns<T>) {
        sums[0] += load(wr + j) * load(bc + j);
        sums[1] += load(wr + j + kLanes<T>) * load(bc + j + kLanes<T>);
      }
      out[r * out_stride + c] = horizontal_sum<T>(sums[0] + sums[1]);
    }
}

}  // namespace torchpairwise::cpu::TP_ISA
