// CustomOperator: what a library of kernels says of an operator that Anneal does not have.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/graph/op/op.h"

namespace anneal {

class CustomKernels;  // kernels/custom_kernels.h

// Immutable and thread-safe; Custom ops share it.
class CustomOperator {
 public:
  struct Description {
    std::string library, domain, type;  // "" is the domain ai.onnx
    int64_t since = 1;                  // the first opset of the domain whose nodes it takes
    int64_t version = 0;                // an engine loads with this version of it only
    // The same inputs give the same outputs, and nothing else happens.
    bool is_pure = false;
    // By bit: the inputs whose axis 0 is the batch. If there are any, each row of the outputs
    // follows from the same row of these inputs and from the others as a whole.
    uint64_t row_inputs = 0;
    // Its inputs may have been rounded to 16 bits on their way, though it gets f32.
    bool takes_rounded = false;
    // A build may give it f16, or bf16, for all inputs that are f32 in the model.
    bool takes_f16 = false, takes_bf16 = false;
    bool takes(DataType half) const {
      return half == DataType::kF16 ? takes_f16 : half == DataType::kBF16 && takes_bf16;
    }
  };
  explicit CustomOperator(Description description) : description_(std::move(description)) {}
  virtual ~CustomOperator() = default;

  const Description& description() const { return description_; }
  // The types of all outputs. A size that is known only with those of the inputs is unknown().
  virtual std::vector<Type> infer(const Custom& op, const InferInputs& inputs) const = 0;
  virtual const CustomKernels& kernels() const = 0;

 private:
  const Description description_;
};

using CustomOperators = std::vector<std::shared_ptr<const CustomOperator>>;

// A sentence for each operator that is given twice: the first is used. kAny, for a build: whatever
// their versions are; kSame, for an engine, which takes its own version.
enum class Versions { kAny, kSame };
std::vector<std::string> operators_given_twice(const CustomOperators& operators, Versions versions);

// The one that takes nodes of this opset: of the latest that began by then, the first; null if
// there is none.
std::shared_ptr<const CustomOperator> find_operator(const CustomOperators& operators,
                                                    std::string_view domain, std::string_view type,
                                                    int64_t opset);
// Gives an op of an engine file its operator. Fails with kUnsupported, naming the op and the
// library that is wanted.
void bind_operator(Custom& op, const CustomOperators& operators);
// "my.domain.Clip"; in a sentence: the operator my.domain.Clip (version 1) of library "clips"
std::string operator_name(std::string_view domain, std::string_view type);
std::string described_operator(const Custom& op);

// Whether the same inputs give the same outputs, and nothing else happens: such a layer may run
// while building, and once in place of twice. False only of operators from outside that do not say
// so.
bool is_pure(const Op& op);

}  // namespace anneal
