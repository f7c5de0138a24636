#include "anneal/engine/run/context/kept_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/rows_outermost.h"
#include "anneal/engine/run/context/check_port.h"
#include "anneal/engine/run/port_copies.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

// A buffer that is full gets room for half as many rows more, and for this many at least.
constexpr int64_t kLeastRoom = 64;

size_t bytes_of(DataType dtype, const Dims& dims) {
  return static_cast<size_t>(count(dims)) * size_of(dtype);
}

// Rows of a buffer for these rows, and for later ones as far as the input takes them.
int64_t with_room(int64_t rows, int64_t most) {
  return std::max(rows, std::min(most, rows + std::max(rows / 2, kLeastRoom)));
}

bool is_no_memory(const Error& error) {
  return error.code() == ErrorCode::kLimit || error.code() == ErrorCode::kOutOfMemory;
}

// Of views of one state.
bool is_same(const std::optional<TensorView>& a, const TensorView& b) {
  return a && a->data == b.data && a->dims == b.dims;
}

Dims strides_by_rows(const Dims& dims, int rows) {
  return rows_outermost_strides(dims, rows, std::multiplies<int64_t>());
}

}  // namespace

struct KeptStates::State {
  PortPair ports;
  size_t device;                 // where its memory is, of the engine's devices
  std::optional<int> rows = {};  // the axis along which the plan appends
  Dims wanted = {};              // of the initial state; negative: open
  std::unique_ptr<Buffer> now = {}, next = {};
  Dims dims = {};                                             // of what `now` holds
  std::optional<TensorView> set_input = {}, set_output = {};  // as they were set last
  std::optional<Dims> after = {};  // of the output of the run that is bound
  bool is_initial = true, is_given = false, is_in_place = false;
  std::unique_ptr<Buffer> row_major = {};  // what output() gave
  bool is_written = false;                 // the initial state is in `now`
  bool takes_larger = true;                // as far as is known
};

KeptStates::KeptStates(std::span<const LoadedPlan> plans, const RunResources& resources,
                       std::span<const TensorInfo> ports, std::optional<int> gpu, ProfileRun& run)
    : plans_(plans), resources_(resources), ports_(ports), gpu_(gpu), run_(run) {
  const Plan& plan = *plans[0].plan;
  for (const PortPair& pair : plan.states) {
    const bool is_used_by_cpu = copies_of_input(plan, plan.inputs[pair.input]).is_used_by_cpu ||
                                copies_of_output(plan, plan.outputs[pair.output]).is_used_by_cpu;
    auto state = std::make_unique<State>();
    state->ports = pair;
    state->device = gpu && !is_used_by_cpu ? 0 : resources.devices.size() - 1;
    state->wanted = Dims::filled(ports[pair.input].dims.rank(), -1);
    for (const LoadedPlan& loaded : plans)  // where another one does not append, it copies
      for (const AppendedPorts& appended : loaded.plan->appended_ports)
        if (appended.input == pair.input && appended.output == pair.output)
          state->rows = static_cast<int>(appended.axis);
    states_.push_back(std::move(state));
  }
}

KeptStates::~KeptStates() = default;

KeptStates::State* KeptStates::of_input(size_t input) const {
  for (const auto& state : states_)
    if (state->ports.input == input) return state.get();
  return nullptr;
}

bool KeptStates::has_input(size_t input) const { return of_input(input) != nullptr; }

bool KeptStates::has_output(size_t output) const {
  return std::ranges::any_of(states_,
                             [&](const auto& state) { return state->ports.output == output; });
}

void KeptStates::set_given(size_t input, bool is_given) {
  of_input(input)->is_given = is_given;
  of_input(input)->set_input.reset();
}

void KeptStates::begin(size_t input, const Dims& dims) {
  const TensorInfo& port = ports_[input];
  Dims least = dims;
  for (int axis = 0; axis < std::min(dims.rank(), port.dims.rank()); ++axis)
    if (dims[axis] == -1) least[axis] = port.min_dims[axis];
  check_dims(port, least);
  State& state = *of_input(input);
  state.wanted = dims;
  state.is_initial = true;
  state.is_written = false;
  state.takes_larger = true;
}

bool KeptStates::begins_with_default(const State& state) const {
  const TensorInfo& port = ports_[state.ports.input];
  bool is_open = port.default_value.has_value();
  for (int axis = 0; axis < state.wanted.rank(); ++axis)
    is_open = is_open && (state.wanted[axis] < 0 || state.wanted[axis] == port.dims[axis]);
  return is_open;
}

