// Arrays of Python as views of their memory: NumPy arrays, and everything with the buffer protocol
// or DLPack. Callers of every function have the GIL.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <string>
#include <string_view>

#include "anneal/core/dims.h"
#include "anneal/core/tensor.h"
#include "anneal/core/tensor_view.h"

namespace anneal::python {

// The name that NumPy and ml_dtypes give an element type: "float32", "bfloat16".
std::string_view numpy_name(DataType dtype);

// The name of an input or output. Raises TypeError for what is no str.
std::string port_name(nanobind::handle name);

// NumPy's functions, looked up once.
class NumPy {
 public:
  NumPy();
  // Dense and row-major. bf16 is ml_dtypes.bfloat16 where ml_dtypes is installed, else uint16.
  nanobind::object make(DataType dtype, const Dims& dims, TensorView& view) const;
  nanobind::object copy_of(const ConstTensorView& memory) const;
  nanobind::object contiguous(nanobind::handle array) const { return contiguous_(array); }
  nanobind::object dense_int32(nanobind::handle array) const {
    return contiguous_(array, dtypes_[static_cast<size_t>(DataType::kI32)]);
  }

 private:
  nanobind::object empty_, contiguous_, bfloat16_;  // bfloat16_ is null without ml_dtypes
  std::array<nanobind::object, 16> dtypes_;         // by DataType; bf16 is uint16
};

// Memory that is read. It lives as long as the ReadArray.
struct ReadArray {
  nanobind::ndarray<nanobind::ro> array;
  ConstTensorView view;
  bool is_copied = false;
};
// `wanted` is the element type of the port: uint16 elements are taken as bf16 if it is bf16, and
// otherwise the view has the type that the array has. Strides that a view cannot have (negative
// ones, and such that are no multiple of the element size) make a copy. Raises TypeError, naming
// the port, for what is no array, and an Error for a dtype that no tensor has.
ReadArray read_array(nanobind::handle given, DataType wanted, const NumPy& numpy,
                     std::string_view port);

// A copy of an array's elements.
Tensor tensor_of(nanobind::handle array, DataType wanted, std::string_view port,
                 const NumPy& numpy);

// Memory that is written, in place: never a copy. Refuses memory that is read-only.
struct WrittenArray {
  nanobind::ndarray<> array;
  TensorView view;
};
WrittenArray written_array(nanobind::handle object, DataType wanted, const NumPy& numpy,
                           std::string_view port);

}  // namespace anneal::python
