// Which path runs a call.
#pragma once

#include "ops/call.h"

namespace torchpairwise::ops {

struct Choice {
  bool native = false;
  std::vector<std::string> reasons;  // why not native
};

// ValueError with the reasons where the caller asked for the native path and it cannot run.
Choice choose(const Call& call);

// As choose(), without the error.
Choice preferred(const Call& call);

}  // namespace torchpairwise::ops
