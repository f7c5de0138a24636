#include "anneal/tests/random/judge.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/random/random_numbers.h"
#include "anneal/tests/random/rounded_model.h"

namespace anneal::random_graphs {
namespace {

// How a model is built.
struct Way {
  ImportOptions import = {};
  GraphBuildOptions build = {};
  EngineOptions load = {};
  int type = onnx::FLOAT;  // that values may be stored in
  bool one_binding = false;
  bool has_samples = false;  // the self-check runs the model's data, not drawn inputs
};

Dims dims_in(const Value& value, size_t binding) {
  Dims dims;
  for (const Extent& dim : value.dims) dims.push_back(dim.in[binding]);
  return dims;
}

Way way_named(const std::string& name, const RandomModel& model) {
  Way way;
  if (name == "reference") way.build.reference = true;
  if (name == "reference_kernels") way.build.reference_kernels = true;
  if (name.ends_with("skip_all")) way.build.passes.skip = {std::string(kAllPasses)};
  if (name == "exact") way.build.passes.exact = true;
  if (name == "avx2") way.build.targets = {"cpu:avx2"};
  if (name == "emulated") {
    way.build.targets = {"emulated"};
    way.load.device = "emulated";
  }
  if (name.starts_with("f16")) {
    way.build.passes.precision.types = {Precision::kF16};
    way.type = onnx::FLOAT16;
  }
  if (name.starts_with("bf16")) {
    way.build.passes.precision.types = {Precision::kBF16};
    way.type = onnx::BFLOAT16;
  }
  way.has_samples = name.ends_with("_samples");
  if (name == "fixed") {
    way.one_binding = true;
    for (const Value& input : model.inputs)
      way.import.input_dims.push_back(dims_in(input, kOptimal));
  }
  if (name.starts_with("range")) {
    for (const Value& input : model.inputs)
      if (!std::ranges::all_of(input.dims, [](const Extent& dim) { return dim.constant(); }))
        way.import.bounds[input.name] = {.min = dims_in(input, kSmallest),
                                         .opt = dims_in(input, kOptimal),
                                         .max = dims_in(input, kLargest)};
  }
  return way;
}

Tensor dense(const TensorView& view) {
  NewTensor fresh = allocate_tensor(view.dtype, view.dims);
  if (!fresh.data.empty()) std::memcpy(fresh.data.data(), view.data, fresh.data.size());
  return fresh.tensor;
}

Results run(const anneal_onnx::ModelProto& proto, const RandomModel& model, const Way& way,
            SelfCheckReport* check = nullptr) {
  ImportResult imported = import_bytes(file_bytes(proto), "", way.import);
  SelfCheckOptions checking;
  if (way.has_samples) checking.samples = model.data;
  CheckedBuild made = build_checked(std::move(imported.graph), way.build, checking);
  if (check) *check = std::move(made.check);
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(made.file));
  const auto engine = make_engine(load_engine_file(*bytes, bytes), way.load);
  ExecutionContext context(engine);
  Results results;
  for (size_t b = 0; b < (way.one_binding ? 1 : kBindings); ++b) {
    for (size_t i = 0; i < model.inputs.size(); ++i)
      context.set_input(model.inputs[i].name, model.data[b][i].view());
    context.run();
    auto& outputs = results.emplace_back();
    for (const TensorInfo& info : engine->outputs())
      outputs.push_back(dense(context.output(info.name)));
  }
  return results;
}

double number(const Tensor& tensor, size_t i) {
  return read_element(tensor.dtype(), tensor.bytes().data() + i * size_of(tensor.dtype()));
}

double largest_of(const Tensor& tensor) {
  double largest = 0;
  for (size_t i = 0; i < static_cast<size_t>(tensor.count()); ++i) {
    const double each = std::abs(number(tensor, i));
    if (std::isfinite(each)) largest = std::max(largest, each);
  }
  return largest;
}

double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double result = std::abs(a - b);
  return std::isnan(result) ? INFINITY : result;
}

