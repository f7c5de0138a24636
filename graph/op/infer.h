// Shape inference: the types of an op's outputs, and the known contents of small integer tensors as
// size expressions. It is pure: the same inputs give the same answer at build and at run time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/size/size.h"
#include "anneal/core/tensor.h"
#include "anneal/core/type.h"
#include "anneal/graph/op/op.h"

namespace anneal {

// Contents are tracked for tensors of at most this many elements: integers, bool, and floats (what
// exporters compute between Shape and Cast).
inline constexpr int64_t kMaxKnownElements = 1024;

// The facts that are known of a value. elements: row-major, present if the shape is known and at
// least one element is (or there is none to know); the others are Size::unknown(). An element of a
// float tensor is an integer only if it is exactly that (-0 is not), or it is a real of the table.
struct Fact {
  Type type;
  std::optional<std::vector<Size>> elements;
  bool operator==(const Fact&) const = default;
};

// An input of the layer being inferred.
struct InferInput {
  const Fact* fact = nullptr;  // null: an absent optional input
  const TensorView* value =
      nullptr;  // the data, on the host, if known: constants, and when running
};

// Two sizes that a layer wants to be equal, in every run.
struct SizeDemand {
  Size a, b;
};
using SizeDemands = std::vector<SizeDemand>;

// The types of a body of control flow, which shares the layer's size table.
struct Signature {
  std::vector<Type> inputs, outputs;
};

// The inputs that infer() sees. Reading a malformed layer (too few inputs, wrong dtype) fails with
// kInvalidModel.
class InferInputs {
 public:
  // demands: takes what the rule demands of sizes, if it is not null.
  InferInputs(std::span<const InferInput> inputs, SizeTable& sizes,
              std::span<const Signature> bodies = {}, SizeDemands* demands = nullptr)
      : inputs_(inputs), sizes_(sizes), bodies_(bodies), demands_(demands) {}
  int count() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const { return i < count() && inputs_[i].fact != nullptr; }
  const Type& type(int i) const;  // fails if absent, or if not a tensor
  const Shape& shape(int i) const { return type(i).shape; }
  DataType dtype(int i) const { return type(i).dtype; }
  const TensorView* value(int i) const { return has(i) ? inputs_[i].value : nullptr; }
  // The contents of an input, as in Fact: from its value or its fact; nullopt if nothing is known.
  std::optional<std::vector<Size>> elements(int i) const;
  // The same where only plain integers will do; nullopt if any element is not one.
  std::optional<std::vector<int64_t>> integers(int i) const;
  SizeTable& sizes() const { return sizes_; }
  std::span<const InferInput> all() const { return inputs_; }
  InferInputs first(int count) const { return {inputs_.first(count), sizes_, bodies_, demands_}; }
  // Records an assumption of the rule: the sizes are equal, though their expressions differ.
  void demand(Size a, Size b) const;
  SizeDemands* demands() const { return demands_; }
  const Signature& body(int64_t index) const;

 private:
  std::span<const InferInput> inputs_;
  SizeTable& sizes_;
  std::span<const Signature> bodies_;
  SizeDemands* demands_;
};

using Facts = std::vector<Fact>;  // one per output of the op

// One overload per op, defined in infer_*.cc; a missing one is a link error that names the op. A
// size that depends on values not known yet is Size::unknown(). Fails with kInvalidModel, or
// kUnsupported where even the rank would depend on values.
#define X(T) Facts infer(const T& op, const InferInputs& inputs);
ANNEAL_FOR_EACH_OP(X)
#undef X
Facts infer(const Op& op, const InferInputs& inputs);

// For messages: a Require of given and wanted numbers does not hold.
std::string unmet_demand(std::span<const int64_t> given, std::span<const int64_t> wanted);

// The number of inputs an op itself takes, given how many the layer has in all before its
// epilogues'.
struct Arity {
  int min = 0;
  int max = 0;
};
Arity input_arity(const Op& op);  // max is 1 << 20 where there is no limit

// The register type in which an op hands results of this dtype to an epilogue: f32 for f16, bf16
// and f32; i32 for 8-bit Conv and MatMul (whose dtype is then i32 already); else the dtype's own.
DataType accumulator(DataType dtype);

// A whole layer: infer(op) on the first inputs, then each epilogue on the output it belongs to,
// with its further inputs after the op's own. epilogues is empty, or holds one (possibly empty)
// program per output of the op. found: the sizes of the op's outputs where a kernel has found them,
// which only ops with sizes that infer() leaves unknown have. Bounds of one value give that size,
// and the size that stands for others takes their place. A size whose expression nears the limits
// of the size table is unknown.
Facts infer_layer(const Op& op, std::span<const Program> epilogues, int op_input_count,
                  const InferInputs& inputs, std::span<const Dims> found = {});

// Whether a value whose rule gives `inferred` may have `size`: only that size. Where sizes stand
// for others, a rule that reads them may give any form of it, and the run compares the numbers.
bool allows(Size inferred, Size size, const SizeTable& sizes);

// Numpy broadcasting with sizes: equal sizes, or one of the two is 1. Of two different expressions,
// the result is the one that cannot be 1; if both can be 1, it is SizeTable::broadcast(). If
// neither can be 1, the rule demands that they are equal.
Shape broadcast(const Shape& a, const Shape& b, SizeTable& sizes, SizeDemands* demands = nullptr);

}  // namespace anneal
