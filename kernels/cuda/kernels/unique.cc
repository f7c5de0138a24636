// Unique: "cuda.unique.sorted". The indices of all slices are sorted, each slice finds its leader,
// and leaders are selected as NonZero selects: in the order of the slices, or as they are met.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <limits>
#include <numeric>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/selecting_kernel.h"

namespace anneal::cuda {
namespace {

// Places that one block sorts in one launch; more take a launch for each step.
constexpr int64_t kSortedByBlock = 2048;

int64_t slices_of(const Unique& op, const TensorView& x) {
  return op.flatten ? count(x.dims) : x.dims[static_cast<int>(op.axis)];
}

// The steps of the kernel, in their order, and the memory that they share.
enum UniqueStep : uint8_t { kSort, kLead, kCount, kWrite, kNumber };
constexpr int kUniqueSteps = 5;

struct UniqueFunction {
  std::shared_ptr<const Function> function;
  std::vector<Extents::Source> sources;
};

class UniqueText {
 public:
  UniqueText(const Unique& op, const Request& request) : op_(op), request_(request) {}

  UniqueFunction function(UniqueStep step) const {
    Extents extents(request_);
    SelectText text{
        .family = "unique",
        .headers = {"program.h", "lanes.h", "rows.h", "scan.h", "select.h", "top_k.h", "unique.h"},
        .definitions = "",
        .inputs = input_parameters(request_, 1),
        .parameters = "",
        .statements = statements(extents),
        .body = ""};
    switch (step) {
      case kSort:
        text.parameters = ", Out<i32> order, i64 groups, i64 size, i64 run, i64 last, i64 apart";
        text.body =
            "for (i64 r = run; r <= last; r *= 2)\n"
            "for (i64 d = apart != 0 ? apart : r / 2; d > 0; d = apart != 0 ? i64(0) : d / 2) {\n"
            "unique::sort_step(order, slices, size, r, d, compare);\n__syncthreads();\n}\n";
        break;
      case kLead:
        text.parameters = ", In<i32> order, Out<i32> leader, i64 groups";
        text.body = of_group(
            "leader[i] = order[unique::number_below(order, slices, i32(i), 0, "
            "compare)];\n");
        break;
      case kCount:
        text.parameters = ", In<i32> order, In<i32> leader, Out<i64> counts, i64 groups";
        text.body = fmt::format(
            "{}const i64 taken = select::sum(begin, end, partial, takes);\n"
            "if (threadIdx.x == 0) counts[group] = taken;\n",
            run_of_group());
        break;
      case kWrite:
        text.parameters = fmt::format(
            ", Out<{}> y0, Out<i64> y1, Out<i64> y3, In<i32> order, In<i32> leader, Out<i32> "
            "number, In<i64> counts, i64 groups",
            type_text(request_.inputs[0].type.dtype));
        text.body = write(extents);
        break;
      case kNumber:
        text.parameters = ", Out<i64> y2, In<i32> leader, In<i32> number, i64 groups";
        text.body =
            of_group(fmt::format("y2[i * {}] = number[leader[i]];\n", extents.stride(true, 2, 0)));
        break;
    }
    text.parameters += extents.parameters();
    return {code_of(request_.device).add(select_text(text)), extents.sources()};
  }

