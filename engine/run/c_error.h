// Errors of the C interfaces of both libraries.
#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "anneal/engine/run/c_api.h"
#include "anneal/engine/run/c_struct.h"

namespace anneal {

static_assert(ANNEAL_INVALID_MODEL == static_cast<int>(ErrorCode::kInvalidModel) + 1 &&
              ANNEAL_CANCELLED == static_cast<int>(ErrorCode::kCancelled) + 1 &&
              ANNEAL_CANNOT_WRITE == static_cast<int>(ErrorCode::kCannotWrite) + 1);

// Fills what the program's struct has of an error, and returns its code. A struct without a valid
// size is left as it is.
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
