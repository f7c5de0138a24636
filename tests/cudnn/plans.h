// Plans of the installed cuDNN.
#pragma once
#include <fmt/format.h>

#include <string>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// The only entry of an op.
inline const KernelEntry& cudnn_entry_of(const Op& op) {
  for (const KernelEntry& entry : cudnn_entries())
    if (entry.op == op.index()) return entry;
  return cudnn_entries()[0];
}

// Why a test that needs cuDNN, of this version if one is given, cannot run; empty if it can.
inline std::string why_no_cudnn(const std::string& version = {}) {
  const LibraryTable<Cudnn>& library = cudnn_library();
  if (!library.table) return library.why_not;
  const std::string found = std::to_string(library.table->cudnnGetVersion());
  if (!version.empty() && found != version)
    return fmt::format("cuDNN {} is here, and the test is for {}", found, version);
  return {};
}

}  // namespace anneal::cuda
