#include "anneal/engine/tune/calibration/measure_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/tune/calibration/finite_range.h"
#include "anneal/engine/tune/calibration/prepared_graph.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/precision/quantizable.h"

namespace anneal {
namespace {

struct WatchedValue {
  std::string name;     // of the value
  std::string seen_as;  // the tensor of the engine that is observed
  bool is_input = false;
  bool is_in_body = false;    // of an If or a loop: seen where it runs, and has memory
  bool is_quantized = false;  // a range is chosen; else only extremes are known
  Histogram values;
  FiniteRange extremes;  // a mask's infinities are meant

  void add(std::span<const float> added) {
    if (is_quantized) {
      values.add(added);
      return;
    }
    const FiniteRange range = finite_range(added);
    extremes.min = std::min(extremes.min, range.min);
    extremes.max = std::max(extremes.max, range.max);
  }
};

// The values that engines without 8 bits keep in memory, by the names of the prepared graph's
// values: their extremes decide whether 16 bits can hold them.
std::vector<ValueId> stored_values(const Graph& prepared, const PassOptions& passes) {
  Graph graph = prepared.clone();
  PassOptions options = passes;
  options.precision = {};
  const Target target = open_target(kCalibrationDevice, cpu_backend());
  options.ask_targets = ask_targets({&target});
  run_pipeline(graph, default_pipeline(), options);
  std::vector<ValueId> values(graph.inputs().size());
  std::ranges::transform(graph.inputs(), values.begin(), [&](ValueId input) {
    return prepared.find_value(graph.value(input).name);
  });
  for (const LayerId id : graph.order())
    for (const ValueId output : graph.layer(id).outputs)
      values.push_back(prepared.find_value(graph.value(output).name));
  std::erase_if(values, [&](ValueId value) {
    return value == ValueId::kNone || prepared.constant(value) ||
           prepared.value(value).type().container != Container::kTensor ||
           prepared.value(value).type().dtype != DataType::kF32;
  });
  return values;
}

// An engine that keeps all values to calibrate in memory.
struct Observing {
  std::shared_ptr<const Engine> engine;
  std::vector<WatchedValue> watched;
};

EngineFile build_f32(Graph graph, const PassOptions& passes) {
  GraphBuildOptions options;
  options.passes = passes;
  options.passes.precision = {};
  return build(std::move(graph), options);
}

// The names of f32 values that have memory while the plan runs.
std::set<std::string_view> kept_by(const Plan& plan) {
  std::set<std::string_view> names;
  for (const Slot& slot : plan.slots)
    if (slot.type.container == Container::kTensor && slot.type.dtype == DataType::kF32)
      names.insert(slot.name);
  return names;
}

// The values that 8-bit layers in bodies, and in their bodies, would read.
void add_of_bodies(const Graph& graph, std::vector<WatchedValue>& all) {
  for (const Graph& body : graph.bodies()) {
    for (const ValueId value : values_to_calibrate(body)) {
      if (body.value(value).type().dtype != DataType::kF32) continue;
      const std::string& name = body.value(value).name;
      const auto known = std::ranges::find(all, name, &WatchedValue::name);
      if (known != all.end()) {
        known->is_quantized = true;  // a value that is captured under its own name
        continue;
      }
      WatchedValue watched;
      watched.name = watched.seen_as = name;
      watched.is_in_body = watched.is_quantized = true;
      all.push_back(std::move(watched));
    }
    add_of_bodies(body, all);
  }
}

// Values that fusing would leave without memory become outputs; most engines have none, so that the
// calibrated engine equals the final one.
Observing observing(Graph graph, const PassOptions& passes) {
  Observing result;
  const std::vector<ValueId> quantized = values_to_calibrate(graph);
  std::vector<ValueId> values = quantized;
  for (const ValueId value : stored_values(graph, passes))
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  for (const ValueId value : values) {
    if (graph.value(value).type().dtype != DataType::kF32) continue;
    const auto& inputs = graph.inputs();
    WatchedValue watched;
    watched.name = watched.seen_as = graph.value(value).name;
    watched.is_input = std::ranges::find(inputs, value) != inputs.end();
    watched.is_quantized = std::ranges::find(quantized, value) != quantized.end();
    result.watched.push_back(std::move(watched));
  }
  add_of_bodies(graph, result.watched);
  EngineFile file;
  for (bool all_kept = false; !all_kept;) {
    file = build_f32(graph.clone(), passes);
    const std::set<std::string_view> kept = kept_by(file.plans[0]);
    all_kept = true;
    for (WatchedValue& watched : result.watched) {
      if (watched.is_input || watched.is_in_body || kept.contains(watched.seen_as)) continue;
      const auto taken = [&](const Graph::Output& other) { return other.name == watched.seen_as; };
      while (std::ranges::any_of(graph.outputs(), taken)) watched.seen_as += "/calibrated";
      graph.mark_output(graph.find_value(watched.name), watched.seen_as);
      all_kept = false;
    }
  }
  result.engine =
      make_engine(std::move(file), {.device = kCalibrationDevice, .threads = passes.threads});
  return result;
}

// The elements of the view in the order in which they lie, which is as good as any: where they are,
// or in `gathered` if others lie between them.
std::span<const float> elements_of(const TensorView& view, std::vector<float>& gathered) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (int i = 0; i < view.dims.rank(); ++i)
    if (view.dims[i] != 1) axes.emplace_back(view.strides[i], view.dims[i]);
  std::ranges::sort(axes);
  size_t run = 1, inner = 0;
  for (; inner < axes.size() && axes[inner].first == static_cast<int64_t>(run); ++inner)
    run *= static_cast<size_t>(axes[inner].second);
  const auto* const first = reinterpret_cast<const float*>(view.data);
  if (inner == axes.size()) return {first, run};
  gathered.clear();
  std::vector<int64_t> at(axes.size());
  for (int64_t runs = count(view.dims) / static_cast<int64_t>(run); runs > 0; --runs) {
    int64_t offset = 0;
    for (size_t axis = inner; axis < axes.size(); ++axis) offset += at[axis] * axes[axis].first;
    gathered.insert(gathered.end(), first + offset, first + offset + run);
    for (size_t axis = inner; axis < axes.size() && ++at[axis] == axes[axis].second; ++axis)
      at[axis] = 0;
  }
  return gathered;
}

void check_finite(const std::vector<WatchedValue>& all, const std::string& sample) {
  for (const WatchedValue& watched : all)
    if (watched.values.not_finite() > 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{}: tensor \"{}\" has values that are NaN or infinite; leave the sample "
                       "out, or repair its data",
                       sample, watched.name));
}

