// Signatures of C functions as text, by which our declarations are compared with a vendor's header.
#pragma once
#include <string>
#include <type_traits>

namespace anneal::cuda {

// How a type travels: "i4" an integer or enumerator of 4 bytes, "p" and what it points at.
template <class T>
std::string passing_of() {
  if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    const std::string constant = std::is_const_v<To> ? "c" : "";
    using Plain = std::remove_const_t<To>;
    if constexpr (std::is_void_v<Plain> || std::is_class_v<Plain>)
      return "p" + constant + "?";
    else
      return "p" + constant + passing_of<Plain>();
  } else if constexpr (std::is_void_v<T>) {
    return "v";
  } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
    return "i" + std::to_string(sizeof(T));
  } else {
    static_assert(std::is_floating_point_v<T>);
    return "f" + std::to_string(sizeof(T));
  }
}
template <class R, class... A>
std::string signature_of(R (*)(A...)) {
  std::string text = passing_of<R>() + "(";
  ((text += passing_of<A>() + " "), ...);
  return text + ")";
}
template <class F>
std::string signature_of() {
  return signature_of(static_cast<F>(nullptr));
}

}  // namespace anneal::cuda
