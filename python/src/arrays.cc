#include "anneal/python/src/arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "anneal/core/error.h"
#include "anneal/python/src/dims_caster.h"

namespace nb = nanobind;

namespace anneal::python {
namespace {

constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;  // of DLPack

std::optional<DataType> dtype_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto by_size = [&](DataType one, DataType two, DataType four,
                           DataType eight) -> std::optional<DataType> {
    switch (dtype.bits) {
      case 8:
        return one;
      case 16:
        return two;
      case 32:
        return four;
      case 64:
        return eight;
      default:
        return std::nullopt;
    }
  };
  if (dtype.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(dtype.code)) {
    case Code::Int:
      return by_size(DataType::kI8, DataType::kI16, DataType::kI32, DataType::kI64);
    case Code::UInt:
      return by_size(DataType::kU8, DataType::kU16, DataType::kU32, DataType::kU64);
    case Code::Float:
      if (dtype.bits == 8) return std::nullopt;
      return by_size(DataType::kF32, DataType::kF16, DataType::kF32, DataType::kF64);
    case Code::Bfloat:
      return dtype.bits == 16 ? std::optional(DataType::kBF16) : std::nullopt;
    case Code::Bool:
      return dtype.bits == 8 ? std::optional(DataType::kBool) : std::nullopt;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void raise_no_array(nb::handle object, std::string_view port, const char* wanted) {
  throw nb::type_error(("\"" + std::string(port) + "\" is a " + nb::inst_name(object).c_str() +
                        ", not " + wanted + ": a NumPy array, or an object with __dlpack__")
                           .c_str());
}

// Why NumPy gives no memory of an array that says it has some.
[[noreturn]] void raise_dtype(nb::handle array, DataType wanted, std::string_view port) {
  const nb::str dtype(nb::getattr(array, "dtype", nb::str("of another library")));
  throw Error(ErrorCode::kInvalidArgument,
              "\"" + std::string(port) + "\" has dtype " + dtype.c_str() +
                  ", which no tensor has: convert it to " + std::string(numpy_name(wanted)),
              std::string(port));
}

// JAX arrays do not change, which their DLPack capsules do not say: their buffers do.
bool has_read_only_buffer(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_WRITABLE | PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    return true;
  }
  PyBuffer_Release(&buffer);
  return false;
}

// Elements that an object's view() gave as its bits. REQUIRES nothing of the object: its view may
// have any type.
template <class View>
void take_as_bfloat16(View& view, nb::handle object, std::string_view port) {
  if (view.dtype != DataType::kU16 && view.dtype != DataType::kBF16)
    raise_no_array(object, port, "an array of numbers");
  view.dtype = DataType::kBF16;
}

// Arrays of ml_dtypes have neither DLPack nor the buffer protocol: their bits have.
nb::object bits_of_bfloat16(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  if (!nb::isinstance<nb::str>(name) || nb::cast<std::string_view>(name) != "bfloat16" ||
      !nb::hasattr(object, "view") || !nb::hasattr(object, "__array_interface__"))
    return {};
  return object.attr("view")("uint16");
}

template <class Array>
MemoryPlace place_of(const Array& array, std::string_view port) {
  switch (array.device_type()) {
    case kCpu:
      return {};
    case kCudaHost:
      return {MemoryKind::kPinnedHost, 0};
    case kCuda:
    case kCudaManaged:
      return {MemoryKind::kCuda, array.device_id()};
    default:
      throw Error(ErrorCode::kUnsupported,
                  "\"" + std::string(port) +
                      "\" is in the memory of a device that Anneal does not "
                      "know (DLPack type " +
                      std::to_string(array.device_type()) + ")",
                  std::string(port));
  }
}

template <class View, class Array>
View view_of(const Array& array, DataType wanted, std::string_view port) {
  const std::optional<DataType> dtype = dtype_of(array.dtype());
  if (!dtype)
    throw Error(ErrorCode::kInvalidArgument,
                "\"" + std::string(port) + "\" has elements of a type that no tensor has (" +
                    std::to_string(array.dtype().bits) + " bits, DLPack code " +
                    std::to_string(array.dtype().code) + ")",
                std::string(port));
  View view;
  view.dtype = *dtype == DataType::kU16 && wanted == DataType::kBF16 ? wanted : *dtype;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    view.dims.push_back(static_cast<int64_t>(array.shape(axis)));
    view.strides.push_back(array.stride(axis));
  }
  view.data = reinterpret_cast<decltype(view.data)>(array.data());
  view.place = place_of(array, port);
  return view;
}

void copy_elements(std::byte* to, const ConstTensorView& from) {
  const auto element = static_cast<int64_t>(size_of(from.dtype));
  Dims index = from.dims;
  for (int64_t& at : index) at = 0;
  for (int64_t left = count(from.dims); left > 0; --left, to += element) {
    int64_t offset = 0;
    for (int axis = 0; axis < index.rank(); ++axis) offset += index[axis] * from.strides[axis];
    std::memcpy(to, from.data + offset * element, static_cast<size_t>(element));
    for (int axis = index.rank() - 1; axis >= 0 && ++index[axis] == from.dims[axis]; --axis)
      index[axis] = 0;
  }
}

bool has_negative(const Dims& strides) {
  return std::ranges::any_of(strides, [](int64_t stride) { return stride < 0; });
}

[[noreturn]] void raise_read_only(nb::handle object, std::string_view port) {
  throw nb::type_error(("\"" + std::string(port) + "\" is a read-only " +
                        nb::inst_name(object).c_str() + ", not an array that can be written")
                           .c_str());
}

// REQUIRES: nanobind takes no memory of the object to write to.
[[noreturn]] void raise_not_written(nb::handle object, DataType wanted, const NumPy& numpy,
                                    std::string_view port) {
  if (!nb::hasattr(object, "__array_interface__"))
    raise_no_array(object, port, "an array that can be written");
  const nb::object flags = nb::getattr(object, "flags", nb::none());
  const nb::object is_writeable = nb::getattr(flags, "writeable", nb::bool_(true));
  if (!nb::cast<bool>(nb::bool_(is_writeable))) raise_read_only(object, port);
  nb::ndarray<nb::ro> dense;
  if (!nb::try_cast(numpy.contiguous(object), dense)) raise_dtype(object, wanted, port);
  throw Error(ErrorCode::kInvalidArgument,
              "\"" + std::string(port) +
                  "\" is written to memory with strides that are no multiple of its element",
              std::string(port));
}

}  // namespace

