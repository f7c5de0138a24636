// Attempt: the value of a call, or the Error that ended it.
#pragma once
#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

// At the borders of the importer an Error becomes a value. Borders are an operator's row, shape
// inference and size arithmetic, which may refuse their operands, and a body or a model that can
// be imported in several ways. A caller that cannot act on the error throws it again.
template <class T>
class [[nodiscard]] Attempt {
 public:
  Attempt(T value) : value_(std::move(value)) {}
  Attempt(Error error) : error_(std::move(error)) {}

  explicit operator bool() const { return value_.has_value(); }
  // REQUIRES: there is a value
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  // REQUIRES: there is none
  const Error& error() const { return *error_; }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

template <std::invocable Call>
Attempt<std::invoke_result_t<Call>> attempt(Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace anneal
