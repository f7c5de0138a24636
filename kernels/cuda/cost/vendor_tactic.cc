#include "anneal/kernels/cuda/cost/vendor_tactic.h"

#include <fmt/format.h>

#include "anneal/core/bytes.h"
#include "anneal/core/error.h"

namespace anneal::cuda {

std::string library_version_text(uint32_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::vector<std::byte> tactic_of(const VendorTactic& tactic) {
  ByteWriter to;
  to.number(tactic.library_version);
  to.number(tactic.architecture);
  to.number(tactic.workspace_bytes);
  to.text(tactic.algorithm);
  to.blob(tactic.bytes);
  return to.take();
}

std::optional<VendorTactic> vendor_tactic_of(std::span<const std::byte> tactic) {
  try {
    ByteReader from(tactic, "tactic");
    VendorTactic read;
    read.library_version = from.number<uint32_t>();
    read.architecture = from.number<uint32_t>();
    read.workspace_bytes = from.number<uint64_t>();
    read.algorithm = from.text();
    const auto bytes = from.blob();
    read.bytes.assign(bytes.begin(), bytes.end());
    from.expect_end();
    return read;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace anneal::cuda