void run(Observing& observing, const std::shared_ptr<const Dataset>& samples,
         SampleRunOptions options, const std::function<void(int64_t done)>& progress) {
  std::map<std::string_view, WatchedValue*> computed;
  for (WatchedValue& watched : observing.watched)
    if (!watched.is_input) computed[watched.seen_as] = &watched;
  std::vector<float> gathered;
  options.observer = [&](const Observation& observed) {
    // A body may call something else by the name of a value outside.
    if (observed.value.dtype != DataType::kF32) return;
    const auto found = computed.find(observed.name);
    if (found != computed.end()) found->second->add(elements_of(observed.value, gathered));
  };
  run_samples(observing.engine, samples, options, [&](const SampleRun& run) {
    for (WatchedValue& watched : observing.watched) {
      if (!watched.is_input) continue;
      const auto given = std::ranges::find(run.inputs, watched.name, &SampleTensor::input);
      const auto port =
          std::ranges::find(observing.engine->inputs(), watched.name, &TensorInfo::name);
      if (given != run.inputs.end())
        watched.add(given->tensor.as<float>());
      else if (port != observing.engine->inputs().end() && port->default_value)
        watched.add(port->default_value->as<float>());
    }
    check_finite(observing.watched, run.samples);
    progress(run.done);
  });
}

}  // namespace

MeasuredRanges measure_ranges(const Graph& graph, const RangeOptions& range,
                              const PassOptions& passes,
                              const std::shared_ptr<const Dataset>& samples,
                              const SampleRunOptions& options,
                              const std::function<void(int64_t done)>& progress) {
  Observing observed = observing(graph.clone(), passes);
  run(observed, samples, options, progress);
  MeasuredRanges result;
  for (const WatchedValue& watched : observed.watched) {
    if (!watched.is_quantized) {
      const auto [count, min, max] = watched.extremes;
      if (min <= max) result.tensors[watched.name] = {min, max, min, max, "minmax"};
      continue;
    }
    if (watched.values.count() == 0) {
      result.warnings.push_back(
          fmt::format("tensor \"{}\", in a branch or a loop, was computed for no sample: layers "
                      "that read it stay f32",
                      watched.name));
      continue;
    }
    const TensorRange found = choose_range(watched.values, range);
    if (watched.values.width() == 0)
      result.warnings.push_back(fmt::format("tensor \"{}\" was 0 in all samples", watched.name));
    else if (found.seen_min == found.seen_max)
      result.warnings.push_back(
          fmt::format("tensor \"{}\" was {} in all samples", watched.name, found.seen_min));
    result.tensors[watched.name] = found;
  }
  return result;
}

}  // namespace anneal
