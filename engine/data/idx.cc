#include "anneal/engine/data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"

namespace anneal {
namespace {

[[noreturn]] void refuse_idx(const std::string& why) {
  fail(ErrorCode::kInvalidArgument, "idx: " + why);
}

std::optional<DataType> dtype_of(uint8_t code) {
  switch (code) {
    case 0x08:
      return DataType::kU8;
    case 0x09:
      return DataType::kI8;
    case 0x0B:
      return DataType::kI16;
    case 0x0C:
      return DataType::kI32;
    case 0x0D:
      return DataType::kF32;
    case 0x0E:
      return DataType::kF64;
    default:
      return std::nullopt;
  }
}

}  // namespace

Tensor read_idx(std::span<const std::byte> bytes) {
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b})
    refuse_idx("the file is compressed; unpack it with gunzip first");
  if (bytes.size() < 4 || bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
    refuse_idx("the first two bytes are not 0");
  const auto dtype = dtype_of(static_cast<uint8_t>(bytes[2]));
  if (!dtype)
    refuse_idx(fmt::format("unknown element type {:#04x}", static_cast<uint8_t>(bytes[2])));
  const size_t rank = static_cast<uint8_t>(bytes[3]);
  if (rank > kMaxRank) refuse_idx(fmt::format("{} axes, at most 8 are possible", rank));
  const size_t header = 4 + 4 * rank;
  if (bytes.size() < header) refuse_idx("the file ends within its header");

  Dims dims;
  for (size_t axis = 0; axis < rank; ++axis) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<uint8_t>(bytes[4 + 4 * axis + i]);
    dims.push_back(size);
  }
  const auto content = bytes.subspan(header);
  const size_t element = size_of(*dtype);
  const auto elements = static_cast<uint64_t>(count(dims));
  if (elements != content.size() / element || content.size() % element != 0)
    refuse_idx(
        fmt::format("the header says {} elements of {} ({}), the file holds {} bytes of them",
                    elements, to_string(*dtype), to_string(dims), content.size()));

  auto read = allocate_tensor(*dtype, dims);
  if (content.empty()) return read.tensor;
  std::memcpy(read.data.data(), content.data(), content.size());
  for (size_t at = 0; element > 1 && at < read.data.size(); at += element)
    std::reverse(read.data.data() + at, read.data.data() + at + element);
  return read.tensor;
}

}  // namespace anneal
