// Elementary functions of one number, written without branches or calls so that a loop over a strip becomes vector code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/macros.h"

namespace torchpairwise::math {

template <class To, class From>
TP_HD To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// a * b + c, contracted to one instruction where the processor has it. std::fma would be a library call where it has not.
template <class T>
TP_HD T multiply_add(T a, T b, T c) {
  return a * b + c;
}

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

// exp(x) = 2^n p(r) with n = round(x / ln 2) and r = x - n ln 2 in [-0.347, 0.347]; n is rounded by adding 1.5 * 2^23 (2^52), whose
// low bits then hold it. Relative error below 2 ulp; values under the smallest normal number are exactly 0, NaN stays NaN.
TP_HD float exp(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  const float shifted = multiply_add(x, 1.44269504088896341f, kMagic);
  const float n = shifted - kMagic;
  float r = multiply_add(n, -0.693359375f, x);
  r = multiply_add(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;  // minimax coefficients of exp(r) - 1 - r over r^2 (Cephes expf)
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  p = multiply_add(p, r * r, r) + 1.0f;
  const std::uint32_t power = bit_cast<std::uint32_t>(shifted) << 23;
  float value = bit_cast<float>(bit_cast<std::uint32_t>(p) + power);
  value = x > 88.7228317f ? kInfinity<float> : value;
  value = x < -87.3365448f ? 0.0f : value;
  return x == x ? value : x;
}

TP_HD double exp(double x) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = multiply_add(x, 1.44269504088896340736, kMagic);
  const double n = shifted - kMagic;
  double r = multiply_add(n, -6.93147180369123816490e-01, x);
  r = multiply_add(n, -1.90821492927058770002e-10, r);
  double p = 1.0 / 6227020800.0;  // Taylor series to r^13: the first term left out is below 2e-18
  p = multiply_add(p, r, 1.0 / 479001600.0);
  p = multiply_add(p, r, 1.0 / 39916800.0);
  p = multiply_add(p, r, 1.0 / 3628800.0);
  p = multiply_add(p, r, 1.0 / 362880.0);
  p = multiply_add(p, r, 1.0 / 40320.0);
  p = multiply_add(p, r, 1.0 / 5040.0);
  p = multiply_add(p, r, 1.0 / 720.0);
  p = multiply_add(p, r, 1.0 / 120.0);
  p = multiply_add(p, r, 1.0 / 24.0);
  p = multiply_add(p, r, 1.0 / 6.0);
  p = multiply_add(p, r, 0.5);
  p = multiply_add(p, r * r, r) + 1.0;
  const std::uint64_t power = bit_cast<std::uint64_t>(shifted) << 52;
  double value = bit_cast<double>(bit_cast<std::uint64_t>(p) + power);
  value = x > 709.782712893383973096 ? kInfinity<double> : value;
  value = x < -708.396418532264106224 ? 0.0 : value;
  return x == x ? value : x;
}

// These two also take a vector of numbers (core/vector.h).
template <class T>
TP_HD T absolute(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x < T(0) ? -x : x + T(0);  // -0 becomes 0
  } else {
    using Bits = decltype(x < x);
    constexpr auto kMagnitude = std::numeric_limits<std::remove_reference_t<decltype(std::declval<Bits>()[0])>>::max();
    return (T)((Bits)x & kMagnitude);
  }
}

template <class T>
TP_HD T sign(T x) {
  const T zero{}, one = zero + 1;
  return x > zero ? one : (x < zero ? -one : zero);
}

}  // namespace torchpairwise::math
