#include "anneal/engine/run/library/library_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/c_struct.h"
#include "anneal/engine/run/library/node_tables.h"

struct anneal_team {
  anneal::ThreadTeam& team;
};

namespace anneal {
namespace {

constexpr int64_t kMostOutputs = 1024;

// The library's error; `callback` failed with `code`.
Error error_of(const Custom& op, const char* callback, anneal_code code,
               const anneal_error& error) {
  const bool is_known = code >= ANNEAL_INVALID_MODEL && code <= ANNEAL_CANNOT_WRITE;
  const auto kind =
      is_known ? static_cast<ErrorCode>(static_cast<int>(code) - 1) : ErrorCode::kInvalidArgument;
  const std::string_view text(error.message, strnlen(error.message, sizeof(error.message)));
  return Error(kind,
               fmt::format("{}() of {} says{}: {}", callback, operator_name(op.domain, op.type),
                           is_known ? "" : fmt::format(" (code {})", static_cast<int>(code)),
                           text.empty() ? "an error without a text" : text));
}

// Calls a callback that returns a code; null is none. Fails with its error.
template <class Callback, class... Arguments>
void call(const Custom& op, const char* name, Callback callback, Arguments... arguments) {
  if (!callback) return;
  anneal_error error = {};
  error.size = sizeof(error);
  const anneal_code code = callback(arguments..., &error);
  if (code != ANNEAL_OK) throw error_of(op, name, code, error);
}

Type type_of(const anneal_tensor& output, const OpenSizes& open) {
  if (output.dtype < ANNEAL_F32 || output.dtype > ANNEAL_BOOL)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is no element type", static_cast<int>(output.dtype)));
  if (output.rank < 0 || output.rank > ANNEAL_MAX_RANK)
    fail(ErrorCode::kInvalidArgument, fmt::format("a rank of {}", output.rank));
  Type type{static_cast<DataType>(output.dtype), {}, Container::kTensor};
  for (int axis = 0; axis < output.rank; ++axis)
    type.shape.push_back(open.size_of(output.dims[axis]));
  return type;
}

// What create() made for a node; shared by all that run it.
class LibraryState {
 public:
  LibraryState(const Custom& op, const anneal_kernel& table) : op_(op), table_(table) {}
  ~LibraryState() {
    if (is_made_ && table_.destroy) table_.destroy(state_);
  }
  LibraryState(const LibraryState&) = delete;
  LibraryState& operator=(const LibraryState&) = delete;

  // Why the library does not want the node; empty if it does.
  std::string create(const NodeTables& node) {
    try {
      call(op_, "create", table_.create, node.node(), &state_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      return error.what();
    }
    is_made_ = table_.create != nullptr;
    return {};
  }
  const Custom& op() const { return op_; }
  const anneal_kernel& table() const { return table_; }
  void* get() const { return state_; }

 private:
  const Custom op_;
  const anneal_kernel table_;
  void* state_ = nullptr;
  bool is_made_ = false;
};

Result<std::shared_ptr<const LibraryState>> make_state(const Custom& op, const Request& request,
                                                       const anneal_kernel& table,
                                                       NodeTables& node) {
  node.set_outputs(request.outputs);
  auto state = std::make_shared<LibraryState>(op, table);
  if (std::string why = state->create(node); !why.empty()) return refuse(std::move(why));
  return std::shared_ptr<const LibraryState>(std::move(state));
}

// Inputs without a type or data, where they are absent.
std::vector<Operand> types_of(std::span<const Operand> operands) {
  std::vector<Operand> types;
  for (const Operand& operand : operands)
    types.push_back({.type = operand.type, .present = operand.present});
  return types;
}

void check_workspace(const Custom& op, uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 38;
  if (bytes > kMost)
    fail(ErrorCode::kOutOfMemory, fmt::format("{} asks for a workspace of {} bytes",
                                              operator_name(op.domain, op.type), bytes));
}

struct PreparedNode final : PreparedKernel {
  PreparedNode(const Custom& op, std::span<const Operand> inputs) : tables(op, inputs) {}
  NodeTables tables;
};

class LibraryKernel final : public Kernel {
 public:
  LibraryKernel(std::shared_ptr<const LibraryState> state, std::vector<Operand> inputs)
      : state_(std::move(state)), inputs_(std::move(inputs)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto prepared = std::make_unique<PreparedNode>(state_->op(), inputs_);
    prepared->tables.set_views(inputs, outputs);
    prepared->tables.set_threads(threads);
    uint64_t bytes = 0;
    call(state_->op(), "prepare", state_->table().prepare, state_->get(), prepared->tables.node(),
         &bytes);
    check_workspace(state_->op(), bytes);
    prepared->workspace_bytes = bytes;
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    auto& prepared = static_cast<PreparedNode&>(*args.prepared);
    prepared.tables.set_data(args.inputs, args.outputs);
    anneal_team team{args.team};
    anneal_run run = {};
    run.size = sizeof(run);
    run.workspace = args.workspace;
    run.team = &team;
    run.parallel_for = [](anneal_team* on, int64_t items, int64_t grain,
                          void (*body)(void*, int64_t, int64_t, int32_t), void* argument) {
      if (items <= 0) return;
      on->team.for_ranges(items, std::max<int64_t>(grain, 1), [&](int64_t begin, int64_t end) {
        body(argument, begin, end, on->team.thread());
      });
    };
    call(state_->op(), "run", state_->table().run, state_->get(), prepared.tables.node(),
         static_cast<const anneal_run*>(&run));
  }

