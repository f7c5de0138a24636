// Reports as dicts, whose keys are the fields of the dataclasses of anneal._reports.
#pragma once
#include <nanobind/nanobind.h>

#include "anneal/engine/builder/build_report.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal::python {

nanobind::dict report_dict(const BuildReport& report);
nanobind::dict ranges_dict(const CalibrationTable& table);

}  // namespace anneal::python