Dims KeptStates::initial_dims(const State& state) const {
  const TensorInfo& port = ports_[state.ports.input];
  if (begins_with_default(state)) return port.default_value->dims();
  const Plan& plan = *plans_[run_.profile()].plan;
  const SizeTable& sizes = *plan.sizes;
  SymbolValues values(sizes.symbols().size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const State* other = of_input(i);
    const bool begins = other && other->is_initial && !other->is_given;
    if (!begins && !run_.has_input(i)) continue;
    const Dims& dims = begins ? other->wanted : run_.input_dims(i);
    const Shape& shape = plan.slots[plan.inputs[i]].type.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (const auto symbol = sizes.symbol_index(shape[axis]); symbol && dims[axis] >= 0)
        values[*symbol] = dims[axis];
  }
  const Shape& shape = plan.slots[plan.inputs[state.ports.input]].type.shape;
  Dims dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    // A size that one profile fixes and another one does not is open.
    const bool follows = !shape[axis].known() &&
                         std::ranges::all_of(sizes.symbols_in(shape[axis]), [&](uint32_t symbol) {
                           return values[symbol].has_value();
                         });
    dims.push_back(state.wanted[axis] >= 0 ? state.wanted[axis]
                   : port.dims[axis] >= 0  ? port.dims[axis]
                   : follows               ? sizes.evaluate(shape[axis], values)
                                           : port.min_dims[axis]);
  }
  return dims;
}

bool KeptStates::is_on_gpu(const State& state) const { return gpu_ && state.device == 0; }

TensorView KeptStates::view_of(const State& state, Buffer* memory, const Dims& dims) const {
  TensorView view = row_major_view(ports_[state.ports.input].dtype, dims, memory->data());
  if (is_on_gpu(state)) view.place = {MemoryKind::kCuda, *gpu_};
  if (state.rows) view.strides = strides_by_rows(dims, *state.rows);
  return view;
}

void KeptStates::release(std::unique_ptr<Buffer>& buffer) const {
  if (!buffer) return;
  resources_.budget->note_freed();
  buffer.reset();
}

void KeptStates::ensure(const State& state, std::unique_ptr<Buffer>& buffer, size_t bytes) const {
  const size_t held = buffer ? buffer->size() : 0;
  if (buffer && held >= bytes) return;
  release(buffer);
  // A state that grows by a row for each run is not to be allocated for each.
  const size_t room = held == 0 ? std::max<size_t>(bytes, 1) : std::max(bytes, held + held / 2);
  buffer = resources_.budget->allocate(*resources_.devices[state.device], room);
}

// Between memory of the host and of the engine's GPU, or within either.
void KeptStates::copy(std::byte* to, const std::byte* from, size_t bytes) const {
  resources_.devices[0]->copy(to, from, bytes, *resources_.streams[0]);
  resources_.streams[0]->wait();
}

void KeptStates::write_initial(State& state) const {
  const TensorInfo& port = ports_[state.ports.input];
  const size_t bytes = bytes_of(port.dtype, state.dims);
  if (bytes == 0) return;
  std::vector<std::byte> initial(bytes);
  if (begins_with_default(state)) {
    TensorView to = row_major_view(port.dtype, state.dims, initial.data());
    if (state.rows) to.strides = strides_by_rows(state.dims, *state.rows);
    strided_copy(to, kernel_view(*port.default_value));
  }
  copy(state.now->data(), initial.data(), bytes);
}

void KeptStates::set_input(State& state) {
  const TensorView view = view_of(state, state.now.get(), state.dims);
  if (is_same(state.set_input, view)) return;
  run_.set_input(state.ports.input, view);
  state.set_input = view;
}

void KeptStates::place_inputs() {
  for (const auto& state : states_) {
    if (state->is_given) continue;
    if (const Dims dims = state->is_initial ? initial_dims(*state) : state->dims;
        state->is_initial && (!state->is_written || dims != state->dims)) {
      state->is_written = false;  // until all is done
      state->dims = dims;
      ensure(*state, state->now, bytes_of(ports_[state->ports.input].dtype, dims));
      write_initial(*state);
      state->is_written = true;
    }
    set_input(*state);
  }
}

// A buffer that is full is copied to a larger one, so that later runs update that in place. Only
// where the application began the state with rows to spare: other models read all rows.
std::optional<KeptStates::Smaller> KeptStates::enlarge(State& state) {
  const uint32_t input = state.ports.input, output = state.ports.output;
  const TensorInfo& port = ports_[input];
  const auto after = run_.output_dims(output);
  if (!after || state.is_given || !state.takes_larger || after == state.dims ||
      !run_.may_update(input, output))
    return std::nullopt;
  Dims larger = state.dims;
  for (int axis = 0; axis < after->rank(); ++axis) {
    const int64_t rows = (*after)[axis];
    if (rows <= state.dims[axis]) continue;
    if (state.wanted[axis] <= 0) return std::nullopt;
    larger[axis] = with_room(rows, port.max_dims[axis]);
  }
  std::unique_ptr<Buffer> memory;
  try {
    ensure(state, memory, bytes_of(port.dtype, larger));
  } catch (const Error& error) {
    if (!is_no_memory(error)) throw;
    return std::nullopt;  // without room there may be enough memory
  }
  const TensorView to = view_of(state, memory.get(), larger);
  std::memset(to.data, 0, bytes_of(port.dtype, larger));
  TensorView part = to;
  part.dims = state.dims;
  strided_copy(part, view_of(state, state.now.get(), state.dims));
  Smaller smaller{&state, std::exchange(state.now, std::move(memory)), state.dims};
  state.dims = larger;
  set_input(state);
  return smaller;
}

