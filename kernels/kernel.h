// Kernel: the implementation of an op for given types. Its maker returns it, or refuses with a
// reason.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/core/parallel.h"
#include "anneal/core/result.h"
#include "anneal/core/size/size.h"
#include "anneal/core/tensor.h"
#include "anneal/core/type.h"
#include "anneal/graph/op/op.h"

namespace anneal {

struct NewTensor;

// One input or output of the layer as the kernel will see it. Sizes and strides may be expressions;
// known ones are constants of the kernel, the others arrive with prepare(). strides count elements.
struct Operand {
  Type type = {};
  Shape strides = {};
  const Tensor* constant =
      nullptr;          // weights; must not be kept beyond make() except by copying the Tensor
  bool present = true;  // false: an absent optional input
};

// Constants of one layer in the forms in which its kernel reads them. Kept when an engine is built,
// found when it is loaded.
class PackedConstants {
 public:
  virtual ~PackedConstants() = default;
  // 64-byte aligned memory of `bytes` bytes, or nothing. It comes from a file: its content may be
  // anything, and must not be used as an index.
  virtual std::optional<Tensor> find(std::string_view form, size_t bytes) = 0;
  virtual void keep(std::string_view form, const Tensor& packed) = 0;
  // Memory for one that find() does not have: zeroed, 64-byte aligned, of the allocator if there is
  // one.
  virtual NewTensor allocate(size_t bytes, const std::shared_ptr<Allocator>& allocator);
};

// Inputs and outputs are ordered as in Layer (graph/graph.h): op inputs, then further epilogue
// inputs.
struct Request {
  const Op& op;
  std::span<const Program> epilogues;  // empty, or one per op output
  int op_input_count = 0;
  std::span<const Operand> inputs, outputs;
  const SizeTable& sizes;
  Device& device;
  std::span<const std::byte> tactic;  // empty while building: choose; from a plan: obey, or refuse
  // Measured times or a plan choose the kernel: do not refuse because another one is faster.
  bool ignore_speed_heuristics = false;
  // Keep no packed copies of large constants: treat them in each run as operands that are no
  // constants, if the kernel can. The last bits of results may differ.
  bool packs_in_runs = false;
  PackedConstants* packed = nullptr;  // for packed_constant(); of this request alone
  ThreadTeam* team = nullptr;         // for for_parts(); null: the caller alone
};

// The packed constant: found in the engine file, or made by fill() from the layer's constant inputs
// in zeroed memory. form: everything that decides it but the op and its constants; different for
// each call of one kernel.
Tensor packed_constant(const Request& request, std::string_view form, size_t bytes,
                       const std::function<void(std::byte*)>& fill);
// Calls fill(part) for each of the parts of a constant, on the threads of the request's team.
void for_parts(const Request& request, int64_t parts, FunctionRef<void(int64_t part)> fill);

// Per-shape work of one context: geometry, packed buffers, third-party primitives.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  size_t workspace_bytes = 0;
};

// Results whose sizes only computing them tells (those of NonZero, say), before they have memory.
class DataDependentDims {
 public:
  virtual ~DataDependentDims() = default;
  std::vector<Dims> dims;  // of each output of the op
};

struct LaunchArgs {
  std::span<const TensorView> inputs, outputs;  // an absent optional input has data == nullptr
  PreparedKernel* prepared;                     // what prepare() gave for these shapes
  std::byte* workspace;                         // 64-byte aligned, prepared->workspace_bytes
  DeviceStream& stream;
  ThreadTeam& team;
  DataDependentDims* found = nullptr;  // what find() gave for these inputs
};

