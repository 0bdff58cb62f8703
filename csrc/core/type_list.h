// A list of types, and the two things the library does with one: find a name, and run a function for the type at an index.
#pragma once

#include <cstring>

#include "core/macros.h"

namespace torchpairwise {

template <class... Types>
struct TypeList {
  static constexpr int kSize = sizeof...(Types);

  // Calls f.template operator()<Type>() for the type at `index`; does nothing when it is out of range.
  template <class F>
  TP_HD static void visit(int index, F&& f) {
    int i = 0;
    (void)((i++ == index ? (f.template operator()<Types>(), true) : false) || ...);
  }

  // Calls f for every type in order.
  template <class F>
  static void for_each(F&& f) {
    (f.template operator()<Types>(), ...);
  }

  // Index of the type whose record has this name, or -1.
  static int find(const char* name) {
    int found = -1, i = 0;
    (void)((std::strcmp(Types::kInfo.name, name) == 0 ? (found = i, true) : (++i, false)) || ...);
    return found;
  }
};

}  // namespace torchpairwise