 private:
  int rank() const { return request_.inputs[0].type.shape.rank(); }
  // The offset of element j of slice i; `extents` has no output for the input.
  std::string place(Extents& extents, OperandAt of, const std::string& slice) const {
    const int axis = static_cast<int>(op_.axis);
    if (op_.flatten) {
      if (of.output) return fmt::format("{} * {}", slice, extents.stride(true, of.index, 0));
      return "place_of(" + slice + ")";
    }
    std::string text = fmt::format("{} * {}", slice, extents.stride(of.output, of.index, axis));
    for (int i = 0; i < rank(); ++i)
      if (i != axis) text += fmt::format(" + i{} * {}", i, extents.stride(of.output, of.index, i));
    return text;
  }
  // "const i64 i0 = ...;" of element j of a slice, on all axes but that of slices.
  std::string within(Extents& extents) const {
    std::string text = "[[maybe_unused]] i64 rest = j;\n";
    for (int i = rank(); i-- > 0;)
      if (i != op_.axis)
        text += fmt::format("[[maybe_unused]] const i64 i{0} = rest % {1};\nrest /= {1};\n", i,
                            extents.input_dim(0, i));
    return text;
  }
  // "slices", "width" and "compare", of which some functions use a part.
  std::string statements(Extents& extents) const {
    const DataType dtype = request_.inputs[0].type.dtype;
    std::vector<std::string> all, others;
    for (int i = 0; i < rank(); ++i) {
      all.push_back(extents.input_dim(0, i));
      if (i != op_.axis) others.push_back(all.back());
    }
    std::string text = fmt::format("const i64 slices = {}, width = {};\n",
                                   op_.flatten ? product(all) : all[axis_index()],
                                   op_.flatten ? "1" : product(others));
    if (op_.flatten)
      text +=
          fmt::format("const auto place_of = [&]([[maybe_unused]] i64 n) {{\n{}return {};\n}};\n",
                      element_coordinates(all, "i64"),
                      offset_text(request_, extents, {false, 0}, request_.inputs[0].type.shape,
                                  [](int axis) { return fmt::format("i{}", axis); }));
    const std::string type = dtype == DataType::kBool ? "i32" : type_text(register_type(dtype));
    return text + fmt::format(
                      "const auto key = [&](i64 slice, [[maybe_unused]] i64 j) {{\n{within}"
                      "return top_k::key_of({type}({element}));\n}};\n"
                      "[[maybe_unused]] const auto compare = [&](i32 a, i32 b) {{\n"
                      "for (i64 j = 0; j < width; ++j) {{\nconst auto of_a = key(a, j), of_b = "
                      "key(b, j);\n"
                      "if (of_a != of_b) return of_a < of_b ? -1 : 1;\n}}\nreturn 0;\n}};\n",
                      fmt::arg("within", op_.flatten ? "" : within(extents)),
                      fmt::arg("type", type),
                      fmt::arg("element",
                               loaded(dtype, "x0[" + place(extents, {false, 0}, "slice") + "]")));
  }
  size_t axis_index() const { return static_cast<size_t>(op_.axis); }
  static std::string range_of_group() {
    return "const i64 each = (slices + groups - 1) / groups;\n"
           "const i64 begin = op::min(group * each, slices);\n"
           "const i64 end = op::min((group + 1) * each, slices);\n";
  }
  // With "takes" of places in the order of the result.
  std::string run_of_group() const {
    return range_of_group() + fmt::format(
                                  "const auto slice_at = [&](i64 k) {{ return i32({}); }};\n"
                                  "const auto takes = [&](i64 k) {{\nconst i32 i = slice_at(k);\n"
                                  "return leader[i] == i;\n}};\n",
                                  op_.sorted ? "order[k]" : "k");
  }
  static std::string of_group(const std::string& body) {
    return range_of_group() + "for (i64 i = begin + threadIdx.x; i < end; i += 256) {\n" + body +
           "}\n";
  }
  std::string write(Extents& extents) const {
    const auto number = [](int equal) {
      return fmt::format("unique::number_below(order, slices, i, {}, compare)", equal);
    };
    return fmt::format(
        "{run}const i64 first = select::sum(i64(0), group, partial, [&](i64 i) {{ return "
        "counts[i]; }});\n"
        "select::write_taken<1>(begin, end, first, partial, takes, [&](i64 at, i64 k) {{\n"
        "const i32 i = slice_at(k);\nnumber[i] = i32(at);\ny1[at * {step1}] = i;\n"
        "y3[at * {step3}] = {upto} - {below};\n"
        "for (i64 j = 0; j < width; ++j) {{\n{within}y0[{to}] = x0[{from}];\n}}\n}});\n",
        fmt::arg("run", run_of_group()), fmt::arg("step1", extents.stride(true, 1, 0)),
        fmt::arg("step3", extents.stride(true, 3, 0)), fmt::arg("upto", number(1)),
        fmt::arg("below", number(0)), fmt::arg("within", op_.flatten ? "" : within(extents)),
        fmt::arg("to", place(extents, {true, 0}, "at")),
        fmt::arg("from", place(extents, {false, 0}, "i")));
  }

  const Unique& op_;
  const Request& request_;
};

class UniqueKernel final : public Kernel {
 public:
  UniqueKernel(const Unique& op, const Request& request) : op_(op), device_(request.device) {
    const UniqueText text(op, request);
    for (int step = 0; step < kUniqueSteps; ++step)
      functions_[static_cast<size_t>(step)] = text.function(static_cast<UniqueStep>(step));
  }

