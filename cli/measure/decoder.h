// The decoder of a language model, as exporters write it, for measurements of its runs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

// Memory of one element type for an input or an output, zeroed.
struct PortMemory {
  DataType dtype = DataType::kF32;
  Dims dims = {};
  std::vector<std::byte> bytes = {};
  TensorView view();
};

// It finds inputs of token ids, mask and positions by the names that onnxruntime-genai, optimum and
// transformers use. States are inputs of floats that are outputs as well: caches [batch, heads,
// rows, width], with a row for each token, and states of fixed shape. The batch is 1. An engine may
// also name its states, which the context keeps: then each run of a token sees one row more.
class Decoder {
 public:
  // Fails with kInvalidArgument, naming an input that decoders of this kind do not have.
  explicit Decoder(std::shared_ptr<const Engine> engine, const ContextOptions& options);

  // Binds memory for runs of `tokens` tokens behind `past` ones, and runs once. A cache that the
  // plan updates in place is bound as input and output, with room for all these tokens.
  void bind(int64_t tokens, int64_t past);
  void prepare_run();  // before each run(): the next tokens, where the context keeps the states
  void run() { context_.run(); }
  ExecutionContext& context() { return context_; }
  uint64_t cache_bytes() const;  // of bind(), each cache once
  bool is_in_place() const { return in_place_; }
  bool keeps_states() const { return keeps_states_; }  // the context does

 private:
  enum class Role : uint8_t { kIds, kMask, kPositions, kHasPast, kLogitsToKeep, kState };
  struct State {
    size_t input = 0, output = 0;
    int row_axis = -1;       // -1: the shape is fixed
    bool is_buffer = false;  // the output has the rows of the input; else the new ones, too
  };

  void find_states();
  void find_kept_states();
  void add_state(size_t input, size_t output);
  void set_tokens(int64_t tokens, int64_t past);
  void begin_states(int64_t past);
  Role role_of(size_t input) const;
  Dims dims_of(size_t input, int64_t tokens, int64_t past) const;
  void bind_result(const State& state, int64_t rows, bool in_place);

  std::shared_ptr<const Engine> engine_;
  ExecutionContext context_;
  std::vector<Role> roles_;
  std::vector<State> states_;
  std::vector<PortMemory> inputs_, outputs_;
  bool in_place_ = false;
  bool keeps_states_ = false;                     // the context does
  int64_t tokens_ = 0, past_ = 0, past_now_ = 0;  // of a run, of bind(), and before the next run
};

}  // namespace anneal
