#include "anneal/cli/compare_engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "anneal/cli/model_arithmetic.h"
#include "anneal/cli/print.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

using Key = std::pair<std::string, int>;  // name and how manieth

// Watched runs of one engine.
class Side {
 public:
  Side(const std::shared_ptr<const Engine>& engine, const Engine& inputs_of,
       const std::vector<Tensor>& inputs, int threads)
      : context_(engine, {.threads = threads}) {
    for (size_t i = 0; i < inputs.size(); ++i)
      context_.set_input(inputs_of.inputs()[i].name, inputs[i].view());
  }

  template <class Told>
  void run(const Told& told) {
    std::map<std::string, int> times;
    context_.observe([&](const Observed& observed) {
      const std::string name(observed.name);
      const int time = ++times[name];
      told(Key(name, time), observed);
    });
    context_.run();
    context_.observe({});
  }

 private:
  ExecutionContext context_;
};

void check_same_inputs(const Engine& a, const Engine& b) {
  const auto sorted = [](const Engine& engine) {
    std::vector<std::string> ports;
    for (const Port& port : engine.inputs())
      ports.push_back(fmt::format("\"{}\" {} of {}", port.name, name(port.dtype),
                                  count_text(port.dims.span().size(), "axis")));
    std::sort(ports.begin(), ports.end());
    return ports;
  };
  const auto of_a = sorted(a), of_b = sorted(b);
  if (of_a == of_b) return;
  const auto list = [](const std::vector<std::string>& ports) {
    std::string text;
    for (const std::string& port : ports) text += (text.empty() ? "" : ", ") + port;
    return text.empty() ? "none" : text;
  };
  fail(Code::kInvalidArgument,
       fmt::format("A and B have different inputs, so they cannot be compared: {} against {}",
                   list(of_a), list(of_b)));
}

// What rounding to a type may do, and what is made of it by the steps that follow.
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

void compare_tensor(const TensorView& got, const TensorView& expected, Arithmetic arithmetic,
                    const CompareOptions& options, DataType& coarsest, ComparedTensor& compared) {
  compared.dtype = got.dtype;
  compared.dims = got.dims;
  coarsest = coarser(coarsest, coarser(got.dtype, expected.dtype));
  if (got.dims == expected.dims) compared.error = tensor_error(got, expected);
  compared.comparison = compare_output(
      got, expected, tolerance_of(coarsest, options, compared.error.scale), arithmetic);
}

}  // namespace

EngineComparison compare_engines(const std::shared_ptr<const Engine>& a,
                                 const std::shared_ptr<const Engine>& b,
                                 const std::vector<Tensor>& inputs, const CompareOptions& options) {
  check_same_inputs(*a, *b);
  const Arithmetic arithmetic = std::max(arithmetic_of(a->plan()), arithmetic_of(b->plan()));
  Side side_a(a, *a, inputs, options.threads), side_b(b, *a, inputs, options.threads);

  std::set<Key> left;  // of A, still to be compared
  side_a.run([&](const Key& key, const Observed&) { left.insert(key); });
  EngineComparison result;
  std::map<Key, ComparedTensor> compared;
  std::vector<Key> order;
  for (bool first = true; first || !left.empty(); first = false) {
    struct Kept {
      Tensor tensor;
      std::string step, kernel;
    };
    std::map<Key, Kept> kept;
    size_t bytes = 0;
    bool all = true;
    side_b.run([&](const Key& key, const Observed& observed) {
      if (first && !left.contains(key)) ++result.only_b;
      if (!left.contains(key)) return;
      const size_t size =
          static_cast<size_t>(count(observed.value.dims)) * size_of(observed.value.dtype);
      // At least one, or there would be no end.
      if (bytes > 0 && bytes + size > options.most_bytes) {
        all = false;
        return;
      }
      bytes += std::max<size_t>(size, 1);
      kept.emplace(key, Kept{dense_copy(observed.value), std::string(observed.step),
                             std::string(observed.kernel)});
    });
    DataType coarsest = DataType::kF32;
    side_a.run([&](const Key& key, const Observed& observed) {
      if (first) order.push_back(key);
      const auto found = kept.find(key);
      if (found == kept.end()) {
        coarsest = coarser(coarsest, observed.value.dtype);
        return;
      }
      ComparedTensor tensor{.name = key.first,
                            .time = key.second,
                            .step_a = std::string(observed.step),
                            .kernel_a = std::string(observed.kernel),
                            .step_b = found->second.step,
                            .kernel_b = found->second.kernel};
      compare_tensor(observed.value, found->second.tensor.view(), arithmetic, options, coarsest,
                     tensor);
      compared.emplace(key, std::move(tensor));
      left.erase(key);
    });
    if (all) break;
  }
  result.only_a = left.size();
  for (const Key& key : order)
    if (const auto found = compared.find(key); found != compared.end())
      result.tensors.push_back(std::move(found->second));
  return result;
}

}  // namespace anneal