// One implementation of one layer. Immutable, shared by all contexts of an engine and all threads.
// launch() allocates nothing.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Enough to make this kernel again without choosing; empty if there is nothing to choose.
  virtual std::vector<std::byte> tactic() const { return {}; }
  // Views hold the shapes and strides; their data is null. `threads` is the most launch() will be
  // given.
  virtual std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                                  std::span<const TensorView> outputs,
                                                  int threads) const;
  // The output of Pointwise may be the very view of an input. On CPUs so may the only output of
  // Conv and MatMul, of an input of their epilogue; of one row that may look like numbers of
  // columns; that of ScatterElements and ScatterND, of the data; that of Pad, without leading pads;
  // the state that LinearAttention gives, of the one that it takes.
  virtual void launch(const LaunchArgs& args) const = 0;
  // For ops whose sizes infer() cannot find even from the inputs' values: runs before prepare(), on
  // the layer's inputs with their data, and may allocate. Null from the kernels of all other ops.
  virtual std::unique_ptr<DataDependentDims> find(std::span<const TensorView> inputs,
                                                  DeviceStream& stream, ThreadTeam& team) const;
};

// Its kernel is never null.
using KernelResult = Result<std::unique_ptr<Kernel>>;

enum class Layout : uint8_t {
  kAny,
  kRowMajor,
  kChannelsLast
};  // of activations, where the builder may choose

// Whose code a kernel runs. A library's kernel is made only for a plan that names it, or for a
// comparison of times: the order of the table never chooses it.
enum class KernelSource : uint8_t { kOwn, kCublasLt, kCudnn };

using Tactic = std::vector<std::byte>;  // as Kernel::tactic() gives it

struct KernelEntry {
  std::string_view name;  // is written into plans: never reuse one
  size_t op;              // op_index of the struct it implements
  Layout prefers;
  KernelResult (*make)(const Request&);
  bool exact = true;  // false: sums are not those of the op's products, so last bits differ
  KernelSource source = KernelSource::kOwn;
  // All tactics that make() takes for the request, whose own is empty, in the order in which they
  // are worth a measurement; none where make() refuses. Null: there is one, which is empty.
  std::vector<Tactic> (*tactics)(const Request&) = nullptr;
  // Another form of the layer is faster. Where the optimizer has one, it rewrites the layer as for
  // a target without a kernel.
  bool is_fallback = false;
};
template <class T, KernelResult (*make)(const T&, const Request&)>
constexpr KernelEntry entry(std::string_view name, Layout prefers = Layout::kAny,
                            bool exact = true) {
  return {name, op_index<T>, prefers,
          [](const Request& request) { return make(std::get<T>(request.op), request); }, exact};
}

// A kind of device and its kernels, best first for each op. The CPU's last for each op is the
// reference: it accepts every type, stride and epilogue that infer() accepts.
using KernelFamily = std::span<const KernelEntry> (*)();  // the entries of one file
struct Backend {
  DeviceKind kind;
  std::unique_ptr<Device> (*open)(
      std::string_view target);            // "cpu", "cpu:avx2": fails if it is not here
  std::span<const KernelFamily> families;  // in order of preference
};

const KernelEntry* find_kernel(const Backend& backend,
                               std::string_view name);  // null if there is none
// Whether it is the reference of its op.
bool is_reference(const Backend& backend, const KernelEntry& entry);
// Which kernels are not asked.
struct KernelOptions {
  bool exact = false;                  // those that are not exact
  std::vector<std::string> skip = {};  // these
};
// Empty if it is asked.
std::string_view why_left_out(const KernelEntry& entry, const KernelOptions& options);
// The first kernel of the op that `refusal`, called in order of preference, gives an empty reason
// for; null if there is none. Adds the others, with their reasons, to `refused`.
const KernelEntry* first_accepting(const Backend& backend, size_t op, const KernelOptions& options,
                                   const std::function<std::string(const KernelEntry&)>& refusal,
                                   std::vector<std::pair<std::string_view, std::string>>& refused);
// The first entry that makes a kernel for the request, and why each before it refused.
struct KernelChoice {
  const KernelEntry* entry = nullptr;  // null: all refused
  std::unique_ptr<Kernel> kernel;
  // If the kernel is a library's: the own one that runs where the library is missing or refuses.
  const KernelEntry* runner_up = nullptr;
  Tactic runner_up_tactic = {};
  std::vector<std::pair<std::string_view, std::string>> refused = {};
};
KernelChoice choose_kernel(const Backend& backend, const Request& request,
                           const KernelOptions& options = {});

}  // namespace anneal