std::string_view numpy_name(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return "float32";
    case DataType::kF64:
      return "float64";
    case DataType::kF16:
      return "float16";
    case DataType::kBF16:
      return "bfloat16";
    case DataType::kI8:
      return "int8";
    case DataType::kI16:
      return "int16";
    case DataType::kI32:
      return "int32";
    case DataType::kI64:
      return "int64";
    case DataType::kU8:
      return "uint8";
    case DataType::kU16:
      return "uint16";
    case DataType::kU32:
      return "uint32";
    case DataType::kU64:
      return "uint64";
    case DataType::kBool:
      return "bool";
    case DataType::kString:
      return "str";
  }
  return "";
}

std::string port_name(nb::handle name) {
  if (!nb::isinstance<nb::str>(name))
    throw nb::type_error("names of inputs and outputs are of type str");
  return nb::cast<std::string>(name);
}

NumPy::NumPy() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  empty_ = numpy.attr("empty");
  contiguous_ = numpy.attr("ascontiguousarray");
  for (size_t i = static_cast<size_t>(DataType::kF32); i < static_cast<size_t>(DataType::kString);
       ++i)
    if (const auto dtype = static_cast<DataType>(i); dtype != DataType::kBF16)
      dtypes_.at(i) = numpy.attr("dtype")(nb::cast(numpy_name(dtype)));
  dtypes_.at(static_cast<size_t>(DataType::kBF16)) =
      dtypes_.at(static_cast<size_t>(DataType::kU16));
  try {
    bfloat16_ = nb::module_::import_("ml_dtypes").attr("bfloat16");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
  }
}

