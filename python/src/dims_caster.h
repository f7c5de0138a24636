// Dims are tuples of int in Python.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "anneal/core/dims.h"

namespace nanobind::detail {

template <>
struct type_caster<anneal::Dims> {
  NB_TYPE_CASTER(anneal::Dims, io_name("collections.abc.Sequence[int]", "tuple[int, ...]"))

  bool from_python(handle source, uint32_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    const Py_ssize_t rank = PySequence_Check(source.ptr()) ? PySequence_Size(source.ptr()) : -1;
    if (rank < 0 || rank > anneal::kMaxRank) return PyErr_Clear(), false;
    value = {};
    for (Py_ssize_t axis = 0; axis < rank; ++axis) {
      const object item = steal(PySequence_GetItem(source.ptr(), axis));
      const long long size = item.is_valid() ? PyLong_AsLongLong(item.ptr()) : -1;
      if (PyErr_Occurred()) return PyErr_Clear(), false;
      value.push_back(size);
    }
    return true;
  }

  static handle from_cpp(const anneal::Dims& dims, rv_policy /*policy*/,
                         cleanup_list* /*cleanup*/) noexcept {
    PyObject* const result = PyTuple_New(dims.rank());
    for (int axis = 0; result != nullptr && axis < dims.rank(); ++axis)
      PyTuple_SetItem(result, axis, PyLong_FromLongLong(dims[axis]));
    return result;
  }
};

}  // namespace nanobind::detail

namespace anneal::python {

// Sizes of an input, which may be the only one: then the name may be empty. Raises TypeError that
// names it.
inline Dims dims_of(nanobind::handle sizes, const std::string& input) {
  Dims dims;
  if (!nanobind::try_cast(sizes, dims))
    throw nanobind::type_error(("the sizes of " +
                                (input.empty() ? "the input" : "\"" + input + "\"") +
                                " are a sequence of at most " + std::to_string(kMaxRank) +
                                " integers, not " + nanobind::repr(sizes).c_str())
                                   .c_str());
  return dims;
}

}  // namespace anneal::python
