#include "anneal/engine/tune/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "anneal/engine/build/ask_targets.h"
#include "anneal/engine/build/builder.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/choose_exponents.h"
#include "anneal/engine/tune/finite_range.h"
#include "anneal/engine/tune/run_samples.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/optimizer/fingerprint.h"
#include "anneal/optimizer/quantizable.h"

namespace anneal {
namespace {

constexpr std::string_view kFirstOfPrecision = "equalize_channels";
constexpr const char* kDevice = "cpu";
// Samples that channels' magnitudes, and layers' errors, are measured on.
constexpr int64_t kMostLookedAt = 32, kMostMeasured = 100;

// As the first pass that a table decides about will see it.
Graph prepared(const Graph& model, const PassOptions& passes) {
  Graph graph = model.clone();
  PassOptions options = passes;
  options.precision = {};
  const Target target = open_target(kDevice, cpu_backend());
  options.ask_targets = ask_targets({&target});
  const std::span<const Pass> all = default_pipeline();
  const auto first = std::ranges::find(all, kFirstOfPrecision, &Pass::name);
  std::erase_if(options.skip, [&](const std::string& name) {
    return std::find_if(all.begin(), first, [&](const Pass& pass) { return pass.name == name; }) ==
               first &&
           name != kAllPasses;
  });
  std::erase_if(options.only, [&](const std::string& name) {
    return std::find_if(all.begin(), first, [&](const Pass& pass) { return pass.name == name; }) ==
           first;
  });
  if (!passes.only.empty() && options.only.empty()) options.skip = {std::string(kAllPasses)};
  run_pipeline(graph, all.first(static_cast<size_t>(first - all.begin())), options);
  return graph;
}

struct Watched {
  std::string name;     // of the value
  std::string seen_as;  // the tensor of the engine that is observed
  bool is_input = false;
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

// What engines without 8 bits keep in memory, by the names of the prepared graph's values: their
// extremes decide what 16 bits can hold.
std::vector<ValueId> stored_values(const Graph& prepared, const PassOptions& passes) {
  Graph graph = prepared.clone();
  PassOptions options = passes;
  options.precision = {};
  const Target target = open_target(kDevice, cpu_backend());
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
  std::vector<Watched> watched;
};

EngineFile build_f32(Graph graph, const PassOptions& passes) {
  BuildOptions options;
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

// Values that fusing would leave no memory become outputs; of most engines none, so that what runs
// is what will run.
Observing observing(Graph graph, const PassOptions& passes) {
  Observing result;
  const std::vector<ValueId> quantized = values_to_calibrate(graph);
  std::vector<ValueId> values = quantized;
  for (const ValueId value : stored_values(graph, passes))
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  for (const ValueId value : values) {
    if (graph.value(value).type().dtype != DataType::kF32) continue;
    const auto& inputs = graph.inputs();
    Watched watched;
    watched.name = watched.seen_as = graph.value(value).name;
    watched.is_input = std::ranges::find(inputs, value) != inputs.end();
    watched.is_quantized = std::ranges::find(quantized, value) != quantized.end();
    result.watched.push_back(std::move(watched));
  }
  EngineFile file;
  for (bool all_kept = false; !all_kept;) {
    file = build_f32(graph.clone(), passes);
    const std::set<std::string_view> kept = kept_by(file.plans[0]);
    all_kept = true;
    for (Watched& watched : result.watched) {
      if (watched.is_input || kept.contains(watched.seen_as)) continue;
      const auto taken = [&](const Graph::Output& other) { return other.name == watched.seen_as; };
      while (std::ranges::any_of(graph.outputs(), taken)) watched.seen_as += "/calibrated";
      graph.mark_output(graph.find_value(watched.name), watched.seen_as);
      all_kept = false;
    }
  }
  result.engine = Engine::make(std::move(file), {.device = kDevice});
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

void check_finite(const std::vector<Watched>& all, const std::string& sample) {
  for (const Watched& watched : all)
    if (watched.values.not_finite() > 0)
      fail(Code::kInvalidArgument,
           fmt::format("{}: tensor \"{}\" has values that are NaN or infinite; leave the "
                       "sample out, or mend what it is made of",
                       sample, watched.name));
}

void run(Observing& observing, const std::shared_ptr<const Dataset>& samples,
         const CalibrationOptions& options) {
  std::map<std::string_view, Watched*> computed;
  for (Watched& watched : observing.watched)
    if (!watched.is_input) computed[watched.seen_as] = &watched;
  std::vector<float> gathered;
  SampleRunOptions run_options{options.threads, options.data_threads};
  run_options.observer = [&](const Observed& observed) {
    const auto found = computed.find(observed.name);
    if (found != computed.end() && observed.iterations.empty())
      found->second->add(elements_of(observed.value, gathered));
  };
  run_samples(observing.engine, samples, run_options, [&](const SampleRun& run) {
    for (Watched& watched : observing.watched)
      for (const SampleTensor& each : run.inputs)
        if (watched.is_input && each.input == watched.name) watched.add(each.tensor.as<float>());
    check_finite(observing.watched, run.samples);
    options.progress(run.done, samples->size());
  });
}

// Chooses what channels are multiplied by, and does it.
void equalize(Graph& graph, const std::shared_ptr<const Dataset>& samples,
              const CalibrationOptions& options, CalibrationTable& table) {
  const auto pass = std::ranges::find(default_pipeline(), kFirstOfPrecision, &Pass::name);
  if (!why_left_out(*pass, options.passes).empty()) return;
  table.exponents = choose_exponents(graph,
                                     {options.choices.equalized, options.range.symmetric,
                                      options.choices.fitted_weights != Use::kOff},
                                     options.passes, samples,
                                     {options.threads, options.data_threads, kMostLookedAt});
  PassOptions passes;
  passes.precision.ranges = std::make_shared<const CalibrationTable>(table);
  run_pipeline(graph, std::span(&*pass, 1), passes);
}

// Measures what quantizing by the table's ranges costs each layer, and chooses how to.
void choose_for_layers(const Graph& graph, const std::shared_ptr<const Dataset>& samples,
                       const CalibrationOptions& options, CalibrationTable& table) {
  if (options.choices.fitted_weights == Use::kOff && options.choices.bias == Use::kOff) return;
  const auto errors =
      measure_layer_errors(graph, table, options.range.symmetric, options.passes, samples,
                           {options.threads, options.data_threads, kMostMeasured});
  for (const auto& [name, layer] : errors) {
    ChosenQuantization chosen = choose_quantization(layer, options.choices);
    table.layers[name] = chosen.layer;
    if (!chosen.bias.empty()) table.biases[name] = std::move(chosen.bias);
  }
}

}  // namespace

std::vector<DataInput> calibration_inputs(const Graph& model) {
  std::vector<DataInput> inputs;
  for (const ValueId input : model.inputs()) {
    const Value& value = model.value(input);
    Dims dims;
    for (const Size size : value.type().shape) dims.push_back(size.known() ? size.value() : -1);
    inputs.push_back({value.name, value.type().dtype, dims});
  }
  return inputs;
}

Calibration calibrate(const Graph& model, const std::shared_ptr<const Dataset>& samples,
                      const CalibrationOptions& options) {
  if (samples->size() == 0) fail(Code::kInvalidArgument, "there are no samples to calibrate with");
  if (const double percent = options.range.percentile; !(percent >= 50 && percent <= 100))
    fail(Code::kInvalidArgument, fmt::format("a percentile of {}: 50 to 100 is wanted", percent));
  Calibration result;
  Graph graph = prepared(model, options.passes);
  equalize(graph, samples, options, result.table);
  Observing observed = observing(graph.clone(), options.passes);
  if (std::ranges::none_of(observed.watched, &Watched::is_quantized))
    fail(Code::kInvalidArgument,
         "the model has nothing to calibrate: no convolution or product of f32 by constant weights "
         "that is not quantized already" +
             std::string(model.bodies().empty()
                             ? ""
                             : ", but for what is in branches of If and bodies of loops, where "
                               "ranges are not taken"));
  run(observed, samples, options);
  result.table.model = model.name;
  result.table.fingerprint = fingerprint(model);
  result.table.samples = samples->size();
  for (const Watched& watched : observed.watched) {
    if (!watched.is_quantized) {
      const auto [count, min, max] = watched.extremes;
      if (min <= max) result.table.tensors[watched.name] = {min, max, min, max, "minmax"};
      continue;
    }
    const TensorRange range = choose_range(watched.values, options.range);
    if (watched.values.width() == 0)
      result.remarks.push_back(fmt::format("tensor \"{}\" was 0 in all samples", watched.name));
    else if (range.seen_min == range.seen_max)
      result.remarks.push_back(
          fmt::format("tensor \"{}\" was {} in all samples", watched.name, range.seen_min));
    result.table.tensors[watched.name] = range;
  }
  choose_for_layers(graph, samples, options, result.table);
  return result;
}

}  // namespace anneal