// The first element that differs by more than is allowed; "" if none does.
std::string compare(const Tensor& want, const Tensor& got, double allowed) {
  if (want.dtype() != got.dtype() || want.dims() != got.dims())
    return fmt::format("is {}{} instead of {}{}", to_string(got.dtype()), to_string(got.dims()),
                       to_string(want.dtype()), to_string(want.dims()));
  size_t differ = 0, first = 0;
  const auto elements = static_cast<size_t>(want.count());
  for (size_t i = 0; i < elements; ++i)
    if (!(difference(number(want, i), number(got, i)) <= allowed) && differ++ == 0) first = i;
  if (differ == 0) return "";
  return fmt::format("at {} of {}: {} instead of {} ({} elements differ by more than {:.3g})",
                     first, elements, number(got, first), number(want, first), differ, allowed);
}

// The engine of the same build in f32, with which the self-check compares. The reference is no
// measure: where a sum cancels, both are rounding noise and differ by as much as they are.
Results f32_results(const RandomModel& model, Way way) {
  way.build.passes.precision.types = {};
  return run(model.proto, model, way);
}

// What the self-check promises of its samples, unless it warns: numbers where f32 has numbers, and
// a root mean square that the precision explains.
std::string broken_promise(const Tensor& want, const Tensor& got, int type, int steps) {
  const auto elements = static_cast<size_t>(want.count());
  double power = 0, lost = 0;
  for (size_t i = 0; i < elements; ++i) {
    const double expected = number(want, i), is = number(got, i);
    if (!std::isfinite(expected)) continue;
    if (!std::isfinite(is))
      return fmt::format("at {} of {}: {} instead of {}", i, elements, is, expected);
    power += expected * expected;
    lost += (is - expected) * (is - expected);
  }
  const double explained =
      16 * (type == onnx::FLOAT16 ? 0x1p-11 : 0x1p-8) * std::sqrt(static_cast<double>(steps));
  if (std::sqrt(lost) <= explained * std::sqrt(power) + 1e-6) return "";
  return fmt::format("is off by {:.3g} of its root mean square, where {:.3g} is explained",
                     std::sqrt(lost / power), explained);
}

// Numbers and names differ from one graph to the next.
std::string essence(const std::string& text) {
  std::string result;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (std::isalpha(static_cast<unsigned char>(c)) || c == ' ')) result += c;
  }
  return result.substr(0, 90);
}

Failure failure_of(const std::string& way, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool internal = !known || known->code() == ErrorCode::kInternal;
  return {way, internal ? "internal error" : "refused",
          (known ? std::string(to_string(known->code())) + ": " : std::string()) + error.what()};
}

// A product sums in f32, one term after the other, of as many terms as an input has elements at
// most. Each sum so far is rounded to 2^-24, to the same side where numbers repeat, as on a grid.
double error_of_sums(const RandomModel& model, size_t binding) {
  int64_t most = 0;
  for (const Tensor& input : model.data[binding]) most = std::max(most, input.count());
  return static_cast<double>(most) * 0x1p-26;
}

}  // namespace

