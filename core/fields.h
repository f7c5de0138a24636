// Plain structs that name their members once: `static void fields(auto& object, auto&& f)` calls
// f("member", object.member) for each. Derived functions therefore cannot forget a member. A test
// compares field_count with arity, so fields() cannot either.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

namespace anneal {

namespace detail {
struct AnyField {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField{})...}; };
}
}  // namespace detail

// Members of the aggregate T.
template <class T, size_t N = 0>
constexpr size_t arity() {
  if constexpr (!detail::takes<T>(std::make_index_sequence<N + 1>{})) {
    return N;
  } else {
    return arity<T, N + 1>();
  }
}

// Members that T::fields() names.
template <class T>
constexpr size_t field_count() {
  size_t count = 0;
  T object{};
  T::fields(object, [&](const char*, auto&) { ++count; });
  return count;
}

}  // namespace anneal
