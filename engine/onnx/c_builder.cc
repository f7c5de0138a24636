#include "anneal/engine/onnx/c_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/run/c_struct.h"

namespace anneal {
namespace {

void require_pointer(const void* pointer, std::string_view what) {
  if (!pointer) fail(ErrorCode::kInvalidArgument, std::string(what) + " is null");
}

Dims range_dims(const int64_t (&sizes)[ANNEAL_MAX_RANK], int32_t rank) {
  return Dims(std::span<const int64_t>(sizes, static_cast<size_t>(rank)));
}

std::vector<Profile> profiles_of(const anneal_build_options& options) {
  std::vector<Profile> profiles;
  std::set<std::pair<int64_t, std::string>> seen;
  if (options.range_count < 0) fail(ErrorCode::kInvalidArgument, "range_count is below 0");
  if (options.range_count > 0) require_pointer(options.ranges, "ranges");
  for (int32_t i = 0; i < options.range_count; ++i) {
    const auto range =
        read_struct(element_of(options.ranges, "anneal_input_range", i), "anneal_input_range");
    const std::string name = range.name ? range.name : "";
    if (range.rank < 0 || range.rank > ANNEAL_MAX_RANK)
      fail_port(ErrorCode::kInvalidArgument, name,
                fmt::format("ranges of \"{}\": a rank of {}; tensors have 0 to {} axes", name,
                            range.rank, ANNEAL_MAX_RANK));
    if (range.profile < 0 || range.profile >= options.range_count)
      fail_port(ErrorCode::kInvalidArgument, name,
                fmt::format("ranges of \"{}\": profile {}; {} ranges are of profiles 0 to {}", name,
                            range.profile, options.range_count, options.range_count - 1));
    if (profiles.size() <= static_cast<size_t>(range.profile))
      profiles.resize(static_cast<size_t>(range.profile) + 1);
    Profile& profile = profiles[static_cast<size_t>(range.profile)];
    const auto set = [&](std::map<std::string, Dims>& sizes,
                         const int64_t(&given)[ANNEAL_MAX_RANK]) {
      const Dims dims = range_dims(given, range.rank);
      const bool is_given = dims.empty() || std::ranges::any_of(dims, std::identity());
      if (is_given) sizes[name] = dims;
    };
    set(profile.min, range.min);
    set(profile.opt, range.opt);
    set(profile.max, range.max);
    if (!seen.emplace(range.profile, name).second)
      fail_port(ErrorCode::kInvalidArgument, name,
                fmt::format("two ranges are given for \"{}\" in profile {}", name, range.profile));
  }
  for (size_t i = 0; i < profiles.size(); ++i)
    if (std::ranges::none_of(seen, [&](const auto& each) { return each.first == int64_t(i); }))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("profile {} has no range, and profile {} has one", i, profiles.size() - 1));
  return profiles;
}

std::vector<std::string> targets_of(const char* text) {
  std::vector<std::string> targets;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    targets.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return targets;
}

// The sizes of a sample: those of the input, with a batch of 1 and opt where they are open. A batch
// of 1 that the profile excludes is opt.
Dims sample_dims(const DataInput& input, const Profile& profile) {
  const auto given = [&]() -> std::optional<Dims> {
    for (const auto* sizes : {&profile.opt, &profile.max, &profile.min})
      for (const std::string& name : {input.name, std::string()})
        if (const auto found = sizes->find(name); found != sizes->end()) return found->second;
    return std::nullopt;
  }();
  const auto least = [&]() -> const Dims* {
    for (const auto* sizes : {&profile.min, &profile.opt, &profile.max})
      for (const std::string& name : {input.name, std::string()})
        if (const auto found = sizes->find(name); found != sizes->end()) return &found->second;
    return nullptr;
  }();
  Dims dims = input.dims;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (dims[axis] >= 0) continue;
    if (axis == 0 && !(least && !least->empty() && (*least)[0] > 1))
      dims[axis] = 1;
    else if (given && axis < given->rank())
      dims[axis] = (*given)[axis];
    else
      fail_port(ErrorCode::kInvalidArgument, input.name,
                fmt::format("samples of input \"{}\" have an open size: give a range", input.name));
  }
  return dims;
}

// Samples that a function of the application writes.
std::shared_ptr<const Dataset> dataset_of(const anneal_build_options& options,
                                          const std::vector<DataInput>& inputs,
                                          const Profile& profile) {
  require_pointer(reinterpret_cast<const void*>(options.read_sample), "read_sample");
  std::vector<std::pair<DataInput, Dims>> wanted;
  for (const DataInput& input : inputs)
    if (!input.is_optional) wanted.emplace_back(input, sample_dims(input, profile));
  return make_dataset(options.sample_count, [options, wanted](int64_t i) {
    std::vector<SampleTensor> sample;
    for (const auto& [input, dims] : wanted) {
      const auto values = std::make_shared<std::vector<std::byte>>(
          static_cast<size_t>(count(dims)) * size_of(input.dtype));
      const Tensor tensor(input.dtype, dims, values, *values);
      anneal_tensor memory = {};
      memory.size = sizeof(memory);
      memory.has_strides = 1;
      memory.dtype = static_cast<anneal_dtype>(input.dtype);
      memory.rank = dims.rank();
      std::ranges::copy(dims, memory.dims);
      std::ranges::copy(tensor.view().strides, memory.strides);
      memory.data = values->data();
      if (options.read_sample(options.sample_argument, i, input.name.c_str(), &memory) != 0)
        fail(ErrorCode::kInvalidArgument,
             fmt::format("read_sample failed for sample {} of input \"{}\"", i, input.name));
      sample.push_back({input.name, tensor});
    }
    return sample;
  });
}

