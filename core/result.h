// A value, or the reason why there is none, for functions whose "no" is an expected answer.
#pragma once
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace anneal {

// Why there is no value. Becomes the Result of any type.
struct Refusal {
  std::string reason;  // "conv_nhwc: only f32"
};
inline Refusal refuse(std::string reason) { return {std::move(reason)}; }

// Errors are exceptions (core/error.h); a Result is for answers that the caller acts on.
template <class T>
class [[nodiscard]] Result {
 public:
  template <class U = T>
  requires(std::convertible_to<U&&, T> && !std::same_as<std::remove_cvref_t<U>, Result>)
      Result(U&& value)  // NOLINT(bugprone-forwarding-reference-overload): constrained
      : value_(std::forward<U>(value)) {}
  Result(Refusal refusal) : reason_(std::move(refusal.reason)) {}

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return value_.has_value(); }

  // REQUIRES: has_value()
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  const std::string& reason() const { return reason_; }  // empty if there is a value

 private:
  std::optional<T> value_;
  std::string reason_;
};

}  // namespace anneal
