// Structs and errors that cross the C interfaces of both libraries. Each struct begins with its
// size, as its program was compiled.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "anneal/core/application/hooks.h"
#include "anneal/core/error.h"
#include "anneal/engine/run/c_api.h"

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
    throw Error(ErrorCode::kUnsupported, std::string(name) +
                                             " has fields that this library does not know: use the "
                                             "library of the program's header, or a later one");
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

// The paths of an options struct.
inline std::vector<std::string> library_paths(const char* const* paths, uint64_t count) {
  if (count > 0 && !paths) throw Error(ErrorCode::kInvalidArgument, "libraries is null");
  std::vector<std::string> result;
  for (uint64_t i = 0; i < count; ++i) {
    if (!paths[i]) throw Error(ErrorCode::kInvalidArgument, "a path of libraries is null");
    result.emplace_back(paths[i]);
  }
  return result;
}

// Empty if log is null.
inline LogSink log_sink(anneal_log log, void* argument) {
  if (!log) return {};
  return [log, argument](Severity severity, std::string_view text) {
    log(argument, static_cast<anneal_severity>(severity), std::string(text).c_str());
  };
}

static_assert(ANNEAL_WARNING == static_cast<int>(Severity::kWarning));
static_assert(ANNEAL_INVALID_MODEL == static_cast<int>(ErrorCode::kInvalidModel) + 1 &&
              ANNEAL_CANCELLED == static_cast<int>(ErrorCode::kCancelled) + 1 &&
              ANNEAL_CANNOT_WRITE == static_cast<int>(ErrorCode::kCannotWrite) + 1);

// Fills the fields that the program's struct has, and returns the code. A struct without a valid
// size is not written.
inline anneal_code report_error(anneal_error* error, ErrorCode failed, std::string_view message,
                                const Error* failure = nullptr) noexcept {
  const auto code = static_cast<anneal_code>(static_cast<int>(failed) + 1);
  if (!error || !has_valid_size(error)) return code;
  const auto copy_text = [](auto& to, std::string_view text) {
    const size_t length = std::min(text.size(), sizeof to - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
  };
  anneal_error filled = {};
  filled.code = code;
  copy_text(filled.message, message);
  if (failure) {
    copy_text(filled.port, failure->port());
    filled.rank = static_cast<int32_t>(failure->dims().size());
    std::ranges::copy(failure->dims(), filled.dims);
  }
  write_struct(error, filled, "anneal_error");
  // A text that the program's struct has in part ends there.
  for (const size_t begin : {offsetof(anneal_error, port), offsetof(anneal_error, message)})
    if (const size_t end = error->size; end > begin && end < sizeof(anneal_error))
      reinterpret_cast<char*>(error)[end - 1] = 0;
  return code;
}

// Runs body. No exception crosses into C.
template <class Body>
anneal_code guarded(anneal_error* error, Body&& body) noexcept {
  try {
    body();
    return ANNEAL_OK;
  } catch (const Error& failure) {
    return report_error(error, failure.code(), failure.what(), &failure);
  } catch (const std::bad_alloc&) {
    return report_error(error, ErrorCode::kOutOfMemory, "there is not enough memory");
  } catch (const std::exception& failure) {
    return report_error(error, ErrorCode::kInternal, failure.what());
  }
}

}  // namespace anneal
