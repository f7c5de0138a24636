#include "anneal/engine/compare/compare_engines.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/compare/model_arithmetic.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/plan.h"

namespace anneal {
namespace {

using Key = std::pair<std::string, int>;  // name, and the number of its computation

bool has_input(const Engine& engine, const std::string& name) {
  return std::ranges::find(engine.inputs(), name, &TensorInfo::name) != engine.inputs().end();
}

// Observed runs of one engine.
class Side {
 public:
  Side(const std::shared_ptr<const Engine>& engine, const Engine& inputs_of,
       const std::vector<Tensor>& inputs, int threads)
      : context_(engine, {.threads = threads}) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (has_input(*engine, inputs_of.inputs()[i].name))
        context_.set_input(inputs_of.inputs()[i].name, inputs[i].view());
  }

  template <class Told>
  void run(const Told& told) {
    std::map<std::string, int> times;
    observe(context_, [&](const Observation& observed) {
      const std::string name(observed.name);
      const int time = ++times[name];
      told(Key(name, time), observed);
    });
    context_.run();
    observe(context_, {});
  }

 private:
  ExecutionContext context_;
};

// An input that one engine lacks must have its default value in the other, whose constant it is.
void check_same_inputs(const Engine& a, const Engine& b, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& port = a.inputs()[i];
    if (port.default_value && !has_input(b, port.name) && !(inputs[i] == *port.default_value))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("input \"{}\" of A is a constant of B, so it can be compared at its default "
                       "value only; build B with --default-inputs {}",
                       port.name, port.name));
  }
  const auto sorted = [](const Engine& engine, const Engine& other) {
    std::vector<std::string> ports;
    for (const TensorInfo& port : engine.inputs())
      if (!port.default_value || has_input(other, port.name))
        ports.push_back(fmt::format("\"{}\" {} of {} {}", port.name, to_string(port.dtype),
                                    port.dims.rank(), port.dims.rank() == 1 ? "axis" : "axes"));
    std::sort(ports.begin(), ports.end());
    return ports;
  };
  const auto of_a = sorted(a, b), of_b = sorted(b, a);
  if (of_a == of_b) return;
  const auto list = [](const std::vector<std::string>& ports) {
    std::string text;
    for (const std::string& port : ports) text += (text.empty() ? "" : ", ") + port;
    return text.empty() ? "none" : text;
  };
  fail(ErrorCode::kInvalidArgument,
       fmt::format("A and B have different inputs, so they cannot be compared: {} against {}",
                   list(of_a), list(of_b)));
}

// The allowed rounding error of a type, amplified by later steps.
Tolerance tolerance_of(DataType coarsest, const CompareOptions& options, double scale) {
  double rtol = 1e-3, atol = 1e-5;
  if (coarsest == DataType::kF16) rtol = 1e-2, atol = 1e-3;
  if (coarsest == DataType::kBF16) rtol = 5e-2, atol = 1e-2;
  return {options.rtol.value_or(rtol), options.atol.value_or(atol) * std::max(1.0, scale),
          std::nullopt};
}

DataType coarser(DataType a, DataType b) {
  for (const DataType dtype : {DataType::kBF16, DataType::kF16})
    if (a == dtype || b == dtype) return dtype;
  return a;
}

// Of integers that may differ where a step of A rounds values to f16 before it quantizes them. A
// value of n steps is rounded by up to n / 2^11 steps, on average by a third of that, and that
// share of values reaches another integer: 0.005 where n is 30 on average.
constexpr double kShareOfHalves = 0.005;

// REQUIRES: `from` is dense, and of the same dims.
void convert(const TensorView& to, const ConstTensorView& from) {
  const std::byte* next = from.data;
  for_each_element(to, [&](std::byte* at) {
    write_element(to.dtype, at, read_element(from.dtype, next));
    next += size_of(from.dtype);
  });
}

Tensor as_f32(const ConstTensorView& view) {
  const Tensor dense = dense_copy(view);
  const NewTensor wide = allocate_tensor(DataType::kF32, view.dims);
  convert(wide.view(), dense.view());
  return wide.tensor;
}