std::map<std::string, std::string> states_of(std::string_view text) {
  std::map<std::string, std::string> states;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      fail(ErrorCode::kInvalidArgument, fmt::format("the state \"{}\" is not INPUT=OUTPUT", pair));
    const auto [state, is_new] = states.emplace(pair.substr(0, equals), pair.substr(equals + 1));
    if (!is_new)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the input \"{}\" has two states", state->first));
  }
  return states;
}

BuildOptions options_of(const anneal_build_options* given, const OnnxModel& model) {
  BuildOptions options;
  if (!given) return options;
  const auto known = read_struct(given, "anneal_build_options");
  if (known.targets) options.targets = targets_of(known.targets);
  if (known.fp16) options.precision.types.insert(Precision::kF16);
  if (known.bf16) options.precision.types.insert(Precision::kBF16);
  if (known.int8) options.precision.types.insert(Precision::kI8);
  options.precision.best = known.best != 0;
  options.precision.symmetric = known.symmetric != 0;
  if (known.weight_format) options.precision.weight_format = known.weight_format;
  if (known.states) options.states = states_of(known.states);
  options.time_kernels = known.time_kernels != 0;
  if (known.timing_cache) options.timing_cache = known.timing_cache;
  if (known.optimization_level < 0 || known.optimization_level > 5)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("optimization_level is {}: give 1 to 5, or 0 for the default",
                     known.optimization_level));
  if (known.optimization_level != 0)
    options.optimization_level = static_cast<int>(known.optimization_level);
  options.profiles = profiles_of(known);
  options.exact = known.exact != 0;
  options.max_memory = known.max_memory;
  if (known.threads < 0) fail(ErrorCode::kInvalidArgument, "threads is below 0");
  options.threads = known.threads;
  options.allow_fallback = known.no_fallback == 0;
  options.libraries = library_paths(known.libraries, known.library_count);
  options.log = log_sink(known.log, known.log_argument);
  if (known.weights) options.weights_path = known.weights;
  if (known.progress)
    options.progress = [known](const Progress& at) {
      return known.progress(known.progress_argument, at.what.c_str(), at.share) == 0;
    };
  if (known.int8 && known.sample_count <= 0)
    fail(ErrorCode::kInvalidArgument, "int8 needs samples: set sample_count and read_sample");
  options.data_threads = 1;
  if (known.sample_count > 0)
    options.calibration.samples =
        dataset_of(known, onnx_inputs(model, options),
                   options.profiles.empty() ? Profile() : options.profiles[0]);
  return options;
}

// The engine goes to the caller, and weights that are apart to their file.
void give(const BuiltEngine& built, const std::string& weights_path, void** made,
          uint64_t* made_bytes) {
  if (!built.weights.empty()) write_file_atomically(weights_path, built.weights);
  void* const copy = std::aligned_alloc(64, (built.bytes.size() + 63) / 64 * 64);
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, built.bytes.data(), built.bytes.size());
  *made = copy;
  *made_bytes = built.bytes.size();
}

OnnxModel model_in(const void* onnx, uint64_t onnx_bytes) {
  require_pointer(onnx, "onnx");
  return std::span(static_cast<const std::byte*>(onnx), static_cast<size_t>(onnx_bytes));
}

}  // namespace
}  // namespace anneal

anneal_code anneal_build(const char* onnx_path, const char* engine_path,
                         const anneal_build_options* options, anneal_error* error) {
  return anneal::guarded(error, [&] {
    anneal::require_pointer(onnx_path, "onnx_path");
    anneal::require_pointer(engine_path, "engine_path");
    const anneal::OnnxModel model(onnx_path);
    anneal::build_engine(model, std::string(engine_path), anneal::options_of(options, model));
  });
}

anneal_code anneal_build_memory(const void* onnx, uint64_t onnx_bytes,
                                const anneal_build_options* options, void** engine,
                                uint64_t* engine_bytes, anneal_error* error) {
  return anneal::guarded(error, [&] {
    anneal::require_pointer(engine, "engine");
    anneal::require_pointer(engine_bytes, "engine_bytes");
    const anneal::OnnxModel model = anneal::model_in(onnx, onnx_bytes);
    const anneal::BuildOptions known = anneal::options_of(options, model);
    anneal::give(anneal::build_engine(model, known), known.weights_path, engine, engine_bytes);
  });
}

anneal_code anneal_refit(const char* engine_path, const char* onnx_path, const char* output_path,
                         const anneal_build_options* options, anneal_error* error) {
  return anneal::guarded(error, [&] {
    anneal::require_pointer(engine_path, "engine_path");
    anneal::require_pointer(onnx_path, "onnx_path");
    const anneal::OnnxModel model(onnx_path);
    anneal::refit_engine(std::string(engine_path), model,
                         std::string_view(output_path ? output_path : ""),
                         anneal::options_of(options, model));
  });
}

void anneal_build_free(void* engine) { std::free(engine); }
