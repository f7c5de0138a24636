// Operators from outside by name, and their shape rule.
#include "anneal/graph/op/custom_operator.h"

#include <fmt/format.h>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

std::string name_of(const Custom& op) {
  return fmt::format("the operator {} (version {})", operator_name(op.domain, op.type), op.version);
}

}  // namespace

std::string described_operator(const Custom& op) {
  return fmt::format("{} of library \"{}\"", name_of(op), op.library);
}

std::vector<std::string> operators_given_twice(const CustomOperators& operators,
                                               Versions versions) {
  std::vector<std::string> sentences;
  for (size_t i = 1; i < operators.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const CustomOperator::Description &used = operators[k]->description(),
                                        &other = operators[i]->description();
      if (used.domain != other.domain || used.type != other.type || used.since != other.since)
        continue;
      if (versions == Versions::kSame && used.version != other.version) continue;
      sentences.push_back(fmt::format(
          "two libraries have the operator {} (since opset {}): \"{}\" (version {}) is used, and "
          "not \"{}\" (version {}), which was given after it",
          operator_name(used.domain, used.type), used.since, used.library, used.version,
          other.library, other.version));
      break;
    }
  return sentences;
}

std::string operator_name(std::string_view domain, std::string_view type) {
  return fmt::format("{}.{}", domain.empty() ? "ai.onnx" : domain, type);
}

std::shared_ptr<const CustomOperator> find_operator(const CustomOperators& operators,
                                                    std::string_view domain, std::string_view type,
                                                    int64_t opset) {
  std::shared_ptr<const CustomOperator> latest;
  for (const auto& each : operators) {
    const CustomOperator::Description& one = each->description();
    if (one.domain != domain || one.type != type || one.since > opset) continue;
    if (!latest || one.since > latest->description().since) latest = each;
  }
  return latest;
}

void bind_operator(Custom& op, const CustomOperators& operators) {
  std::string other;
  for (const auto& each : operators) {
    const CustomOperator::Description& one = each->description();
    if (one.domain != op.domain || one.type != op.type || one.since != op.since) continue;
    if (one.version == op.version) {
      op.definition = each;
      return;
    }
    if (other.empty()) other = fmt::format("{} of library \"{}\"", one.version, one.library);
  }
  const std::string wanted = described_operator(op);
  if (!other.empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("the engine needs {}, and was given version {}: give the library of the "
                     "build, or build the engine again",
                     wanted, other));
  fail(ErrorCode::kUnsupported,
       fmt::format("the engine needs {}: give its file with --library FILE, or in the option "
                   "`libraries`",
                   wanted));
}

bool is_pure(const Op& op) {
  const auto* custom = std::get_if<Custom>(&op);
  return !custom || (custom->definition && custom->definition->description().is_pure);
}

Facts infer(const Custom& op, const InferInputs& inputs) {
  if (!op.definition)
    fail(ErrorCode::kUnsupported, fmt::format("{} has no library here", name_of(op)));
  Facts facts;
  for (Type& type : op.definition->infer(op, inputs))
    facts.push_back(rules::make_fact(type.dtype, type.shape));
  check(facts.size() == static_cast<size_t>(op.outputs), "an operator gives all its outputs");
  return facts;
}

}  // namespace anneal
