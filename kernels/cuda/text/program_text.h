// Programs as text for the device: of a Pointwise op, and of the epilogue that a kernel applies to
// its accumulators.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/store_lanes.h"
#include "anneal/kernels/cuda/text/vector_access.h"

namespace anneal::cuda {

std::string type_text(DataType storage);   // "h16"
std::string type_text(RegisterType type);  // "f32"
std::string literal(RegisterType type, uint64_t bits);
// Texts below call functions of device/program.h, which a FunctionText names in its headers.
// An element as its register, "op::widen(x[i])", and back: "to_h16(r3)". The value fits.
std::string loaded(DataType storage, const std::string& element);
std::string stored(DataType storage, const std::string& value);

struct ProgramText {
  std::string statements;              // "const f32 r2 = op::add(r0, r1);" one per line
  std::vector<std::string> results;    // expressions of the results' storage types
  std::vector<std::string> registers;  // and of their register types
};
// input(i): an expression of input i's register type. index(axis): one of type i64. `prefix` begins
// the names of registers.
ProgramText text_of(const Program& program, const std::function<std::string(int)>& input,
                    const std::function<std::string(int)>& index, const std::string& prefix = "r");
// As text_of() for results alone: without registers, and without statements for them.
ProgramText stores_of(const Program& program, const std::function<std::string(int)>& input,
                      const std::function<std::string(int)>& index);

// The offset of an operand's element at coordinates of `space`, to which it broadcasts. coordinate(
// axis): an expression of type i64.
struct OperandAt {
  bool output;
  int index;
};
std::string offset_text(const Request& request, Extents& extents, OperandAt at, const Shape& space,
                        const std::function<std::string(int)>& coordinate);

// Why the epilogues do not fit inputs and outputs, where the op's outputs are accumulators of these
// types (see accumulator() of graph/op/infer.h); empty if they do.
std::string epilogue_mismatch(const Request& request, std::span<const DataType> accumulators);

// The operations of a kernel on an accumulator: the epilogue of its op output (or rounding to the
// output's type), and the stores.
class StoreText {
 public:
  // Refuses if an epilogue does not take accumulators of this type or the op has another number of
  // outputs. Requests its parameters from `extents`. lanes: a thread holds neighbours; the text is
  // add_functions()'s.
  static Result<StoreText> make(const Request& request, DataType accumulator, Extents& extents,
                                size_t op_outputs = 1, const StoreLanes* lanes = nullptr);

  // "struct Store { ...; __device__ void operator()(f32 a, i64 i0, i64 i1) const {...} };": stores
  // one accumulator at the op output's coordinates. For lanes, with the members that
  // store_vector_text.h describes, and vectors() are the accumulators that they take at once.
  const std::string& definition() const { return definition_; }
  const std::vector<VectorAccess>& vectors() const { return vectors_; }
  // Of the kernel's own parameter list: ", In<f32> e2, Out<h16> y0"; then extents.parameters().
  const std::string& parameters() const { return parameters_; }
  // An expression that makes a Store of those parameters: "Store{e2, y0, v0}". With several op
  // outputs, `part` (i32) is the index of the one that accumulators belong to: "Store{y0, y1, v0,
  // part}".
  const std::string& construction() const { return construction_; }
  // parameters() are the inputs of the request from this one on, then all outputs.
  size_t first_input() const { return first_input_; }

 private:
  std::string definition_, parameters_, construction_;
  std::vector<VectorAccess> vectors_;
  size_t first_input_ = 0;
};

}  // namespace anneal::cuda
