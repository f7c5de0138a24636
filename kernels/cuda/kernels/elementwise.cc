#include "anneal/kernels/cuda/kernels/elementwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

constexpr int kElementwiseThreads = 256;
constexpr int64_t kWorthVectors = 1024;  // elements

size_t index_of(int i) { return static_cast<size_t>(i); }

// How the program's input is read, if not at the place of the result.
struct InputReads {
  const ByteTable* table = nullptr;       // its values by the input's 8 bits
  const IndexMapping* mapping = nullptr;  // where indices, the second input of the op, say
  const InputBlocks* blocks = nullptr;    // of the op's further inputs

  // Whether input i has an element for each block along an axis.
  bool is_blocked(const Request& request, int i) const {
    return blocks != nullptr && i > 0 && i < request.op_input_count;
  }
  // Whether input i has another innermost axis than the result.
  bool is_apart(const Request& request, int i, const Shape& space) const {
    if (mapping != nullptr) return i == 1;
    return is_blocked(request, i) && blocks->axis + 1 == space.rank();
  }
};

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
int vector_width(const Request& request, const Shape& space, const InputReads& reads) {
  if (space.rank() == 0) return 1;
  if (known(space) && count(dims_of(space)) < kWorthVectors) return 1;
  if (reads.mapping != nullptr && !reads.mapping->keeps_rows(space.rank())) return 1;
  size_t widest = 1;
  std::vector<const Operand*> in_vectors;
  bool is_in_blocks = false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const bool is_indexed = reads.mapping != nullptr && i == 0;
    const bool is_apart = reads.is_apart(request, static_cast<int>(i), space);
    is_in_blocks = is_in_blocks || (is_apart && reads.blocks != nullptr);
    if (!is_apart && (is_indexed || !repeats(request.inputs[i])))
      in_vectors.push_back(&request.inputs[i]);
  }
  for (const Operand& output : request.outputs) in_vectors.push_back(&output);
  for (const Operand* operand : in_vectors) widest = std::max(widest, size_of(operand->type.dtype));
  const int width = static_cast<int>(16 / widest);
  if (is_in_blocks && reads.blocks->size % width != 0) return 1;
  const Size inner = space[space.rank() - 1];
  if (space.rank() > 1 && (!inner.known() || inner.value() % width != 0)) return 1;
  for (const Operand* operand : in_vectors)
    if (operand->type.shape.rank() == 0 || !in_rows(*operand, space, width)) return 1;
  return width;
}

class Writer {
 public:
  Writer(const Program& program, const Request& request, Extents& extents, const Shape& space,
         const InputReads& reads)
      : program_(program), request_(request), extents_(extents), space_(space), reads_(reads) {}

