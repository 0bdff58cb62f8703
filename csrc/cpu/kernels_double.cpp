#include "cpu/kernels.inc"

namespace torchpairwise::cpu::TP_ISA {
const Kernels& kernels_double() {
  static constexpr Kernels kTable = make_kernels<double>();
  return kTable;
}
}  // namespace torchpairwise::cpu::TP_ISA
