#include "anneal/cli/measure/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

constexpr int64_t kTokens = 7;         // different ones, which every vocabulary has
constexpr int64_t kSpareRows = 32;     // of a buffer that the context keeps
constexpr int64_t kMostRowsMore = 16;  // than the length that is measured

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool has_part(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Whether caches have it: floats or quantized.
bool is_of_cache(DataType dtype) {
  return dtype == DataType::kF32 || dtype == DataType::kF16 || dtype == DataType::kBF16 ||
         dtype == DataType::kI8 || dtype == DataType::kU8;
}

bool is_index(DataType dtype) { return dtype == DataType::kI32 || dtype == DataType::kI64; }

// ("past_key_values.12.key") -> "12 k", ("past.3.conv") -> "3 conv": the numbers of a name, whether
// it has keys or values, and another word behind the numbers.
std::string place_in_model(std::string name) {
  constexpr std::string_view kPast = "past_key_values";
  if (name.starts_with(kPast)) name = name.substr(kPast.size());
  std::string part, kind, behind;
  for (size_t i = 0; i < name.size();) {
    const auto same_class = [&](size_t k) {
      const auto is = std::isdigit(static_cast<unsigned char>(name[i])) ? &::isdigit : &::isalpha;
      return is(static_cast<unsigned char>(name[k])) != 0;
    };
    size_t end = i + 1;
    const bool is_word = std::isalnum(static_cast<unsigned char>(name[i])) != 0;
    if (is_word)
      while (end < name.size() && same_class(end)) ++end;
    const std::string word = lower(name.substr(i, end - i));
    if (std::isdigit(static_cast<unsigned char>(word[0])))
      part += word + " ", behind.clear();
    else if (i > 0 && (word == "key" || word == "value" || word == "k" || word == "v"))
      kind = word.substr(0, 1);
    else if (is_word && !part.empty())
      behind = word;
    i = end;
  }
  return part + kind + behind;
}

void fill(PortMemory& memory, auto&& value_at) {
  for (size_t i = 0; i < memory.bytes.size() / size_of(memory.dtype); ++i) {
    const int64_t value = value_at(static_cast<int64_t>(i));
    if (memory.dtype == DataType::kI64)
      reinterpret_cast<int64_t*>(memory.bytes.data())[i] = value;
    else if (memory.dtype == DataType::kI32)
      reinterpret_cast<int32_t*>(memory.bytes.data())[i] = static_cast<int32_t>(value);
    else
      memory.bytes[i] = static_cast<std::byte>(value);
  }
}

PortMemory memory_of(DataType dtype, const Dims& dims) {
  return {dtype, dims, std::vector<std::byte>(static_cast<size_t>(count(dims)) * size_of(dtype))};
}

}  // namespace

TensorView PortMemory::view() { return row_major_view(dtype, dims, bytes.data()); }

Decoder::Decoder(std::shared_ptr<const Engine> engine, const ContextOptions& options)
    : engine_(std::move(engine)), context_(engine_, options) {
  for (size_t i = 0; i < engine_->inputs().size(); ++i) roles_.push_back(role_of(i));
  if (std::ranges::count(roles_, Role::kIds) != 1)
    refuse_argument(
        "--decode: the model needs exactly one input of token ids: integers [batch, tokens]");
  keeps_states_ = std::ranges::any_of(
      engine_->inputs(), [](const TensorInfo& input) { return !input.state_output.empty(); });
  if (keeps_states_)
    find_kept_states();
  else
    find_states();
  inputs_.resize(engine_->inputs().size());
  outputs_.resize(engine_->outputs().size());
}

Decoder::Role Decoder::role_of(size_t input) const {
  const TensorInfo& info = engine_->inputs()[input];
  const std::string name = lower(info.name);
  const bool integer = is_index(info.dtype);
  if (has_part(name, "mask") && integer && info.dims.rank() == 2) return Role::kMask;
  if (has_part(name, "position") && integer) return Role::kPositions;
  if (has_part(name, "logits_to_keep")) return Role::kLogitsToKeep;
  if (name == "use_cache_branch") return Role::kHasPast;
  if (integer && info.dims.rank() == 2) return Role::kIds;
  if (!info.state_output.empty() || (is_of_cache(info.dtype) && info.dims.rank() >= 2))
    return Role::kState;
  refuse_argument(
      fmt::format("--decode: input \"{}\" of {} is neither token ids, mask, positions nor a state",
                  info.name, to_string(info.dtype)));
}

void Decoder::find_kept_states() {
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] != Role::kState) continue;
    const TensorInfo& past = engine_->inputs()[i];
    if (past.state_output.empty())
      refuse_argument(fmt::format(
          "--decode: the engine keeps other states, but not \"{}\": name it in --state at build",
          past.name));
    const auto output = std::ranges::find(engine_->outputs(), past.state_output, &TensorInfo::name);
    add_state(i, static_cast<size_t>(output - engine_->outputs().begin()));
  }
}

void Decoder::add_state(size_t input, size_t output) {
  const TensorInfo &past = engine_->inputs()[input], &present = engine_->outputs()[output];
  if (present.dtype != past.dtype || present.dims.rank() != past.dims.rank())
    refuse_argument(fmt::format("--decode: state \"{}\" becomes \"{}\", of another type or rank",
                                past.name, present.name));
  State state{.input = input, .output = output};
  for (int axis = 1; axis < past.dims.rank() && state.row_axis < 0; ++axis)
    if (past.dims[axis] < 0) state.row_axis = axis;
  if (state.row_axis >= 0) {
    const auto axis = static_cast<size_t>(state.row_axis);
    const std::string& rows = present.dim_names[axis];
    state.is_buffer = rows.starts_with("max(") || rows == past.dim_names[axis];
  }
  states_.push_back(state);
}