  // The statements at coordinates i0, i1, ...
  std::string one() {
    width_ = 1;
    const Text text = elements();
    std::string body = text.loads + text.statements;
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
    const bool is_blocked = !output && reads_.is_blocked(request_, operand);
    return offset_text(request_, extents_, {output, operand}, space_, [&](int axis) {
      if (!is_blocked || axis != reads_.blocks->axis) return coordinate(axis);
      return fmt::format("({} / {})", coordinate(axis), reads_.blocks->size);
    });
  }
  // The offset of the first input's element, behind the statements of its position.
  std::string indexed_place(std::string& loads) {
    const auto at = [&](int axis) { return coordinate(axis); };
    const std::vector<int> axes = reads_.mapping->indexed_axes();
    for (size_t t = 0; t < axes.size(); ++t)
      loads += fmt::format("const i64 k{} = indexing::nearest({}, {});\n", t,
                           index_text(*reads_.mapping, request_, extents_, static_cast<int>(t), at),
                           extents_.input_dim(0, axes[t]));
    return place_text(*reads_.mapping, request_, extents_, {false, 0}, at);
  }
  std::string input(int i, std::string& loads) {
    const Operand& operand = request_.inputs[index_of(i)];
    const DataType dtype = operand.type.dtype;
    const bool is_indexed = reads_.mapping != nullptr && i == 0;
    const std::string from = is_indexed ? indexed_place(loads) : place(false, i);
    if (width_ == 1) return loaded(dtype, fmt::format("x{}[{}]", i, from));
    if (!is_indexed && (repeats(operand) || reads_.is_apart(request_, i, space_))) {
      loads += fmt::format("const {} p{} = x{}[{}];\n", type_text(dtype), i, i, from);
      return loaded(dtype, fmt::format("p{}", i));
    }
    loads += fmt::format("const Vec<{}, {}> p{} = load<{}>(x{}, {});\n", type_text(dtype), width_,
                         i, width_, i, from);
    return loaded(dtype, fmt::format("p{}[e]", i));
  }
  Text elements() {
    Text text;
    if (reads_.table != nullptr) {
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
    const auto own_input = [&](int i) { return input(i, text.loads); };
    if (request_.epilogues.empty()) {
      add(stores_of(program_, own_input, index));
      return text;
    }
    const ProgramText own = text_of(program_, own_input, index, "r");
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
  const InputReads& reads_;
  int width_ = 1;
};

// width: elements that a thread takes at once. if_empty: as in PerElement.
KernelResult elementwise_kernel(FunctionParts parts, const Request& request, int width,
                                std::string_view if_empty) {
  parts.geometry = [width, if_empty, spec = &spec_of(request.device)](
                       FunctionParts::Views inputs, FunctionParts::Views outputs) {
    if (!if_empty.empty() && count(inputs[0].dims) == 0 && count(outputs[0].dims) != 0)
      fail(ErrorCode::kInvalidArgument, std::string(if_empty));
    const int64_t threads = ceil_div(count(outputs[0].dims), width);
    return Geometry{.grid = {resident_blocks_for(*spec, threads, kElementwiseThreads), 1, 1},
                    .block = {kElementwiseThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

// Whether all operands begin at whole vectors, as the parameter that a function of vectors has.
// apart: the inputs of InputReads::is_apart().
void add_aligned(int width, const std::vector<bool>& apart, Arguments& arguments,
                 FunctionParts::Views inputs, FunctionParts::Views outputs) {
  int64_t aligned = 1;
  const auto look = [&](const TensorView& view) {
    const int rank = view.dims.rank();
    if (rank == 0 || view.dims[rank - 1] == 1 || view.strides[rank - 1] == 0) return;
    const auto bytes = static_cast<uintptr_t>(width) * size_of(view.dtype);
    if (reinterpret_cast<uintptr_t>(view.data) % bytes != 0) aligned = 0;
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!apart[i]) look(inputs[i]);
  for (const TensorView& output : outputs) look(output);
  arguments.add(aligned);
}

// A table of shared memory.
std::string table_text(const ByteTable& table) {
  return fmt::format(
      "static const u8 values[256] = {{{}}};\nSHARED(u8, table, 256);\n"
      "for (i32 i = threadIdx.x; i < 256; i += {}) table[i] = values[i];\n__syncthreads();\n",
      fmt::join(table, ","), kElementwiseThreads);
}

KernelResult make_function(const Program& program, const InputReads& reads, OperandViews seen,
                           std::string_view family) {
  std::vector<DataType> accumulators;
  for (const Program::Result& result : program.results())
    accumulators.push_back(seen.request().epilogues.empty() ? result.dtype
                                                            : accumulator(result.dtype));
  if (std::string mismatch = epilogue_mismatch(seen.request(), accumulators); !mismatch.empty())
    return refuse(std::move(mismatch));
  const bool is_indexed = reads.mapping != nullptr;
  if (!program.uses_index() && !is_indexed && reads.blocks == nullptr) {
    seen.move_unit_axis_last();
    seen.merge_axes();
  }

  const Request request = seen.request();
  const Shape& space = seen.space();
  const bool small = seen.is_small(space);
  Extents extents(request);
  const int width = vector_width(request, space, reads);
  Writer writer(program, request, extents, space, reads);
  std::vector<std::string> dims = output_dims(request, extents, 0);
  std::string loops = reads.table != nullptr ? table_text(*reads.table) : "";
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
  if (is_indexed) text.headers.push_back("indexing.h");
  FunctionParts parts = parts_of(request, seen, extents, std::move(text));
  if (reads.table != nullptr) parts.tactic = anneal::tactic_of(*reads.table);
  std::vector<bool> apart;
  for (int i = 0; i < inputs; ++i) apart.push_back(reads.is_apart(request, i, space));
  if (width > 1)
    parts.extra = [width, apart](Arguments& arguments, FunctionParts::Views all_inputs,
                                 FunctionParts::Views outputs) {
      add_aligned(width, apart, arguments, all_inputs, outputs);
    };
  return elementwise_kernel(std::move(parts), request, width,
                            is_indexed ? "an index is out of range for 0 elements" : "");
}

}  // namespace

KernelResult make_elementwise(const Program& program, OperandViews seen, std::string_view family) {
  return make_function(program, {}, std::move(seen), family);
}

KernelResult make_lookup(const Program& program, const ByteTable& table, OperandViews seen,
                         std::string_view family) {
  return make_function(program, {.table = &table}, std::move(seen), family);
}

KernelResult make_blocked(const Program& program, const InputBlocks& blocks, OperandViews seen,
                          std::string_view family) {
  return make_function(program, {.blocks = &blocks}, std::move(seen), family);
}

KernelResult make_gather(const IndexMapping& mapping, OperandViews seen, std::string_view family) {
  if (!has_epilogue(seen.request())) seen.as_bits(1);
  const DataType dtype = seen.request().inputs[0].type.dtype;
  ProgramBuilder builder;
  return make_function(builder.finish(builder.input(0, dtype), dtype), {.mapping = &mapping},
                       std::move(seen), family);
}

std::string store_call(const std::string& value, int rank) {
  std::string text = "store(" + value;
  for (int axis = 0; axis < rank; ++axis) text += fmt::format(", i{}", axis);
  return text + ");\n";
}

KernelResult make_per_element(const OperandViews& seen, DataType accumulator,
                              std::string_view family, const BodyText& body, PerElement more) {
  const Request request = seen.request();
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator, extents);
  if (!store) return refuse(store.reason());
  const std::vector<std::string> dims = output_dims(request, extents, 0);
  const std::string before = more.before ? more.before(request, extents) : "";
  const std::string done = body(request, extents);
  const std::string loop = element_loop(dims, seen.is_small(seen.space()), "0", "count", done);
  if (request.inputs.size() + request.outputs.size() + extents.sources().size() > Arguments::kMost)
    return refuse("more operands than a launch takes");
  FunctionText text{
      std::string(family),
      {"program.h"},
      fmt::format("{}{}KERNEL($name, {})({}{}{}) {{\nconst Store store = {};\nconst i64 count = "
                  "{};\n{}{}{}}}\n",
                  store->definition(), more.definitions, kElementwiseThreads,
                  input_parameters(request, request.op_input_count), store->parameters(),
                  extents.parameters(), store->construction(), product(dims), thread_numbers(),
                  before, loop)};
  text.headers.insert(text.headers.end(), more.headers.begin(), more.headers.end());
  FunctionParts parts = parts_of(request, seen, extents, std::move(text));
  parts.host_inputs = std::move(more.host_inputs);
  return elementwise_kernel(std::move(parts), request, 1, more.if_empty);
}

}  // namespace anneal::cuda
