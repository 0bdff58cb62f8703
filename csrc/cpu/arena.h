// Scratch memory handed out in aligned pieces. The same layout code runs with a null base to measure how much is needed.
#pragma once

#include "core/macros.h"
#include "core/types.h"

namespace torchpairwise::cpu::TP_ISA {

class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(Index count) {
    constexpr Index kAlignment = 64;  // a cache line, and the widest vector
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<Index>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  Index used() const { return used_; }

 private:
  char* base_;
  Index used_ = 0;
};

}  // namespace torchpairwise::cpu::TP_ISA