 private:
  std::shared_ptr<const LibraryState> state_;
  std::vector<Operand> inputs_;
};

class LibraryFunction final : public CustomFunction {
 public:
  LibraryFunction(std::shared_ptr<const LibraryState> state, std::vector<Operand> inputs,
                  std::string text)
      : state_(std::move(state)), inputs_(std::move(inputs)), text_(std::move(text)) {}

  std::string text() const override { return text_; }
  bool has_workspace() const override {
    return (state_->table().flags & ANNEAL_KERNEL_LAUNCHES) != 0;
  }
  Launches launches(std::span<const TensorView> inputs,
                    std::span<const TensorView> outputs) const override {
    NodeTables tables(state_->op(), inputs_);
    tables.set_views(inputs, outputs);
    anneal_launch given = {};
    Launches all;
    all.launches.push_back(launch(tables, 0, given));
    if (!has_workspace()) return all;
    if (given.count < 0 || given.count > kMostLaunches)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("cuda_launch() of {} asks for {} launches: the most are {}",
                       operator_name(state_->op().domain, state_->op().type), given.count,
                       kMostLaunches));
    check_workspace(state_->op(), given.workspace_bytes);
    all.workspace_bytes = given.workspace_bytes;
    const int32_t count = given.count;
    for (int32_t index = 1; index < count; ++index)
      all.launches.push_back(launch(tables, index, given));
    return all;
  }

 private:
  static constexpr int32_t kMostLaunches = 1024;

  // given: what the library wrote.
  Launch launch(const NodeTables& tables, int32_t index, anneal_launch& given) const {
    given = {};
    given.size = sizeof(given);
    given.index = index;
    for (uint32_t* sizes : {given.grid, given.block}) std::fill(sizes, sizes + 3, 1);
    call(state_->op(), "cuda_launch", state_->table().cuda_launch, state_->get(), tables.node(),
         &given);
    if (given.value_count < 0 || static_cast<size_t>(given.value_count) > std::size(given.values))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("cuda_launch() of {} gives {} values",
                       operator_name(state_->op().domain, state_->op().type), given.value_count));
    Launch launch;
    std::copy(given.grid, given.grid + 3, launch.grid.begin());
    std::copy(given.block, given.block + 3, launch.block.begin());
    launch.shared_bytes = given.shared_bytes;
    launch.values.assign(given.values, given.values + given.value_count);
    return launch;
  }

  std::shared_ptr<const LibraryState> state_;
  std::vector<Operand> inputs_;
  std::string text_;
};

}  // namespace

std::vector<Type> LibraryOperator::infer(const Custom& op, const InferInputs& inputs) const {
  if (op.outputs < 1 || op.outputs > kMostOutputs)
    fail(ErrorCode::kInvalidModel, fmt::format("{} outputs", op.outputs));
  OpenSizes open;
  NodeTables tables(op, inputs, open);
  call(op, "infer", table_.infer, tables.node());
  std::vector<Type> types;
  for (const anneal_tensor& output : tables.outputs()) {
    const auto where = [&] {
      return fmt::format("infer() of {}, output {}", operator_name(op.domain, op.type),
                         types.size());
    };
    types.push_back(with_context(where, [&] { return type_of(output, open); }));
    for (const Size size : types.back().shape)
      if (size.is_unknown() && !open.any())
        fail(ErrorCode::kInvalidArgument,
             fmt::format("infer() of {} leaves a size open, and all sizes of its inputs are known",
                         operator_name(op.domain, op.type)));
  }
  return types;
}

KernelResult LibraryOperator::make_for_cpu(const Custom& op, const Request& request) const {
  NodeTables node(op, request.inputs);
  auto state = make_state(op, request, table_, node);
  if (!state) return refuse(state.reason());
  return std::make_unique<LibraryKernel>(*std::move(state), types_of(request.inputs));
}

CustomFunctionResult LibraryOperator::make_for_gpu(const Custom& op, const Request& request) const {
  const auto no_source = [&] {
    return refuse(fmt::format("library \"{}\" has no CUDA source for {}", description().library,
                              operator_name(op.domain, op.type)));
  };
  if (!table_.cuda_source) return no_source();
  NodeTables node(op, request.inputs);
  auto state = make_state(op, request, table_, node);
  if (!state) return refuse(state.reason());
  const char* const source = table_.cuda_source((*state)->get(), node.node());
  if (!source) return no_source();
  if (std::string_view(source).find("$name") == std::string_view::npos)
    fail(ErrorCode::kInvalidArgument, fmt::format("the CUDA source of {} defines no function $name",
                                                  operator_name(op.domain, op.type)));
  return std::make_unique<LibraryFunction>(*std::move(state), types_of(request.inputs), source);
}

}  // namespace anneal
