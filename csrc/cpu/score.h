// Raw scores of a strip: kTileRows rows against a tile of packed columns.
#pragma once

#include "cpu/pack.h"
#include "source/list.h"

namespace torchpairwise::cpu::TP_ISA {

// A pair whose score is taken from the original features, not from the panels.
struct DirectPair {
  std::int16_t row;
  std::int16_t column;
};

// One register tile: out[r][c] = sum_d map(x_rd, y_cd), features in ascending order.
//   x [D][kTileRows], y [D][kTileColumns]; 24 accumulators (AVX-512), each feature costs kTileRows broadcasts and 2 loads.
template <class T, class Source>
TP_HD void score_tile(const T* x, const T* y, Index n_features, Vector<T> (&sums)[kTileRows][kTileVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) sums[r][0] = sums[r][1] = Vector<T>{};
  for (Index d = 0; d < n_features; ++d, x += kTileRows, y += kTileColumns<T>) {
    const Vector<T> y0 = load(y), y1 = load(y + kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const Vector<T> xr = broadcast(x[r]);
      sums[r][0] = Source::map(sums[r][0], xr, y0);
      sums[r][1] = Source::map(sums[r][1], xr, y1);
    }
  }
}

template <class T, class Source>
void score_strip(const T* x, const T* panels, Index n_features, Index width, T* out, Index stride) {
  for (Index j = 0; j < width; j += kTileColumns<T>) {
    Vector<T> sums[kTileRows][kTileVectors];
    score_tile<T, Source>(x, panels + j * n_features, n_features, sums);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      store(out + r * stride + j, sums[r][0]);
      store(out + r * stride + j + kLanes<T>, sums[r][1]);
    }
  }
}

// Squared distances by expansion: out = |x|^2 + |y|^2 - 2 x.y. Pairs that are not above kRescueRatio (|x|^2 + |y|^2) are listed
// in `direct`.
template <class T>
Index gram_strip(const Packed<T>& x, const Packed<T>& y, Index n_features, Index width, bool rescue, T* out, Index stride,
                 DirectPair* direct) {
  Index n_direct = 0;
  const T ratio = static_cast<T>(kRescueRatio);
  for (Index j = 0; j < width; j += kTileColumns<T>) {
    Vector<T> sums[kTileRows][kTileVectors];
    score_tile<T, Linear>(x.panels, y.panels + j * n_features, n_features, sums);
    unsigned near = 0;
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) {
      const Vector<T> y_norm = load(y.norms + j + v * kLanes<T>);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const Vector<T> norms = x.norms[r] + y_norm, score = norms - 2 * sums[r][v];
        near |= ~less_bits(ratio * norms, score);
        store(out + r * stride + j + v * kLanes<T>, score);
      }
    }
    constexpr unsigned kAllLanes = (1u << kLanes<T>)-1;
    if (!rescue || (near & kAllLanes) == 0) continue;
    for (int r = 0; r < kTileRows; ++r)
      for (Index c = j; c < j + kTileColumns<T>; ++c)
        if (!(out[r * stride + c] > ratio * (x.norms[r] + y.norms[c])))
          direct[n_direct++] = {static_cast<std::int16_t>(r), static_cast<std::int16_t>(c)};
  }
  if (!rescue)  // the plain expansion may come out below 0
    for (int r = 0; r < kTileRows; ++r)
      for (Index c = 0; c < width; ++c) out[r * stride + c] = out[r * stride + c] < T(0) ? T(0) : out[r * stride + c];
  return n_direct;
}

// The score of one pair from the original features.
template <class T, class Source>
T direct_score(const T* x, Index x_stride, const T* y, Index y_stride, Index n_features) {
  T sum = T(0);
  Index d = 0;
  if (x_stride == 1 && y_stride == 1) {
    Vector<T> sums{};
    for (; d + kLanes<T> <= n_features; d += kLanes<T>) sums = Source::map(sums, load(x + d), load(y + d));
    sum = horizontal_sum<T>(sums);
    for (; d < n_features; ++d) sum = Source::map(sum, x[d], y[d]);
    return sum;
  }
  // The same order of additions for other strides, so that a copy gives the same value.
  T lanes[kLanes<T>] = {};
  for (; d + kLanes<T> <= n_features; d += kLanes<T>)
    for (int lane = 0; lane < kLanes<T>; ++lane) lanes[lane] = Source::map(lanes[lane], x[(d + lane) * x_stride], y[(d + lane) * y_stride]);
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += lanes[lane];
  for (; d < n_features; ++d) sum = Source::map(sum, x[d * x_stride], y[d * y_stride]);
  return sum;
}

}  // namespace torchpairwise::cpu::TP_ISA
