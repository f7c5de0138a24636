// Models in which a lower precision does harm, and what they lose with and without the self-check.
#pragma once
#include <algorithm>
#include <cmath>
#include <ostream>

#include "anneal/engine/builder/checked_build.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {

struct PlantedFault {
  std::string_view name = {}, text = {};
  std::string_view layer = {};  // that goes back to f32
  PrecisionOptions precision = {};
  std::vector<Tensor> inputs = {};  // a sample, at which the plan is judged as well
  bool draws = false;               // the check does not see the sample
  double wrong = 0.05;              // what the plan loses at least without the check
  double right = 0.02;              // and at most with it
};

inline void PrintTo(const PlantedFault& fault, std::ostream* to) { *to << fault.name; }

inline Tensor ramp(const Dims& dims, float from, float to) {
  const auto elements = static_cast<size_t>(count(dims));
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i)
    values[i] = from + (to - from) * static_cast<float>(i) / static_cast<float>(elements);
  return Tensor::of<float>(DataType::kF32, dims, values);
}

// A table, which may lie: every value that is named stays within `most`.
inline std::shared_ptr<const CalibrationTable> table_of(const std::vector<std::string>& values,
                                                        float most = 1) {
  CalibrationTable made;
  for (const std::string& value : values)
    made.tensors[value] = {.min = -most, .max = most, .seen_min = -most, .seen_max = most};
  return std::make_shared<const CalibrationTable>(std::move(made));
}

inline PrecisionOptions with_table(PrecisionOptions options, const std::vector<std::string>& values,
                                   float most = 1) {
  options.ranges = table_of(values, most);
  return options;
}

inline GraphBuildOptions options_of(const PrecisionOptions& precision) {
  GraphBuildOptions options;
  options.targets = {"cpu:avx2"};
  options.passes.precision = precision;
  return options;
}

inline CheckedBuild built(const PlantedFault& fault, bool check = true) {
  SelfCheckOptions options{.run = check};
  if (!fault.draws) options.samples = {fault.inputs};
  return build_checked(parse_graph(fault.text), options_of(fault.precision), options);
}

inline std::vector<std::string> layers_back(const CheckedBuild& made) {
  std::vector<std::string> names;
  for (const auto& [name, why] : made.check.back_to_f32) names.push_back(name);
  return names;
}

// Of the first output: the largest difference from f32, as a share of the largest magnitude.
inline double loss(const EngineFile& file, const PlantedFault& fault) {
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  const auto got = run(context, *engine, fault.inputs);
  const auto f32 = engine_of(build_text(fault.text, options_of({})));
  ExecutionContext exact(f32);
  const auto expected = run(exact, *f32, fault.inputs);
  const std::string name = f32->outputs()[0].name;
  double most = 0, worst = 0;
  for (size_t i = 0; i < expected.at(name).size(); ++i) {
    const double want = expected.at(name)[i], is = got.at(name)[i];
    most = std::max(most, std::abs(want));
    worst = std::max(worst, std::isfinite(is) ? std::abs(is - want) : INFINITY);
  }
  return worst / most;
}

}  // namespace anneal::testing
