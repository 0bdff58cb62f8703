// Chooses the instruction set once: the best that the processor has, or the one that TORCHPAIRWISE_ISA names.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu/kernels.h"

namespace torchpairwise::cpu {

namespace baseline {
const Kernels& kernels_float();
const Kernels& kernels_double();
}  // namespace baseline
#if defined(TORCHPAIRWISE_X86)
namespace avx2 {
const Kernels& kernels_float();
const Kernels& kernels_double();
}  // namespace avx2
namespace avx512 {
const Kernels& kernels_float();
const Kernels& kernels_double();
}  // namespace avx512
#endif

namespace {

enum class Isa { kBaseline, kAvx2, kAvx512 };

Isa best_isa() {
#if defined(TORCHPAIRWISE_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa choose_isa() {
  const Isa best = best_isa();
  const char* wanted = std::getenv("TORCHPAIRWISE_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  const std::string name = wanted;
  const Isa isa = name == "avx512" ? Isa::kAvx512 : (name == "avx2" ? Isa::kAvx2 : Isa::kBaseline);
  if (name != "avx512" && name != "avx2" && name != "baseline")
    throw std::invalid_argument("TORCHPAIRWISE_ISA is '" + name + "'; expected baseline, avx2 or avx512");
  if (isa > best) throw std::invalid_argument("TORCHPAIRWISE_ISA is '" + name + "', which this processor or this build does not have");
  return isa;
}

}  // namespace

template <class T>
const Kernels& kernels() {
  static const Isa isa = choose_isa();
  constexpr bool kFloat = sizeof(T) == sizeof(float);
#if defined(TORCHPAIRWISE_X86)
  if (isa == Isa::kAvx512) return kFloat ? avx512::kernels_float() : avx512::kernels_double();
  if (isa == Isa::kAvx2) return kFloat ? avx2::kernels_float() : avx2::kernels_double();
#endif
  (void)isa;
  return kFloat ? baseline::kernels_float() : baseline::kernels_double();
}

template const Kernels& kernels<float>();
template const Kernels& kernels<double>();

}  // namespace torchpairwise::cpu
