// The parts of the module anneal._core.
#pragma once
#include <nanobind/nanobind.h>

namespace anneal::python {

void bind_engine(nanobind::module_& module);
void bind_options(nanobind::module_& module);
void bind_builder(nanobind::module_& module);
void bind_refit(nanobind::module_& module);

}  // namespace anneal::python