std::vector<std::byte> file_bytes(const anneal_onnx::ModelProto& model) {
  const std::string text = model.SerializeAsString();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool same_fault(const Failure& a, const Failure& b) {
  return a.way == b.way && a.sort == b.sort &&
         (a.sort == "wrong" || essence(a.text) == essence(b.text));
}

Results reference_results(const RandomModel& model) {
  return run(model.proto, model, way_named("reference", model));
}

Allowances allowances(const RandomModel& model, const Results& results, int type) {
  Allowances allowed;
  for (size_t b = 0; b < results.size(); ++b) {
    auto& row = allowed.emplace_back();
    for (const Tensor& output : results[b]) {
      // In 16 bits: what the self-check explains of a single step.
      const double unit = type == onnx::FLOAT     ? std::max(1e-5, error_of_sums(model, b))
                          : type == onnx::FLOAT16 ? 0x1p-7
                                                  : 0x1p-4;
      const double share = model.rounds_coarsely ? std::max(unit, .06) : unit;
      row.push_back(is_float(output.dtype()) ? share * largest_of(output) + 1e-6
                    : model.rounds_coarsely  ? 1
                                             : 0);
    }
  }
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Results rounded =
        run(rounded_model(model, type, seed), model, way_named("reference", model));
    for (size_t b = 0; b < results.size(); ++b)
      for (size_t o = 0; o < results[b].size(); ++o) {
        if (!is_float(results[b][o].dtype()) || rounded[b][o].dims() != results[b][o].dims())
          continue;
        for (size_t i = 0; i < static_cast<size_t>(results[b][o].count()); ++i)
          allowed[b][o] = std::max(
              allowed[b][o], 4 * difference(number(results[b][o], i), number(rounded[b][o], i)));
      }
  }
  return allowed;
}

std::vector<std::string> all_ways(const RandomModel& model, bool thorough) {
  std::vector<std::string> ways = {"default"};
  const bool open = std::ranges::any_of(model.inputs, [](const Value& input) {
    return std::ranges::any_of(input.dims, [](const Extent& dim) { return !dim.constant(); });
  });
  const Kind kind =
      *kind_from_name(model.proto.graph().name().substr(0, model.proto.graph().name().find('_')));
  if (kind == Kind::kRange && open) ways = {"range"};
  if (kind == Kind::kHalf) ways = {"f16", "bf16", "f16_samples", "bf16_samples"};
  std::vector<std::string> others = {"skip_all", "exact", "reference_kernels", "avx2"};
  if (open)
    others.insert(others.end(),
                  {"fixed", "range_skip_all", kind == Kind::kRange ? "default" : "range"});
  const uint64_t seed = hash_of(model.proto.graph().name());
  if (thorough)
    ways.insert(ways.end(), others.begin(), others.end());
  else if (kind != Kind::kHalf)
    ways.push_back(others[mixed(seed) % others.size()]);
  return ways;
}

std::optional<Failure> judge(const RandomModel& model, const JudgeOptions& options) {
  Results want;
  try {
    want = reference_results(model);
  } catch (const std::exception& error) {
    return failure_of("reference", error);
  }
  for (const std::string& name :
       options.ways.empty() ? all_ways(model, options.thorough) : options.ways) {
    try {
      const Way way = way_named(name, model);
      SelfCheckReport check;
      const Results got = run(model.proto, model, way, &check);
      if (!check.warning.empty()) continue;
      if (check.outcome.find("please report this") != std::string::npos)
        return Failure{name, "internal error", check.outcome};
      Allowances allowed;
      Results f32;
      for (size_t b = 0; b < got.size(); ++b)
        for (size_t o = 0; o < want[b].size(); ++o) {
          if (compare(want[b][o], got[b][o], 0).empty()) continue;
          const std::string output = fmt::format(
              "output {} of run {}", model.proto.graph().output(static_cast<int>(o)).name(), b);
          if (way.has_samples && is_float(want[b][o].dtype())) {
            if (f32.empty()) f32 = f32_results(model, way);
            const bool fits = f32[b][o].dims() == got[b][o].dims();
            const std::string text =
                fits ? broken_promise(f32[b][o], got[b][o], way.type, model.steps)
                     : "has other sizes than in f32";
            if (!text.empty()) return Failure{name, "wrong", output + " " + text};
          }
          if (allowed.empty()) allowed = allowances(model, want, way.type);
          const std::string text = compare(want[b][o], got[b][o], allowed[b][o]);
          if (text.empty()) continue;
          return Failure{name, "wrong", output + ": " + text};
        }
    } catch (const std::exception& error) {
      return failure_of(name, error);
    }
  }
  return std::nullopt;
}

}  // namespace anneal::random_graphs
