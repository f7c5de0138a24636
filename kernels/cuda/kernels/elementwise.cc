#include "anneal/kernels/cuda/kernels/elementwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

constexpr int kElementwiseThreads = 256;
constexpr int64_t kWorthVectors = 1024;  // elements

size_t index_of(int i) { return static_cast<size_t>(i); }

// Whether an operand is the same for all elements along the innermost axis of the space.
bool repeats(const Operand& operand) {
  const int rank = operand.type.shape.rank();
  return rank == 0 || operand.type.shape[rank - 1] == Size(1) ||
         operand.strides[rank - 1] == Size(0);
}

// Whether `width` elements in a row begin at a multiple of that wherever the row begins.
bool in_rows(const Operand& operand, const Shape& space, int width) {
  const Shape& shape = operand.type.shape;
  const int last = shape.rank() - 1;
  if (!(shape[last] == space[space.rank() - 1]) || !(operand.strides[last] == Size(1)))
    return false;
  for (int axis = 0; axis < last; ++axis) {
    const Size stride = operand.strides[axis];
    if (!(shape[axis] == Size(1)) && (!stride.known() || stride.value() % width != 0)) return false;
  }
  return true;
}

// Elements of an access at once: 1 unless all operands allow 16 bytes of the widest.
int vector_width(const Request& request, const Shape& space) {
  if (space.rank() == 0) return 1;
  if (known(space) && count(dims_of(space)) < kWorthVectors) return 1;
  size_t widest = 1;
  std::vector<const Operand*> in_vectors;
  for (const Operand& input : request.inputs)
    if (!repeats(input)) in_vectors.push_back(&input);
  for (const Operand& output : request.outputs) in_vectors.push_back(&output);
  for (const Operand* operand : in_vectors) widest = std::max(widest, size_of(operand->type.dtype));
  const int width = static_cast<int>(16 / widest);
  const Size inner = space[space.rank() - 1];
  if (space.rank() > 1 && (!inner.known() || inner.value() % width != 0)) return 1;
  for (const Operand* operand : in_vectors)
    if (operand->type.shape.rank() == 0 || !in_rows(*operand, space, width)) return 1;
  return width;
}

class Writer {
 public:
  Writer(const Program& program, const Request& request, Extents& extents, const Shape& space,
         bool looks_up)
      : program_(program),
        request_(request),
        extents_(extents),
        space_(space),
        looks_up_(looks_up) {}

  // The statements at coordinates i0, i1, ...
  std::string one() {
    width_ = 1;
    const Text text = elements();
    std::string body = text.statements;
    for (size_t k = 0; k < text.results.size(); ++k)
      body += fmt::format("y{}[{}] = {};\n", k, place(true, static_cast<int>(k)), text.results[k]);
    return body;
  }
  // The same for `width` elements, where the innermost coordinate counts such vectors.
  std::string several(int width) {
    width_ = width;
    const Text text = elements();
    std::string before = text.loads, within = text.statements, after;
    for (size_t k = 0; k < text.results.size(); ++k) {
      before +=
          fmt::format("Vec<{}, {}> q{};\n", type_text(request_.outputs[k].type.dtype), width, k);
      within += fmt::format("q{}[e] = {};\n", k, text.results[k]);
      after += fmt::format("store(y{0}, {1}, q{0});\n", k, place(true, static_cast<int>(k)));
    }
    return fmt::format("{}#pragma unroll\nfor (int e = 0; e < {}; ++e) {{\n{}}}\n{}", before, width,
                       within, after);
  }

 private:
  struct Text {
    std::string loads, statements;
    std::vector<std::string> results;  // one per output
  };

