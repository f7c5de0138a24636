// Errors across the language border: anneal::Error as a Python exception, and exceptions of
// Python's callbacks through a call of C++.
#pragma once
#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "anneal/python/src/calls.h"

namespace anneal::python {

// Makes each Error an exception of anneal._errors.
void bind_errors();

// The first exception that callbacks of one call raised. A callback keeps it and ends the call with
// an Error; then the call raises it again. Thread-safe.
class CallbackErrors {
 public:
  // Keeps the exception that is being handled, and throws an Error with kCancelled.
  [[noreturn]] void keep();
  // REQUIRES: the caller has the GIL.
  void raise_kept();

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

// An object of Python that other threads may drop.
std::shared_ptr<nanobind::object> shared(nanobind::object object);

// Calls body, a call back into Python, with the GIL.
template <class Body>
auto with_gil(CallbackErrors& errors, Body&& body) {
  const nanobind::gil_scoped_acquire acquire;
  const CallBack inside;
  try {
    return body();
  } catch (const nanobind::python_error&) {
    errors.keep();
  } catch (const nanobind::builtin_exception&) {
    errors.keep();
  } catch (const nanobind::cast_error&) {
    errors.keep();
  }
}

// Runs body, which may call back, while other threads of Python run.
template <class Body>
auto without_gil(CallbackErrors& errors, Body&& body) {
  try {
    const nanobind::gil_scoped_release release;
    return std::forward<Body>(body)();
  } catch (...) {
    errors.raise_kept();
    throw;
  }
}

}  // namespace anneal::python