  std::unique_ptr<DataDependentDims> find(std::span<const TensorView> inputs, DeviceStream& stream,
                                          ThreadTeam&) const override {
    const int64_t slices = slices_of(op_, inputs[0]);
    if (slices > std::numeric_limits<int32_t>::max() / 2)
      fail(ErrorCode::kUnsupported, "more than 2^30 elements");
    std::vector<int64_t> counts(static_cast<size_t>(groups_for(slices)));
    if (slices != 0) {
      const Memory memory = memory_of(slices, stream);
      sort(inputs, slices, memory, stream);
      run(kLead, inputs, {}, {memory.order, memory.leader}, {}, stream);
      run(kCount, inputs, {}, {memory.order, memory.leader, memory.counts}, {}, stream);
      cuda::copy(stream, reinterpret_cast<std::byte*>(counts.data()), memory.counts,
                 counts.size() * sizeof(int64_t));
      stream.wait();
    }
    const Dims distinct{std::accumulate(counts.begin(), counts.end(), int64_t{0})};
    Dims elements = distinct;
    if (!op_.flatten) {
      elements = inputs[0].dims;
      elements[static_cast<int>(op_.axis)] = distinct[0];
    }
    auto found = std::make_unique<DataDependentDims>();
    found->dims = {elements, distinct, Dims{slices}, distinct};
    return found;
  }
  void launch(const LaunchArgs& args) const override {
    const int64_t slices = slices_of(op_, args.inputs[0]);
    if (slices == 0) return;
    const Memory memory = memory_of(slices, args.stream);
    const auto& y = args.outputs;
    run(kWrite, args.inputs, y,
        {y[0].data, y[1].data, y[3].data, memory.order, memory.leader, memory.number,
         memory.counts},
        {}, args.stream);
    run(kNumber, args.inputs, y, {y[2].data, memory.leader, memory.number}, {}, args.stream);
  }

 private:
  struct Memory {
    std::byte *counts, *order, *leader, *number;
  };
  static int64_t places_of(int64_t slices) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(slices, 2))));
  }
  Memory memory_of(int64_t slices, DeviceStream& stream) const {
    const auto bytes = [](int64_t elements, size_t size) {
      return static_cast<size_t>(align_up(elements * static_cast<int64_t>(size), int64_t{64}));
    };
    const size_t counts = bytes(groups_for(slices), sizeof(int64_t)),
                 order = bytes(places_of(slices), sizeof(int32_t)),
                 each = bytes(slices, sizeof(int32_t));
    std::byte* const memory = found_memory(stream, device_, counts + order + 2 * each);
    return {memory, memory + counts, memory + counts + order, memory + counts + order + each};
  }
  void sort(std::span<const TensorView> inputs, int64_t slices, const Memory& memory,
            DeviceStream& stream) const {
    const int64_t size = places_of(slices);
    if (size <= kSortedByBlock)
      return run(kSort, inputs, {}, {memory.order}, {size, 2, size, 0}, stream, 1);
    for (int64_t steps = 2; steps <= size; steps *= 2)
      for (int64_t apart = steps / 2; apart > 0; apart /= 2)
        run(kSort, inputs, {}, {memory.order}, {size, steps, steps, apart}, stream, 1, size / 2);
  }
  // groups: 0: as many as there are. threads: that work on one group; 0: a block for each.
  void run(UniqueStep step, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
           std::initializer_list<std::byte*> memory, std::initializer_list<int64_t> numbers,
           DeviceStream& stream, int64_t groups = 0, int64_t threads = 0) const {
    const UniqueFunction& what = functions_[step];
    Arguments arguments;
    arguments.add(inputs[0]);
    for (std::byte* const each : memory) arguments.add(each);
    if (groups == 0) groups = groups_for(slices_of(op_, inputs[0]));
    const uint32_t blocks = resident_blocks_for(
        spec_of(device_), threads != 0 ? threads : groups * kSelectThreads, kSelectThreads);
    // All blocks work on the one group.
    arguments.add(threads != 0 ? int64_t{blocks} : groups);
    for (const int64_t number : numbers) arguments.add(number);
    for (const int64_t value : values_of(what.sources, inputs, outputs)) arguments.add(value);
    cuda::launch(stream, *what.function, {.grid = {blocks, 1, 1}, .block = {kSelectThreads, 1, 1}},
                 arguments);
  }

  Unique op_;
  Device& device_;  // which lives longer
  std::array<UniqueFunction, kUniqueSteps> functions_;
};

KernelResult make_unique_kernel(const Unique& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue of an op with several outputs");
  return std::make_unique<UniqueKernel>(op, request);
}

constexpr KernelEntry kUniqueEntries[] = {
    entry<Unique, make_unique_kernel>("cuda.unique.sorted"),
};

}  // namespace

std::span<const KernelEntry> unique_entries() { return kUniqueEntries; }

}  // namespace anneal::cuda
