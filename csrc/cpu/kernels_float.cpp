#include "cpu/kernels.inc"

namespace torchpairwise::cpu::TP_ISA {
const Kernels& kernels_float() {
  static constexpr Kernels kTable = make_kernels<float>();
  return kTable;
}
}  // namespace torchpairwise::cpu::TP_ISA
