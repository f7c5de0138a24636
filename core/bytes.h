// Writer and reader of little-endian bytes. The reader treats its bytes as untrusted: it compares
// every count and length with the remaining bytes before it uses it. A violation fails with
// kIncompatiblePlan.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace anneal {

class ThreadTeam;

static_assert(std::endian::native == std::endian::little, "files and kernels are little-endian");

class ByteWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void number(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  void text(std::string_view value);            // u32 length, bytes
  void blob(std::span<const std::byte> value);  // u64 length, bytes
  void raw(std::span<const std::byte> value);   // bytes alone
  void align(size_t alignment);                 // zero bytes up to a multiple
  size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  // what: the name of the item that is read, for errors ("section steps").
  ByteReader(std::span<const std::byte> bytes, std::string what);
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  bool boolean();  // fails unless 0 or 1
  std::string text();
  std::span<const std::byte> blob();
  std::span<const std::byte> raw(size_t size) { return take(size); }
  // A u32 count of things that take at least element_size (>= 1) bytes each.
  size_t count(size_t element_size);
  size_t left() const { return bytes_.size() - at_; }
  void expect_end() const;  // fails if bytes are left
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::span<const std::byte> take(size_t size);
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  std::string what_;
};

// CRC-32C (Castagnoli), with the SSE 4.2 instruction where there is one.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);
// The same, on the threads of a team.
uint32_t crc32c(std::span<const std::byte> bytes, ThreadTeam& team, uint32_t seed = 0);
// FNV-1a, 64 bit: for hash tables, not for files.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0xcbf29ce484222325u);

}  // namespace anneal
