#include "anneal/engine/data/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/engine/data/inflate.h"
#include "anneal/engine/data/npy.h"

namespace anneal {
namespace {

using Bytes = std::span<const std::byte>;

[[noreturn]] void refuse_npz(std::string_view why) {
  fail(ErrorCode::kInvalidArgument, fmt::format(".npz: {}", why));
}

Bytes part(Bytes bytes, size_t at, size_t size) {
  if (at > bytes.size() || size > bytes.size() - at)
    refuse_npz("the archive is cut off or damaged");
  return bytes.subspan(at, size);
}

template <class T>
T zip_number(Bytes bytes, size_t at) {
  T value;
  std::memcpy(&value, part(bytes, at, sizeof(T)).data(), sizeof(T));
  return value;
}

// Offsets within the records of the zip format.
constexpr uint32_t kEnd = 0x06054b50, kEntry = 0x02014b50, kMember = 0x04034b50;
constexpr size_t kEndSize = 22, kEntrySize = 46, kMemberSize = 30;

// The record at the end of the archive, behind which only a comment may stand.
size_t find_end(Bytes bytes) {
  for (size_t back = kEndSize; back <= std::min<size_t>(bytes.size(), kEndSize + 0xffff); ++back)
    if (zip_number<uint32_t>(bytes, bytes.size() - back) == kEnd) return bytes.size() - back;
  refuse_npz("it is no zip archive, or its end is missing");
}

Tensor read_member(Bytes bytes, Bytes entry) {
  const auto flags = zip_number<uint16_t>(entry, 8), method = zip_number<uint16_t>(entry, 10);
  const auto crc = zip_number<uint32_t>(entry, 16), packed = zip_number<uint32_t>(entry, 20);
  const auto size = zip_number<uint32_t>(entry, 24), at = zip_number<uint32_t>(entry, 42);
  if ((flags & 1) != 0) refuse_npz("it is encrypted");
  if (packed == 0xffffffff || size == 0xffffffff || at == 0xffffffff)
    refuse_npz("members of 4 GiB and more are not read; save the arrays as .npy");
  const Bytes member = part(bytes, at, kMemberSize);
  if (zip_number<uint32_t>(member, 0) != kMember) refuse_npz("the archive's table is damaged");
  const size_t skip =
      kMemberSize + zip_number<uint16_t>(member, 26) + zip_number<uint16_t>(member, 28);
  const Bytes content = part(bytes, at + skip, packed);
  std::vector<std::byte> inflated;
  Bytes whole = content;
  if (method == 8) {
    inflated = inflate_raw(content, size);
    whole = inflated;
  } else if (method != 0) {
    refuse_npz(fmt::format("compression method {} is not known", method));
  }
  if (whole.size() != size ||
      crc32_z(0, reinterpret_cast<const Bytef*>(whole.data()), whole.size()) != crc)
    refuse_npz("its checksum is wrong: the archive is damaged");
  return read_npy(whole);
}

}  // namespace

std::vector<NamedArray> read_npz(Bytes bytes) {
  const size_t end = find_end(bytes);
  const auto entries = zip_number<uint16_t>(bytes, end + 10);
  size_t at = zip_number<uint32_t>(bytes, end + 16);
  std::vector<NamedArray> arrays;
  for (int i = 0; i < entries; ++i) {
    const Bytes entry = part(bytes, at, kEntrySize);
    if (zip_number<uint32_t>(entry, 0) != kEntry) refuse_npz("the archive's table is damaged");
    const size_t name_size = zip_number<uint16_t>(entry, 28);
    const Bytes name_bytes = part(bytes, at + kEntrySize, name_size);
    std::string name(reinterpret_cast<const char*>(name_bytes.data()), name_size);
    at +=
        kEntrySize + name_size + zip_number<uint16_t>(entry, 30) + zip_number<uint16_t>(entry, 32);
    if (!name.ends_with(".npy")) refuse_npz(fmt::format("member \"{}\" is no .npy array", name));
    Tensor array = with_context([&] { return fmt::format("in member \"{}\"", name); },
                                [&] { return read_member(bytes, entry); });
    name.resize(name.size() - 4);
    arrays.push_back({std::move(name), std::move(array)});
  }
  if (arrays.empty()) refuse_npz("the archive holds no arrays");
  return arrays;
}

}  // namespace anneal