  std::string coordinate(int axis) const {
    if (width_ == 1 || axis + 1 < space_.rank()) return fmt::format("i{}", axis);
    return fmt::format("i{} * {}", axis, width_);
  }
  std::string place(bool output, int operand) {
    return offset_text(request_, extents_, {output, operand}, space_,
                       [&](int axis) { return coordinate(axis); });
  }
  std::string input(int i, std::string& loads) {
    const Operand& operand = request_.inputs[index_of(i)];
    const DataType dtype = operand.type.dtype;
    if (width_ == 1) return loaded(dtype, fmt::format("x{}[{}]", i, place(false, i)));
    if (repeats(operand)) {
      loads += fmt::format("const {} p{} = x{}[{}];\n", type_text(dtype), i, i, place(false, i));
      return loaded(dtype, fmt::format("p{}", i));
    }
    loads += fmt::format("const Vec<{}, {}> p{} = load<{}>(x{}, {});\n", type_text(dtype), width_,
                         i, width_, i, place(false, i));
    return loaded(dtype, fmt::format("p{}[e]", i));
  }
  Text elements() {
    Text text;
    if (looks_up_) {
      text.results = {fmt::format("{}(table[u8({})])", type_text(request_.outputs[0].type.dtype),
                                  input(0, text.loads))};
      return text;
    }
    const auto index = [&](int axis) {
      const bool inner = width_ > 1 && axis + 1 == space_.rank();
      return inner ? coordinate(axis) + " + e" : coordinate(axis);
    };
    const auto add = [&](ProgramText part) {
      text.statements += part.statements;
      for (std::string& result : part.results) text.results.push_back(std::move(result));
    };
    ProgramText own = text_of(
        program_, [&](int i) { return input(i, text.loads); }, index, "r");
    if (request_.epilogues.empty()) {
      add(std::move(own));
      return text;
    }
    text.statements = own.statements;
    int further = request_.op_input_count;
    for (size_t k = 0; k < own.results.size(); ++k) {
      const Program& epilogue = request_.epilogues[k];
      if (epilogue.empty()) {
        text.results.push_back(own.results[k]);
        continue;
      }
      const int first = further - 1;
      add(text_of(
          epilogue, [&](int i) { return i == 0 ? own.registers[k] : input(first + i, text.loads); },
          index, fmt::format("s{}_", k)));
      if (!epilogue.inputs().empty()) further += static_cast<int>(epilogue.inputs().size()) - 1;
    }
    return text;
  }

  const Program& program_;
  const Request& request_;
  Extents& extents_;
  const Shape& space_;
  bool looks_up_;
  int width_ = 1;
};

class Elementwise final : public FunctionKernel {
 public:
  Elementwise(Parts parts, int width, std::vector<std::byte> tactic = {})
      : FunctionKernel(std::move(parts)), width_(width), tactic_(std::move(tactic)) {}
  std::vector<std::byte> tactic() const override { return tactic_; }

 protected:
  Geometry geometry(Views, Views outputs) const override {
    const int64_t elements = count(outputs[0].dims);
    return {.grid = {blocks(ceil_div(elements, width_), kElementwiseThreads), 1, 1},
            .block = {kElementwiseThreads, 1, 1}};
  }
  void add_extra(Arguments& arguments, Views inputs, Views outputs) const override {
    if (width_ == 1) return;
    int64_t aligned = 1;
    const auto look = [&](const TensorView& view) {
      const int rank = view.dims.rank();
      if (rank == 0 || view.dims[rank - 1] == 1 || view.strides[rank - 1] == 0) return;
      const auto bytes = static_cast<uintptr_t>(width_) * size_of(view.dtype);
      if (reinterpret_cast<uintptr_t>(view.data) % bytes != 0) aligned = 0;
    };
    for (const TensorView& input : inputs) look(input);
    for (const TensorView& output : outputs) look(output);
    arguments.add(aligned);
  }

 private:
  int width_;
  std::vector<std::byte> tactic_;
};

// A table of shared memory.
std::string table_text(const ByteTable& table) {
  return fmt::format(
      "static const u8 values[256] = {{{}}};\nSHARED(u8, table, 256);\n"
      "for (i32 i = threadIdx.x; i < 256; i += {}) table[i] = values[i];\n__syncthreads();\n",
      fmt::join(table, ","), kElementwiseThreads);
}

