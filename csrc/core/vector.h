// Vectors of numbers by the compiler's vector extension: the same source becomes SSE2, AVX2 or AVX-512 code.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "core/macros.h"
#include "core/types.h"

namespace torchpairwise::vectors::TP_ISA {

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(TP_VECTOR_BYTES)));
  typedef T Unaligned __attribute__((vector_size(TP_VECTOR_BYTES), aligned(alignof(T)), may_alias));
};

template <class T>
using Vector = typename VectorOf<T>::Type;

template <class T>
inline constexpr int kLanes = TP_VECTOR_BYTES / sizeof(T);

// A register tile is kTileRows x kTileColumns scores. With 32 registers (AVX-512) 24 accumulators, 2 columns and a broadcast fit; with 16
// registers 12 accumulators do.
inline constexpr int kTileRows = TP_VECTOR_BYTES == 64 ? 12 : 6;
inline constexpr int kTileVectors = 2;
template <class T>
inline constexpr int kTileColumns = kTileVectors * kLanes<T>;

template <class T>
TP_HD Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
}

template <class T>
TP_HD void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = value;
}

template <class T>
TP_HD Vector<T> broadcast(T value) {
  return value - Vector<T>{};  // value in every lane; the difference keeps the sign of zero
}

template <class T>
TP_HD T horizontal_sum(Vector<T> value) {
  T sum = T(0);
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += value[lane];
  return sum;
}

// a0 b0 a1 b1 ...: from the first half of the lanes (kHalf 0) or from the second (kHalf 1).
template <class T, int kHalf>
TP_HD Vector<T> interleave(Vector<T> a, Vector<T> b) {
  using Lanes = decltype(a < b);
  Lanes lanes{};
#pragma GCC unroll 16
  for (int n = 0; n < kLanes<T>; ++n) lanes[n] = kHalf * kLanes<T> / 2 + n / 2 + n % 2 * kLanes<T>;
  return __builtin_shuffle(a, b, lanes);
}

// Transposes a square of vectors: each round interleaves the first half of the rows with the second.
template <class T>
TP_HD void transpose(Vector<T> (&rows)[kLanes<T>]) {
  constexpr int kHalf = kLanes<T> / 2;
#pragma GCC unroll 4
  for (int round = 1; round < kLanes<T>; round *= 2) {
    Vector<T> next[kLanes<T>];
#pragma GCC unroll 8
    for (int n = 0; n < kHalf; ++n) {
      next[2 * n] = interleave<T, 0>(rows[n], rows[n + kHalf]);
      next[2 * n + 1] = interleave<T, 1>(rows[n], rows[n + kHalf]);
    }
#pragma GCC unroll 16
    for (int n = 0; n < kLanes<T>; ++n) rows[n] = next[n];
  }
}

// One bit a lane, set where a < b.
TP_HD unsigned less_bits(Vector<float> a, Vector<float> b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
#elif defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_LT_OQ)));
#elif defined(__SSE2__)
  return static_cast<unsigned>(_mm_movemask_ps(_mm_cmplt_ps((__m128)a, (__m128)b)));
#else
  unsigned bits = 0;
  for (int lane = 0; lane < kLanes<float>; ++lane) bits |= unsigned(a[lane] < b[lane]) << lane;
  return bits;
#endif
}

TP_HD unsigned less_bits(Vector<double> a, Vector<double> b) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ);
#elif defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_LT_OQ)));
#elif defined(__SSE2__)
  return static_cast<unsigned>(_mm_movemask_pd(_mm_cmplt_pd((__m128d)a, (__m128d)b)));
#else
  unsigned bits = 0;
  for (int lane = 0; lane < kLanes<double>; ++lane) bits |= unsigned(a[lane] < b[lane]) << lane;
  return bits;
#endif
}

TP_HD Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }
TP_HD Index least(Index a, Index b) { return a < b ? a : b; }

}  // namespace torchpairwise::vectors::TP_ISA