// Whether the plan takes the larger inputs as they are meant.
bool KeptStates::takes(std::span<const Smaller> larger) {
  try {
    run_.bind();
  } catch (const Error&) {
    return false;
  }
  return std::ranges::all_of(larger, [&](const Smaller& each) {
    return run_.output_dims(each.state->ports.output) == each.state->dims;
  });
}

// Whether the output is to be the memory of the input, which has room for its rows.
bool KeptStates::appends(const State& state) const {
  if (!state.rows || state.is_given || !run_.may_append(state.ports.input, state.ports.output))
    return false;
  Dims without = *state.after;
  without[*state.rows] = state.dims[*state.rows];
  return without == state.dims &&
         bytes_of(ports_[state.ports.input].dtype, *state.after) <= state.now->size();
}

// For the output in memory of its own, and for rows of later runs if there is enough memory.
void KeptStates::make_room(State& state) const {
  const TensorInfo& port = ports_[state.ports.input];
  if (state.rows) {
    Dims dims = *state.after;
    int64_t& rows = dims[*state.rows];
    rows = with_room(rows, port.max_dims[*state.rows]);
    try {
      return ensure(state, state.next, bytes_of(port.dtype, dims));
    } catch (const Error& error) {
      if (!is_no_memory(error)) throw;
    }
  }
  ensure(state, state.next, bytes_of(port.dtype, *state.after));
}

// Whether the run is to be bound again.
bool KeptStates::place_output(State& state) {
  const uint32_t output = state.ports.output;
  state.after = run_.output_dims(output);
  state.is_in_place = false;
  // An application that gives the input gets the output in host memory.
  if (state.is_given && is_on_gpu(state)) state.after.reset();
  if (!state.after) {
    if (!state.set_output) return false;
    state.set_output.reset();
    run_.clear_output(output);
    return true;
  }
  const bool is_updated =
      !state.is_given && state.after == state.dims && run_.may_update(state.ports.input, output);
  state.is_in_place = is_updated || appends(state);
  if (is_updated)
    state.is_written = false;
  else if (!state.is_in_place)
    make_room(state);
  const TensorView view =
      view_of(state, state.is_in_place ? state.now.get() : state.next.get(), *state.after);
  if (is_same(state.set_output, view)) return false;
  run_.set_output(output, view);
  state.set_output = view;
  return true;
}

void KeptStates::place_outputs() {
  for (const auto& state : states_) release(state->row_major);
  std::vector<Smaller> larger;
  for (const auto& state : states_)
    if (auto smaller = enlarge(*state)) larger.push_back(std::move(*smaller));
  if (!larger.empty() && !takes(larger)) {
    for (Smaller& each : larger) {
      each.state->now = std::move(each.memory);
      each.state->dims = each.dims;
      each.state->takes_larger = false;
      set_input(*each.state);
    }
    run_.bind();
  }
  bool is_new = false;
  for (const auto& state : states_) is_new |= place_output(*state);
  if (is_new) run_.bind();
}

void KeptStates::take_results() {
  for (const auto& state : states_) {  // this may fail
    if (state->is_in_place || state->after) continue;
    const TensorView result = run_.output(state->ports.output);
    const size_t bytes = bytes_of(result.dtype, result.dims);
    ensure(*state, state->next, bytes);
    if (bytes == 0) continue;
    if (state->rows)
      strided_copy(view_of(*state, state->next.get(), result.dims), result);
    else
      copy(state->next->data(), result.data, bytes);
  }
  for (const auto& state : states_) {
    state->is_initial = false;
    state->dims = state->after ? *state->after : run_.output(state->ports.output).dims;
    if (state->is_in_place) continue;
    std::swap(state->now, state->next);
    if (state->rows) release(state->next);  // the smaller buffer of before
  }
}

TensorView KeptStates::output(size_t output) const {
  const TensorView result = run_.output(output);
  for (const auto& state : states_) {
    if (state->ports.output != output || is_row_major(result)) continue;
    ensure(*state, state->row_major, bytes_of(result.dtype, result.dims));
    const TensorView view = row_major_view(result.dtype, result.dims, state->row_major->data());
    strided_copy(view, result);
    return view;
  }
  return result;
}

std::string KeptStates::text() const {
  std::string text;
  for (const auto& state : states_)
    if (!state->is_given && !state->is_initial)
      text += fmt::format("{}\"{}\" {}", text.empty() ? "" : ", ", ports_[state->ports.input].name,
                          to_string(state->dims));
  return text;
}

void KeptStates::add_to(HeldMemory& held) const {
  for (const auto& state : states_)
    for (const auto* buffer : {&state->now, &state->next, &state->row_major}) {
      if (!*buffer) continue;
      held.ports += (*buffer)->size();
      if (is_on_gpu(*state)) held.gpu_ports += (*buffer)->size();
    }
}

}  // namespace anneal