struct KeptTensor {
  Tensor tensor;
  std::string step, kernel;
};
using KeptTensors = std::map<Key, KeptTensor>;

// The input of each Quantize of a plan and its bodies, by the name of its result.
void add_sources(const Plan& plan, std::map<std::string, std::string>& sources) {
  for (const Step& step : plan.steps)
    if (std::holds_alternative<Quantize>(step.op) && step.outputs.size() == 1)
      sources[plan.slots[step.outputs[0]].name] = plan.slots[step.inputs[0]].name;
  for (const Plan& body : plan.bodies) add_sources(body, sources);
}

// That runs on these inputs, which have the order of another engine.
const Plan& plan_for(const Engine& engine, const Engine& ordered,
                     const std::vector<Tensor>& inputs) {
  std::vector<std::optional<Dims>> dims;
  for (const TensorInfo& port : engine.inputs()) {
    std::optional<Dims>& of_port = dims.emplace_back();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (ordered.inputs()[i].name == port.name) of_port = inputs[i].dims();
  }
  return plan_of(engine, profile_for(engine, dims));
}

class Comparer {
 public:
  Comparer(const std::shared_ptr<const Engine>& a, const std::shared_ptr<const Engine>& b,
           const std::vector<Tensor>& inputs, const CompareOptions& options)
      : options_(options),
        arithmetic_(std::max(arithmetic_of(plan_for(*a, *a, inputs)),
                             arithmetic_of(plan_for(*b, *a, inputs)))),
        a_(a, *a, inputs, options.threads),
        b_(b, *a, inputs, options.threads) {
    add_sources(plan_for(*a, *a, inputs), sources_);
    for (const auto& [name, source] : sources_) rounded_.insert(source);
    for (const TensorInfo& port : a->outputs()) outputs_.insert(port.name);
  }

  EngineComparison run() {
    a_.run([&](const Key& key, const Observation&) { left_.insert(key); });
    EngineComparison result;
    bool all = keep(&result.only_b);
    compare_kept();
    const bool at_once = all;
    while (!all && !left_.empty()) {
      all = keep(nullptr);
      compare_kept();
    }
    result.only_a = left_.size();
    const bool differ = std::any_of(compared_.begin(), compared_.end(), [](const auto& entry) {
      return !entry.second.comparison.why.empty();
    });
    if (differ && at_once) compare_alone();
    for (const Key& key : order_)
      if (const auto found = compared_.find(key); found != compared_.end())
        result.tensors.push_back(std::move(found->second));
    return result;
  }

 private:
  // As many of B's tensors as fit; whether these are all.
  bool keep(size_t* only_b) {
    kept_.clear();
    size_t bytes = 0;
    bool all = true;
    b_.run([&](const Key& key, const Observation& observed) {
      if (only_b && !left_.contains(key)) ++*only_b;
      if (!left_.contains(key)) return;
      const size_t size =
          static_cast<size_t>(count(observed.value.dims)) * size_of(observed.value.dtype);
      // At least one, otherwise the loop would not end.
      if (bytes > 0 && bytes + size > options_.most_bytes) {
        all = false;
        return;
      }
      bytes += std::max<size_t>(size, 1);
      kept_.emplace(key, KeptTensor{dense_copy(observed.value), std::string(observed.step),
                                    std::string(observed.kernel)});
    });
    return all;
  }

  void compare_kept() {
    const bool first = order_.empty();
    DataType coarsest = options_.coarsest;
    std::map<Key, Tensor> of_a;  // what A is about to round
    a_.run([&](const Key& key, const Observation& observed) {
      if (first) order_.push_back(key);
      const auto found = kept_.find(key);
      if (found == kept_.end()) {
        coarsest = coarser(coarsest, observed.value.dtype);
        return;
      }
      const TensorView& got = observed.value;
      const ConstTensorView expected = found->second.tensor.view();
      ComparedTensor tensor{.name = key.first,
                            .time = key.second,
                            .step_a = std::string(observed.step),
                            .kernel_a = std::string(observed.kernel),
                            .step_b = found->second.step,
                            .kernel_b = found->second.kernel,
                            .dtype = got.dtype,
                            .dims = got.dims};
      if (got.dims == expected.dims) tensor.error = tensor_error(got, expected);
      tensor.comparison = compare(key, got, expected, arithmetic_, coarsest);
      if (rounded_.contains(key.first)) of_a.emplace(key, dense_copy(got));
      if (const auto source = sources_.find(key.first); source != sources_.end())
        tensor.rounding = rounding(got, expected, {source->second, key.second}, of_a);
      compared_.emplace(key, std::move(tensor));
      left_.erase(key);
    });
  }