KernelResult make_function(const Program& program, const ByteTable* table, OperandViews seen,
                           std::string_view family) {
  std::vector<DataType> accumulators;
  for (const Program::Result& result : program.results())
    accumulators.push_back(seen.request().epilogues.empty() ? result.dtype
                                                            : accumulator(result.dtype));
  if (std::string mismatch = epilogue_mismatch(seen.request(), accumulators); !mismatch.empty())
    return refuse(std::move(mismatch));
  if (!program.uses_index()) seen.merge_axes();

  const Request request = seen.request();
  const Shape& space = seen.space();
  const bool small = seen.is_small(space);
  Extents extents(request);
  const int width = vector_width(request, space);
  Writer writer(program, request, extents, space, table != nullptr);
  std::vector<std::string> dims = output_dims(request, extents, 0);
  std::string loops = table != nullptr ? table_text(*table) : "";
  loops += "const i64 count = " + product(dims) + ";\n" + std::string(thread_numbers());
  if (width > 1) {
    auto vectors = dims;
    vectors.back() = fmt::format("({} / {})", dims.back(), width);
    loops += fmt::format("const i64 vectors = aligned != 0 ? count / {} : 0;\n", width);
    loops += element_loop(vectors, small, "0", "vectors", writer.several(width));
  }
  const std::string from = width > 1 ? fmt::format("vectors * {}", width) : "0";
  loops += element_loop(dims, small, from, "count", writer.one());

  const int inputs = static_cast<int>(request.inputs.size());
  std::string parameters = input_parameters(request, inputs);
  for (size_t k = 0; k < request.outputs.size(); ++k)
    parameters += fmt::format("{}Out<{}> y{}", parameters.empty() ? "" : ", ",
                              type_text(request.outputs[k].type.dtype), k);
  if (width > 1) parameters += ", i64 aligned";
  if (request.inputs.size() + request.outputs.size() + extents.sources().size() + 1 >
      Arguments::kMost)
    return refuse("more operands than a launch takes");
  FunctionText text{std::string(family),
                    {"program.h"},
                    fmt::format("KERNEL($name, {})({}{}) {{\n{}}}\n", kElementwiseThreads,
                                parameters, extents.parameters(), loops)};
  return std::make_unique<Elementwise>(
      parts_of(request, seen, extents, std::move(text)), width,
      table != nullptr ? anneal::tactic_of(*table) : std::vector<std::byte>{});
}

}  // namespace

KernelResult make_elementwise(const Program& program, OperandViews seen, std::string_view family) {
  return make_function(program, nullptr, std::move(seen), family);
}

KernelResult make_lookup(const Program& program, const ByteTable& table, OperandViews seen,
                         std::string_view family) {
  return make_function(program, &table, std::move(seen), family);
}

std::string store_call(const std::string& value, int rank) {
  std::string text = "store(" + value;
  for (int axis = 0; axis < rank; ++axis) text += fmt::format(", i{}", axis);
  return text + ");\n";
}

KernelResult make_per_element(const OperandViews& seen, DataType accumulator,
                              std::string_view family, const BodyText& body) {
  const Request request = seen.request();
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator, extents);
  if (!store) return refuse(store.reason());
  const std::vector<std::string> dims = output_dims(request, extents, 0);
  const std::string done = body(request, extents);
  const std::string loop = element_loop(dims, seen.is_small(seen.space()), "0", "count", done);
  if (request.inputs.size() + request.outputs.size() + extents.sources().size() > Arguments::kMost)
    return refuse("more operands than a launch takes");
  FunctionText text{
      std::string(family),
      {"program.h"},
      fmt::format("{}KERNEL($name, {})({}{}{}) {{\nconst Store store = {};\nconst i64 count = "
                  "{};\n{}{}}}\n",
                  store->definition(), kElementwiseThreads,
                  input_parameters(request, request.op_input_count), store->parameters(),
                  extents.parameters(), store->construction(), product(dims), thread_numbers(),
                  loop)};
  return std::make_unique<Elementwise>(parts_of(request, seen, extents, std::move(text)), 1);
}

}  // namespace anneal::cuda
