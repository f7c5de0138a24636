#include "anneal/python/src/python_errors.h"

#include <nanobind/stl/string.h>

#include <string>

#include "anneal/core/error.h"

namespace nb = nanobind;

namespace anneal::python {

void bind_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void* /*payload*/) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      nb::list dims;
      for (const int64_t size : error.dims()) dims.append(size);
      try {
        const nb::object made = nb::module_::import_("anneal._errors")
                                    .attr("make_error")(static_cast<int>(error.code()),
                                                        error.what(), error.port(), dims);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
      } catch (nb::python_error& failed) {
        failed.restore();
      }
    }
  });
}

std::shared_ptr<nb::object> shared(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* dropped) {
            const nb::gil_scoped_acquire acquire;
            delete dropped;
          }};
}

void CallbackErrors::keep() {
  {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::current_exception();
  }
  throw Error(ErrorCode::kCancelled, "a Python callback raised an exception");
}

void CallbackErrors::raise_kept() {
  if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
}

}  // namespace anneal::python
