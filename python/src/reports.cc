#include "anneal/python/src/reports.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace anneal::python {
namespace {

nb::dict dict_of(const BuildDecision& decision);
nb::dict dict_of(const BuildStep& step);
nb::dict dict_of(const BuildPass& pass);
nb::dict dict_of(const BuildPlan& plan);
nb::dict dict_of(const SelfCheckReport::Layer& layer);

template <class Items>
nb::list list_of(const Items& items) {
  nb::list result;
  for (const auto& item : items) result.append(dict_of(item));
  return result;
}

nb::dict dict_of(const BuildDecision& decision) {
  nb::dict result;
  result["stage"] = decision.stage;
  result["subject"] = decision.subject;
  result["text"] = decision.text;
  return result;
}

nb::dict dict_of(const BuildStep& step) {
  nb::dict result;
  result["name"] = step.name;
  result["op"] = step.op;
  result["kernel"] = step.kernel;
  result["device"] = step.device;
  return result;
}

nb::dict dict_of(const BuildPass& pass) {
  nb::dict result;
  result["name"] = pass.name;
  result["targets"] = pass.targets;
  result["is_exact"] = pass.is_exact;
  result["has_changed"] = pass.has_changed;
  result["rewrites"] = pass.rewrites;
  result["milliseconds"] = pass.milliseconds;
  result["layers"] = pass.layers;
  result["profile"] = pass.profile;
  return result;
}

nb::dict dict_of(const SelfCheckReport::Layer& layer) {
  nb::dict result;
  result["name"] = layer.name;
  result["why"] = layer.why;
  return result;
}

nb::dict dict_of(const BuildPlan& plan) {
  nb::dict result;
  result["target"] = plan.target;
  result["profile"] = plan.profile;
  result["steps"] = list_of(plan.steps);
  result["decisions"] = list_of(plan.decisions);
  result["fallbacks"] = list_of(plan.fallbacks);
  result["gpu_steps"] = plan.gpu_steps;
  result["cpu_steps"] = plan.cpu_steps;
  result["copy_steps"] = plan.copy_steps;
  result["arena_bytes"] = plan.arena_bytes;
  result["code_bytes"] = plan.code_bytes;
  result["run_bytes"] = plan.run_bytes;
  return result;
}

nb::dict dict_of(const SelfCheckReport& check) {
  nb::dict result;
  result["is_compared"] = check.is_compared;
  result["outcome"] = check.outcome;
  result["warning"] = check.warning;
  result["back_to_f32"] = list_of(check.back_to_f32);
  result["milliseconds"] = check.milliseconds;
  return result;
}

}  // namespace

nb::dict report_dict(const BuildReport& report) {
  nb::dict result;
  result["plans"] = list_of(report.plans);
  result["passes"] = list_of(report.passes);
  result["imported_layers"] = report.imported_layers;
  result["weight_bytes"] = report.weight_bytes;
  result["engine_bytes"] = report.engine_bytes;
  result["import_milliseconds"] = report.import_milliseconds;
  result["build_milliseconds"] = report.build_milliseconds;
  result["self_check"] = dict_of(report.self_check);
  result["warnings"] = report.warnings;
  result["weights"] = report.weights;
  result["changed_weights"] = report.changed_weights;
  result["changed_literals"] = report.changed_literals;
  return result;
}

nb::dict ranges_dict(const CalibrationTable& table) {
  nb::dict result;
  for (const auto& [name, range] : table.tensors) {
    nb::dict fields;
    fields["min"] = range.min;
    fields["max"] = range.max;
    fields["seen_min"] = range.seen_min;
    fields["seen_max"] = range.seen_max;
    fields["method"] = range.method;
    result[nb::cast(name)] = fields;
  }
  return result;
}

}  // namespace anneal::python
