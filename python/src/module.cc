// anneal._core: the public interface of libengine and libbuilder for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "anneal/core/version.h"
#include "anneal/python/src/bindings.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/python_errors.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ interface of Anneal; the package anneal is made of it.";
  // Engines and sessions that are alive when the interpreter ends are no leak.
  nanobind::set_leak_warnings(false);
  module.def("version", &anneal::version, "The version of the libraries.");
  anneal::python::bind_exit(module);  // first: it refuses a process that has the module
  anneal::python::bind_errors();
  anneal::python::bind_engine(module);
  anneal::python::bind_options(module);
  anneal::python::bind_builder(module);
  anneal::python::bind_refit(module);
}
