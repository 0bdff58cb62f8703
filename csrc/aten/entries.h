// Entries of the tensor path, found by the name of the record they belong to.
#pragma once

#include <c10/util/Exception.h>

#include <cstring>
#include <vector>

namespace torchpairwise::aten {

// The entries of `table` in the order of the type list `List`. A record without an entry is a mistake of the build, and says so.
template <class List, class Entry, std::size_t n>
std::vector<const Entry*> entries_of(const Entry (&table)[n], const char* file) {
  std::vector<const Entry*> out;
  List::for_each([&]<class Record>() {
    const Entry* found = nullptr;
    for (const Entry& entry : table)
      if (std::strcmp(entry.name, Record::kInfo.name) == 0) found = &entry;
    TORCH_INTERNAL_ASSERT(found != nullptr, "'", Record::kInfo.name, "' has no entry in ", file);
    out.push_back(found);
  });
  return out;
}

}  // namespace torchpairwise::aten
