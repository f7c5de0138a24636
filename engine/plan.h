// Plan: a graph after all decisions: the kernel of each step, their order, and all addresses. It
// holds no pointers and no device state. Saved, it is an engine file (docs/plan_format.md).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/file.h"
#include "anneal/core/hash/sha256.h"
#include "anneal/core/size/size.h"
#include "anneal/core/tensor.h"
#include "anneal/core/type.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/graph/op/op.h"

namespace anneal {

class SharedPacking;

enum class Storage : uint8_t {
  kInput,          // bound by the caller
  kOutput,         // bound by the caller, or the context's
  kWeight,         // in the weight pool
  kArena,          // in the context's arena
  kView,           // part of another slot's memory
  kDataDependent,  // its size depends on values: allocated by the context during the run
};

inline constexpr uint32_t kNoSlot = ~0u;     // an absent optional input
inline constexpr uint32_t kNoDefault = ~0u;  // an input that every run must be given

// The memory of one value.
struct Slot {
  std::string name = {};  // of the value; of the port for inputs and outputs
  Type type = {};
  Shape strides = {};  // in elements
  Storage storage = Storage::kArena;
  uint8_t device = 0;       // index into Plan::devices: where its memory is
  uint64_t offset = 0;      // kWeight: entry in the pool. kArena: bytes, if the plan is static
  uint32_t base = kNoSlot;  // kView: the slot it is a part of. Late: whose memory it has, if any
  Size base_offset = {};    // kView: elements from the base's first
  uint32_t first_step = 0, last_step = 0;  // kArena: life; of a base, that of all its views
};

// One kernel launch, or an operation of the context: SizeTensor, control flow and transfers. inputs
// and outputs are ordered as in Layer (graph/graph.h). They are on the step's device, except host
// values (is_host_value() in graph/op/op.h), which are on the last device, and operands of control
// flow (engine/body_operands.h), which may be on any.
struct Step {
  std::string name = {};                  // of the layer, for profiles and errors
  std::vector<std::string> origins = {};  // ONNX nodes it stands for
  std::string kernel = {};                // KernelEntry::name
  uint8_t device = 0;
  Op op = {};
  std::vector<Program> epilogues = {};
  uint32_t op_input_count = 0;
  std::vector<uint32_t> inputs = {}, outputs = {};  // slots
  std::vector<std::byte> tactic = {};
  // Of a library's kernel: the own kernel, and its tactic, that loading takes where the library is
  // missing or refuses. Its code is in Plan::code. Empty: loading looks for the best one.
  std::string runner_up = {};
  std::vector<std::byte> runner_up_tactic = {};
};

// The kernel of a step that copies between two devices: its op is the identity, its input and
// output are dense and have the same strides. Its device is the one that is not the CPU.
inline constexpr std::string_view kTransfer = "transfer";

// The reason for a property of the plan, for people and tools: "fuse_epilogue", "conv1", "joined
// relu1". refused: a match that was not rewritten. saved: per run, at the opt sizes; the cost of a
// decision is negative.
struct Decision {
  std::string stage, subject, text;
  bool refused = false;
  int64_t saved_launches = 0, saved_bytes = 0;
  bool operator==(const Decision&) const = default;
};
// Stages that tools rely on. The subject is a value of the model that has no slot: the step named
// by the text computes it without storing it, or no step computes it.
inline constexpr std::string_view kFusedInto = "fused";
inline constexpr std::string_view kEliminated = "removed";
// The subject is a layer that runs on the CPU though the plan is for another device; text: why.
inline constexpr std::string_view kFallback = "fallback";
// The subject is a layer that runs on the CPU because its results only decide sizes or conditions.
inline constexpr std::string_view kDecidesShapes = "shapes";
// The subject is the graph; text: whether a batch may run in parts, or why it stays whole.
inline constexpr std::string_view kBatchSplit = "batch_split";
// The subject is an input whose default value the engine's sizes exclude.
inline constexpr std::string_view kNoDefaultValue = "no_default_value";
// The subject is a layer whose condition each run must meet, such as one branch of an If.
inline constexpr std::string_view kRequired = "required";

// A batch that the CPU may run in parts, since each row of the outputs follows from the same row of
// the inputs. A row is the part of a tensor at one index of axis 0.
struct BatchSplit {
  // The number of rows: axis 0 of all outputs and of one input at least, and no other size of
  // theirs. An input without it is the same for all rows.
  uint32_t symbol = 0;
  bool is_fixed = false;  // callers bind the symbol's max, and only parts have fewer rows
  bool operator==(const BatchSplit&) const = default;
};

// An input and an output, by their indices.
struct PortPair {
  uint32_t input = 0, output = 0;
  bool operator==(const PortPair&) const = default;
};

// The output is the input with rows behind it along `axis`: the cache of a decoder. Both ports have
// that axis outermost in memory, so they have the same strides and may begin at the same address.
struct AppendedPorts {
  uint32_t input = 0, output = 0, axis = 0;
  bool operator==(const AppendedPorts&) const = default;
};

// A plan for one target. `sizes` names every Size in it. A plan whose sizes are all known is
// static: arena offsets are in its slots; else the context places the arena when shapes are bound.
struct Plan {
  std::string target;    // "cpu", "cpu:avx512_vnni", "sm_90"
  uint32_t profile = 0;  // index of the ranges of sizes that it is for (engine/profiles.h)
  // Used together, preferred first: Device::target() of each. The last is a CPU: inputs and
  // outputs lie there, but for ports of bodies. A body has all devices or the last.
  std::vector<std::string> devices;
  std::string name;  // of the graph
  // Never null. Bodies share the outermost plan's.
  std::shared_ptr<const SizeTable> sizes = std::make_shared<const SizeTable>();
  std::vector<Slot> slots;
  std::vector<uint32_t> inputs, outputs;  // slots of the ports, in the model's order
  // By input: the weight that it is where the caller gives nothing, or kNoDefault. Empty for
  // bodies.
  std::vector<uint32_t> input_defaults = {};
  // Ports that may be one memory: then the output is the input, updated. The first step that writes
  // the output reads each element where it writes it, and no later one reads any. Empty for bodies.
  std::vector<PortPair> updated_ports = {};
  // Of states. Where both are one memory, the step that copies the input does nothing, and no step
  // writes the rows of the input. Empty for bodies.
  std::vector<AppendedPorts> appended_ports = {};
  // A context keeps the output as the input of its next run, each port once. Empty for bodies.
  std::vector<PortPair> states = {};
  std::vector<Step> steps;
  std::vector<Plan> bodies;               // of control flow, by index
  std::vector<uint64_t> arena_bytes;      // by device, if static
  std::vector<std::byte> code;            // what Device::prepare_code() gave; empty for bodies
  std::optional<BatchSplit> batch_split;  // empty for bodies, and where a batch stays whole
  bool is_exact = false;  // no kernel changes numerics, nor may one that replaces it at load
  std::vector<Decision> decisions;
};

// Constants of a step as its kernel reads them (PackedConstants in kernels/kernel.h).
struct ReadyConstant {
  std::string key;  // packed_key() in engine/run/planned_kernel.h, then the form
  Tensor bytes;     // u8, 64-byte aligned
};

// The content of an engine file: plans, one per target and profile, over one pool of weights stored
// once by content.
struct EngineFile {
  std::vector<Plan> plans;                 // those of a profile follow those of the one before
  std::vector<Tensor> weights;             // a kWeight slot's offset is an index into this
  std::vector<ReadyConstant> packed = {};  // ascending by key; all others are packed at load
  std::string producer;                    // "anneal 0.1.0"
  std::string model_name;
  std::string recipe = {};     // how it was built (engine/onnx/recipe.h); empty: not known
  bool weights_apart = false;  // weights and packed are in a second file
  Digest digest = {};          // as loaded: plan_digest() of an engine whose weights are apart
  // null: kernels pack weights at load. Else those on CPUs pack large ones in each run, into this
  // memory, for engines that run a few times and shall hold no second copy. `packed` is then not
  // read.
  std::shared_ptr<SharedPacking> packing = nullptr;
};

// What an engine and its second file have in common: SHA-256 of the plans and the index of weights.
Digest plan_digest(const EngineFile& file);
// The engine file, without weights and packed if they are apart.
std::vector<std::byte> save(const EngineFile& file);
std::vector<std::byte> save_weights(const EngineFile& file);  // the second file

// Where a loader takes weights from that are apart.
struct WeightsSource {
  enum Use : uint8_t {
    kInEngine,  // nowhere: such an engine is refused
    kApart,     // from the file; an engine that has its own is refused
    kNone,      // they stay empty, and the plans are not checked
  };
  Use use = kInEngine;
  FileBytes file = {};
};
// Checks every offset, count and index against the actual sizes, then that each plan is consistent
// (slots of steps exist, views lie within their bases, lifetimes cover uses, offsets within the
// arena do not overlap while both live). Weights refer to `bytes`, which `owner` keeps alive.
// team: its threads compare checksums; null: the caller does. operators: for
// steps from outside. Fails with kIncompatiblePlan, with kUnsupported naming a step whose operator
// is missing, and with kInvalidArgument where weights are lacking or given twice.
EngineFile load_engine_file(std::span<const std::byte> bytes,
                            const std::shared_ptr<const void>& owner, ThreadTeam* team = nullptr,
                            const CustomOperators& operators = {}, const WeightsSource& apart = {});
// Write what save() and save_weights() give, without a copy of the weights in memory, and return
// its size. PATH is whole or untouched. Fail with kCannotWrite.
size_t write_engine_file(const std::string& path, const EngineFile& file,
                         const WriteProgress& progress = {});
size_t write_weights_file(const std::string& path, const EngineFile& file,
                          const WriteProgress& progress = {});
struct ReadOptions {
  bool map = true;             // false: read the file instead of mapping it
  ThreadTeam* team = nullptr;  // as for load_engine_file()
  CustomOperators operators = {};
  std::string weights = {};  // the second file; empty: none
};
EngineFile read_engine_file(const std::string& path, const ReadOptions& options = {});

std::string to_string(const Plan& plan);  // what golden tests and `inspect` show

}  // namespace anneal