nb::object NumPy::make(DataType dtype, const Dims& dims, TensorView& view) const {
  nb::object array = empty_(nb::cast(dims), dtypes_.at(static_cast<size_t>(dtype)));
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE) != 0) nb::raise_python_error();
  view = row_major_view(dtype, dims, static_cast<std::byte*>(buffer.buf));
  PyBuffer_Release(&buffer);  // the array keeps the memory where it is
  if (dtype == DataType::kBF16 && bfloat16_.is_valid()) return array.attr("view")(bfloat16_);
  return array;
}

nb::object NumPy::copy_of(const ConstTensorView& memory) const {
  TensorView copy;
  nb::object array = make(memory.dtype, memory.dims, copy);
  const auto bytes = static_cast<size_t>(count(memory.dims)) * size_of(memory.dtype);
  if (bytes == 0) return array;
  if (is_row_major(memory))
    std::memcpy(copy.data, memory.data, bytes);
  else
    copy_elements(copy.data, memory);
  return array;
}

ReadArray read_array(nb::handle given, DataType wanted, const NumPy& numpy, std::string_view port) {
  ReadArray result;
  nb::object bits, copy, resolved;
  nb::handle object = given;
  // DLPack has no bit for torch's negated views.
  if (PyObject_CheckBuffer(given.ptr()) == 0 && nb::hasattr(given, "is_neg") &&
      nb::cast<bool>(nb::bool_(given.attr("is_neg")()))) {
    object = resolved = given.attr("resolve_neg")();
  }
  if (!nb::try_cast(object, result.array)) {
    bits = bits_of_bfloat16(object);
    if (!bits.is_valid() && !nb::hasattr(object, "__array_interface__")) {
      // What the array itself says, such as that it has a gradient.
      if (nb::hasattr(object, "__dlpack__")) object.attr("__dlpack__")();
      raise_no_array(object, port, "an array");
    }
    if (!bits.is_valid()) copy = numpy.contiguous(object);
    if (!nb::try_cast(bits.is_valid() ? bits : copy, result.array))
      raise_dtype(object, wanted, port);
  }
  result.view = view_of<ConstTensorView>(result.array, wanted, port);
  if (has_negative(result.view.strides) && result.view.place.kind != MemoryKind::kCuda) {
    copy = numpy.contiguous(bits.is_valid() ? bits : object);
    if (!nb::try_cast(copy, result.array)) raise_no_array(object, port, "an array of numbers");
    result.view = view_of<ConstTensorView>(result.array, wanted, port);
  }
  if (bits.is_valid()) take_as_bfloat16(result.view, object, port);
  result.is_copied = copy.is_valid() || resolved.is_valid();
  return result;
}

Tensor tensor_of(nb::handle array, DataType wanted, std::string_view port, const NumPy& numpy) {
  ReadArray read = read_array(array, wanted, numpy, port);
  if (read.view.place.kind == MemoryKind::kCuda)
    throw Error(ErrorCode::kUnsupported,
                "\"" + std::string(port) + "\" is in the memory of GPU " +
                    std::to_string(read.view.place.device) + ": copy it to the host",
                std::string(port));
  if (!is_row_major(read.view)) read = read_array(numpy.contiguous(array), wanted, numpy, port);
  const auto bytes = static_cast<size_t>(count(read.view.dims)) * size_of(read.view.dtype);
  return Tensor::copy_of(read.view.dtype, read.view.dims, {read.view.data, bytes});
}

WrittenArray written_array(nb::handle object, DataType wanted, const NumPy& numpy,
                           std::string_view port) {
  WrittenArray result;
  bool is_bfloat16 = false;
  if (!nb::try_cast(object, result.array)) {
    const nb::object bits = bits_of_bfloat16(object);
    is_bfloat16 = bits.is_valid();
    if (!is_bfloat16 || !nb::try_cast(bits, result.array))
      raise_not_written(object, wanted, numpy, port);
  } else if (has_read_only_buffer(object)) {
    raise_read_only(object, port);
  }
  result.view = view_of<TensorView>(result.array, wanted, port);
  if (is_bfloat16) take_as_bfloat16(result.view, object, port);
  if (has_negative(result.view.strides))
    throw Error(ErrorCode::kInvalidArgument,
                "\"" + std::string(port) + "\" is written to memory with negative strides",
                std::string(port));
  return result;
}

}  // namespace anneal::python
