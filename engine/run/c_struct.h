// Structs that cross the C interface: each begins with its size, as its program was compiled.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "anneal/core/error.h"

namespace anneal {

// How errors call a struct.
template <class Struct>
[[noreturn]] void fail_struct(ErrorCode code, const char* name, const char* why) {
  throw Error(code, std::string(why) + ": set size to sizeof(" + name + ")");
}

template <class Struct>
bool has_valid_size(const Struct* given) {
  return given->size > sizeof(given->size) && given->size <= (1 << 20);
}

template <class Struct>
uint64_t checked_size(const Struct* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct> && std::is_standard_layout_v<Struct>);
  static_assert(offsetof(Struct, size) == 0);
  if (!has_valid_size(given))
    fail_struct<Struct>(ErrorCode::kInvalidArgument, name, "a struct has no size");
  return given->size;
}

// A program's struct as one of this library's version. Fields that the program's lacks are 0. One
// of a later version may have more fields if they are 0; else it fails with kUnsupported.
template <class Struct>
Struct read_struct(const Struct* given, const char* name) {
  const uint64_t size = checked_size(given, name);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + size, [](unsigned char byte) { return byte; }))
    fail_struct<Struct>(ErrorCode::kUnsupported, name, "a struct uses fields of a later version");
  Struct known = {};
  std::memcpy(&known, given, std::min<uint64_t>(size, sizeof(Struct)));
  return known;
}

// Fills the fields that a program's struct has, and those of later versions with 0.
template <class Struct>
void write_struct(Struct* to, Struct value, const char* name) {
  const uint64_t size = checked_size(to, name);
  value.size = size;
  std::memcpy(to, &value, std::min<uint64_t>(size, sizeof(Struct)));
  if (size > sizeof(Struct))
    std::memset(reinterpret_cast<unsigned char*>(to) + sizeof(Struct), 0, size - sizeof(Struct));
}

// Element `index` of an array whose elements all have the size of the first.
template <class Struct>
Struct* element_of(Struct* first, const char* name, int32_t index) {
  using Byte = std::conditional_t<std::is_const_v<Struct>, const unsigned char, unsigned char>;
  return reinterpret_cast<Struct*>(reinterpret_cast<Byte*>(first) +
                                   checked_size(first, name) * static_cast<uint64_t>(index));
}

}  // namespace anneal
