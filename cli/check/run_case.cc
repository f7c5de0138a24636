#include "anneal/cli/check/run_case.h"

#include "anneal/cli/model/open_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <optional>

#include "anneal/cli/output/print.h"
#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/compare/model_arithmetic.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_file.h"

namespace anneal {
namespace {

Tensor read_tensor_file(const std::string& path) {
  return with_context([&] { return fmt::format("while reading {}", path); },
                      [&] { return load_tensor_proto(read_file(path).bytes, nullptr); });
}

// Sizes that the model leaves open are 1 where the model is fed without files.
Tensor ramp_for(const TensorInfo& port) {
  Dims dims = port.dims;
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] == -1) dims[axis] = std::max<int64_t>(port.min_dims[axis], 1);
  return ramp_sample(port.dtype, dims);
}

// The line names the case already.
std::string without_model(std::string why, const TestCase& test) {
  const std::string model = test.model + ": ";
  if (why.starts_with(model)) why.erase(0, model.size());
  return why;
}

std::vector<Tensor> read_inputs(const DataSet& set) {
  std::vector<Tensor> inputs;
  for (const std::string& path : set.inputs) inputs.push_back(read_tensor_file(path));
  return inputs;
}

std::vector<Tensor> inputs_of(const DataSet& set, const Engine& engine) {
  if (set.inputs.empty()) {
    std::vector<Tensor> inputs;
    for (const TensorInfo& port : engine.inputs()) inputs.push_back(ramp_for(port));
    return inputs;
  }
  if (set.inputs.size() != engine.inputs().size())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the model has {} inputs, the case has files for {}", engine.inputs().size(),
                     set.inputs.size()));
  return read_inputs(set);
}

void run_set(const DataSet& set, const std::shared_ptr<const Engine>& engine, int threads,
             const Tolerance& tolerance, Arithmetic arithmetic, CaseResult& result) {
  const std::vector<Tensor> inputs = inputs_of(set, *engine);
  if (set.outputs.size() != engine->outputs().size())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the model has {} outputs, the case has files for {}",
                     engine->outputs().size(), set.outputs.size()));
  ContextOptions options;
  options.threads = threads;
  ExecutionContext context(engine, options);
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine->inputs()[i].name, inputs[i].view());
  context.run();
  for (size_t i = 0; i < set.outputs.size(); ++i) {
    const TensorInfo& port = engine->outputs()[i];
    const Tensor expected = read_tensor_file(set.outputs[i]);
    const Comparison compared =
        compare_output(context.output(port.name), expected.view(), tolerance, arithmetic);
    result.max_abs = std::max(result.max_abs, compared.max_abs);
    result.max_rel = std::max(result.max_rel, compared.max_rel);
    if (!compared.why.empty() && result.why.empty())
      result.why = fmt::format("{}{}output \"{}\": {}", set.name, set.name.empty() ? "" : ", ",
                               port.name, compared.why);
  }
}

// Files beyond the model's inputs are for those with default values.
ImportResult import_for(const TestCase& test, std::span<const DataSet> sets, ImportOptions sizes) {
  ImportResult plain = import_file(test.model, {.operators = sizes.operators});
  const size_t files = sets.empty() ? 0 : sets[0].inputs.size();
  if (files > plain.graph.inputs().size()) sizes.fed_inputs = static_cast<int>(files);
  if (sizes.fed_inputs == 0 && sizes.input_dims.empty()) return plain;
  return import_file(test.model, sizes);
}

void run_sets(const TestCase& test, std::span<const DataSet> sets, ImportOptions sizes,
              const CaseOptions& options, CaseResult& result) {
  sizes.operators = load_kernel_libraries(options.build.libraries);
  ImportResult imported = import_for(test, sets, sizes);
  const Arithmetic arithmetic = arithmetic_of(imported.graph);
  GraphBuildOptions build_options = graph_options(options.build);
  build_options.targets = {options.target};
  auto bytes = std::make_shared<const std::vector<std::byte>>(
      save(build(std::move(imported.graph), build_options)));
  EngineOptions engine_options;
  engine_options.device = device_for(options.target);
  const auto engine =
      make_engine(load_engine_file(*bytes, bytes, nullptr, sizes.operators), engine_options);
  for (const DataSet& set : sets)
    run_set(set, engine, options.threads, options.tolerance, arithmetic, result);
}

// An engine for each data set; nothing if that fails too.
std::optional<CaseResult> run_with_sizes_of_data(const TestCase& test, const CaseOptions& options) {
  CaseResult result;
  try {
    for (const DataSet& set : test.sets) {
      ImportOptions sizes;
      for (const Tensor& input : read_inputs(set)) sizes.input_dims.push_back(input.dims());
      run_sets(test, std::span(&set, 1), sizes, options, result);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return result;
}

void run_all_sets(const TestCase& test, const CaseOptions& options, CaseResult& result) {
  try {
    run_sets(test, test.sets, {}, options, result);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    auto fixed = run_with_sizes_of_data(test, options);
    if (!fixed) throw;
    result = *std::move(fixed);
    result.note = without_model(one_line(error.what()), test);
  }
}

}  // namespace

std::vector<std::byte> to_bytes(const CaseResult& result) {
  ByteWriter to;
  to.text(result.why);
  to.text(result.code);
  to.number(result.max_abs);
  to.number(result.max_rel);
  to.text(result.note);
  return to.take();
}

CaseResult case_result_from(std::span<const std::byte> bytes) {
  ByteReader from(bytes, "the result of a case");
  CaseResult result;
  result.why = from.text();
  result.code = from.text();
  result.max_abs = from.number<double>();
  result.max_rel = from.number<double>();
  result.note = from.text();
  from.expect_end();
  return result;
}

CaseResult run_case(const TestCase& test, const CaseOptions& options) {
  CaseResult result;
  const auto ended = [&](ErrorCode code, std::string_view why) {
    result.code = to_string(code);
    result.why = without_model(one_line(why), test);
  };
  try {
    run_all_sets(test, options, result);
  } catch (const Error& error) {
    ended(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    ended(ErrorCode::kOutOfMemory, "there is not enough memory");
  } catch (const std::exception& error) {
    ended(ErrorCode::kInternal, error.what());
  }
  return result;
}

}  // namespace anneal
