#include "anneal/core/bytes.h"

#include <limits>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

void ByteWriter::text(std::string_view value) {
  check(value.size() <= std::numeric_limits<uint32_t>::max(), "a text of at most 4 GiB");
  number(static_cast<uint32_t>(value.size()));
  raw(std::as_bytes(std::span(value)));
}

void ByteWriter::blob(std::span<const std::byte> value) {
  number(static_cast<uint64_t>(value.size()));
  raw(value);
}

void ByteWriter::raw(std::span<const std::byte> value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
}

void ByteWriter::align(size_t alignment) {
  const size_t over = bytes_.size() % alignment;
  if (over != 0) bytes_.resize(bytes_.size() + alignment - over);
}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string what)
    : bytes_(bytes), what_(std::move(what)) {}

bool ByteReader::boolean() {
  const auto value = number<uint8_t>();
  if (value > 1) refuse("a boolean that is neither 0 nor 1");
  return value == 1;
}

std::string ByteReader::text() {
  const auto bytes = take(number<uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> ByteReader::blob() { return take(number<uint64_t>()); }

size_t ByteReader::count(size_t element_size) {
  check(element_size > 0, "an element has at least one byte");
  const size_t value = number<uint32_t>();
  if (value > left() / element_size)
    refuse("a count of " + std::to_string(value) + " where " + std::to_string(left()) +
           " bytes are left");
  return value;
}

void ByteReader::expect_end() const {
  if (left() != 0) refuse(std::to_string(left()) + " bytes too many");
}

void ByteReader::refuse(std::string_view why) const {
  std::string text = what_;
  fail(ErrorCode::kIncompatiblePlan,
       text.append(": at byte ").append(std::to_string(at_)).append(": ").append(why));
}

std::span<const std::byte> ByteReader::take(size_t size) {
  if (size > left())
    refuse(std::to_string(size) + " bytes wanted, " + std::to_string(left()) + " left");
  const auto taken = bytes_.subspan(at_, size);
  at_ += size;
  return taken;
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  for (const std::byte byte : bytes) {
    seed ^= static_cast<uint64_t>(byte);
    seed *= 0x100000001b3u;
  }
  return seed;
}

}  // namespace anneal