void Decoder::find_states() {
  std::vector<size_t> presents;
  for (size_t i = 0; i < engine_->outputs().size(); ++i)
    if (engine_->outputs()[i].name != "logits") presents.push_back(i);
  const auto count = static_cast<size_t>(std::ranges::count(roles_, Role::kState));
  if (presents.size() < count)
    refuse_argument(
        fmt::format("--decode: {} inputs of states, but {} outputs", count, presents.size()));
  presents.erase(presents.begin(), presents.end() - static_cast<ptrdiff_t>(count));
  size_t next = 0;
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] != Role::kState) continue;
    const TensorInfo& past = engine_->inputs()[i];
    const auto named = std::ranges::find_if(presents, [&](size_t output) {
      return place_in_model(engine_->outputs()[output].name) == place_in_model(past.name);
    });
    add_state(i, named == presents.end() ? presents[next] : *named);
    ++next;
  }
}

Dims Decoder::dims_of(size_t input, int64_t tokens, int64_t past) const {
  Dims dims = engine_->inputs()[input].dims;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (dims[axis] >= 0) continue;
    const int batch_axes = roles_[input] == Role::kPositions ? dims.rank() - 1 : 1;
    const bool is_batch = axis < batch_axes && dims.rank() > 1;
    dims[axis] = is_batch ? 1 : roles_[input] == Role::kMask ? past + tokens : tokens;
  }
  return dims;
}

void Decoder::set_tokens(int64_t tokens, int64_t past) {
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] == Role::kState) continue;
    const TensorInfo& info = engine_->inputs()[i];
    inputs_[i] = memory_of(info.dtype, dims_of(i, tokens, past));
    fill(inputs_[i], [&](int64_t at) -> int64_t {
      switch (roles_[i]) {
        case Role::kIds:
          return at % kTokens;
        case Role::kPositions:
          return past + at % tokens;
        case Role::kHasPast:
          return past > 0 ? 1 : 0;
        default:
          return 1;
      }
    });
    context_.set_input(info.name, inputs_[i].view());
  }
}

// With zeros as the rows of `past` tokens. A buffer has room for later ones.
void Decoder::begin_states(int64_t past) {
  for (const State& state : states_) {
    const TensorInfo& info = engine_->inputs()[state.input];
    Dims dims = dims_of(state.input, 1, 0);
    if (state.row_axis >= 0)
      dims[state.row_axis] = state.is_buffer ? past + tokens_ + kSpareRows : past;
    context_.set_input(info.name, {info.dtype, dims, {}, nullptr});
  }
  past_now_ = past;
}

void Decoder::prepare_run() {
  if (!keeps_states_) return;
  if (past_ == 0) begin_states(0);  // a prompt
  // The caches begin anew when they are longer than the length to measure. The run after that
  // copies them to memory with room, so it is not measured.
  if (past_now_ > past_ + std::clamp<int64_t>(past_ / 16, 1, kMostRowsMore)) {
    begin_states(past_);
    set_tokens(tokens_, past_now_);
    context_.run();
    past_now_ += tokens_;
  }
  set_tokens(tokens_, past_now_);
  past_now_ += tokens_;
}

void Decoder::bind(int64_t tokens, int64_t past) {
  tokens_ = tokens, past_ = past;
  if (keeps_states_) {
    begin_states(past);
    prepare_run();
    context_.run();
    return;
  }
  set_tokens(tokens, past);
  for (const State& state : states_) {
    const TensorInfo& info = engine_->inputs()[state.input];
    Dims dims = dims_of(state.input, 1, 0);
    if (state.row_axis >= 0) dims[state.row_axis] = state.is_buffer ? past + tokens : past;
    inputs_[state.input] = memory_of(info.dtype, dims);
    context_.set_input(info.name, inputs_[state.input].view());
  }
  for (const State& state : states_) bind_result(state, past + tokens, state.is_buffer);
  in_place_ = std::ranges::any_of(states_, &State::is_buffer);
  try {
    context_.run();
  } catch (const Error& error) {
    if (!in_place_ || !has_part(error.what(), "overlaps")) throw;
    in_place_ = false;
    for (const State& state : states_) bind_result(state, past + tokens, false);
    context_.run();
  }
}

void Decoder::bind_result(const State& state, int64_t rows, bool in_place) {
  PortMemory &past = inputs_[state.input], &present = outputs_[state.output];
  present = {};
  if (!in_place) {
    Dims dims = past.dims;
    if (state.row_axis >= 0) dims[state.row_axis] = rows;
    present = memory_of(past.dtype, dims);
  }
  context_.set_output(engine_->outputs()[state.output].name,
                      in_place ? past.view() : present.view());
}

uint64_t Decoder::cache_bytes() const {
  uint64_t bytes = 0;
  for (const State& state : states_) {
    const TensorInfo& present = engine_->outputs()[state.output];
    const Dims dims = keeps_states_ ? context_.output_dims(present.name) : Dims{0};
    bytes += std::max({static_cast<size_t>(count(dims)) * size_of(present.dtype),
                       inputs_[state.input].bytes.size(), outputs_[state.output].bytes.size()});
  }
  return bytes;
}

}  // namespace anneal