  // REQUIRES: all of B's tensors are kept.
  void compare_alone() {
    DataType coarsest = options_.coarsest;
    a_.run([&](const Key& key, const Observation& observed) {
      const auto found = kept_.find(key);
      if (found == kept_.end()) {
        coarsest = coarser(coarsest, observed.value.dtype);
        return;
      }
      const TensorView& got = observed.value;
      const ConstTensorView expected = found->second.tensor.view();
      std::optional<double> share;
      if (is_integer(got.dtype) && is_half(coarsest) && arithmetic_ == Arithmetic::kQuantized)
        share = kShareOfHalves;
      compared_.at(key).alone =
          compare(key, got, expected, std::min(arithmetic_, Arithmetic::kFloat), coarsest, share);
      // A tensor without a step is memory of the caller, or a weight.
      if (observed.step.empty() || got.dims != expected.dims) return;
      if (got.dtype == expected.dtype)
        strided_copy(got, expected);
      else if (is_float(got.dtype) && is_float(expected.dtype))
        convert(got, expected);
    });
  }

  Comparison compare(const Key& key, const ConstTensorView& got, const ConstTensorView& expected,
                     Arithmetic arithmetic, DataType& coarsest,
                     std::optional<double> share = {}) const {
    coarsest = coarser(coarsest, coarser(got.dtype, expected.dtype));
    Tolerance tolerance = tolerance_of(
        coarsest, options_, got.dims == expected.dims ? tensor_error(got, expected).scale : 0);
    tolerance.ranked = outputs_.contains(key.first);
    if (!tolerance.max_differ) tolerance.max_differ = share;
    // Half precision between layers is each target's own choice.
    if (got.dtype != expected.dtype && is_float(got.dtype) && is_float(expected.dtype))
      return compare_output(as_f32(got).view(), as_f32(expected).view(), tolerance, arithmetic);
    return compare_output(got, expected, tolerance, arithmetic);
  }

  std::optional<Rounding> rounding(const ConstTensorView& got, const ConstTensorView& expected,
                                   const Key& source, std::map<Key, Tensor>& of_a) const {
    if (got.dims != expected.dims || !is_integer(got.dtype) || !is_integer(expected.dtype))
      return std::nullopt;
    const auto mine = of_a.find(source);
    const auto theirs = kept_.find(source);
    if (mine == of_a.end() || theirs == kept_.end() || mine->second.dims() != got.dims ||
        theirs->second.tensor.dims() != got.dims)
      return rounding_of(got, expected, nullptr, nullptr);
    const ConstTensorView from_a = mine->second.view(), from_b = theirs->second.tensor.view();
    return rounding_of(got, expected, &from_a, &from_b);
  }

  const CompareOptions& options_;
  Arithmetic arithmetic_;
  Side a_, b_;
  std::map<std::string, std::string> sources_;  // of A's quantized tensors
  std::set<std::string> rounded_;               // the values of sources_
  std::set<std::string> outputs_;
  std::set<Key> left_;  // of A, still to be compared
  std::vector<Key> order_;
  KeptTensors kept_;
  std::map<Key, ComparedTensor> compared_;
};

}  // namespace

EngineComparison compare_tensors(const std::shared_ptr<const Engine>& a,
                                 const std::shared_ptr<const Engine>& b,
                                 const std::vector<Tensor>& inputs, const CompareOptions& options) {
  check_same_inputs(*a, *b, inputs);
  return Comparer(a, b, inputs, options).run();
}

}  // namespace anneal
