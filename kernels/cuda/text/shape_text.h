// The numbers of a kernel as a struct of its text: constants where they are known when the kernel
// is made, members where they are parameters, and the template reads both alike.
#pragma once
#include <string>
#include <string_view>

#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// "i32" if offsets into every operand of the op, and its sizes, are surely far below 2^31.
std::string_view index_type(const Request& request);

class ShapeText {
 public:
  explicit ShapeText(std::string_view index) : index_(index) {}
  std::string_view index() const { return index_; }

  // value: an expression of literals and of Extents' parameters.
  void number(std::string_view name, std::string_view value);
  void number(std::string_view name, int64_t value);
  void flag(std::string_view name, bool value);
  void add(std::string_view declaration);  // of a function or type

  std::string definition() const;  // "struct Shape { using Index = i32; ... };"
  std::string construction() const { return "Shape{" + values_ + "}"; }

 private:
  std::string index_, constants_, members_, values_, declarations_;
};

// The expression, or 1 if the size is 0: nothing runs then, and no text divides by 0.
std::string divisor_text(Size size, std::string expression);
// "(a + 63) / 64"
std::string ceil_div_text(std::string_view a, int64_t b);

}  // namespace anneal::cuda
