// A warp of 32 lanes that runs one function: registers, masks and the instruction's place.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/ptx/memory.h"

namespace anneal::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = ~0u;

class Touched;

// How a tensor core adds its products.
enum class TensorSums : uint8_t {
  kExact,    // rounded once
  kCut,      // as the architecture does: addends aligned to the largest one and truncated
  kInOrder,  // one after the other in f32, as the emulated device does
};

// How results that the manual leaves open are chosen.
struct Arithmetic {
  TensorSums tensor_sums = TensorSums::kExact;
  // ex2.approx and rcp.approx are off by as much as the manual allows, in this direction.
  int approximate_ulps = 0;
};

// A register or a constant of 32 lanes, by its place in the register file; the highest bit tells
// constants.
using Place = uint32_t;
inline constexpr Place kConstant = 1u << 31;
// The alignment of registers in bytes: the size of a register of 16 bits and 32 lanes.
inline constexpr Place kRegisterUnit = 2 * kLanes;

class Warp;
struct Instruction {
  void (*run)(Warp& warp, const Instruction& instruction) = nullptr;
  std::array<Place, 16> at = {};  // results first
  uint32_t guard = kNoGuard;      // a predicate
  bool is_guard_negated = false;
  std::array<uint8_t, 4> parameters = {};  // of the instruction's own
  int64_t offset = 0;                      // of an address, in bytes
  uint32_t target = 0;                     // of a branch
  uint32_t line = 0, text_line = 0;
  // Of an instruction that does the same in every lane, and has no other effect: `at` begins with
  // results, then sources; bit i: at[i] is a predicate. A result of a source without a value has
  // none, either.
  bool is_lanewise = false;
  uint8_t results = 0, operands = 0;
  uint16_t predicates = 0;

  static constexpr uint32_t kNoGuard = ~0u;
};

// The registers whose values a warp has from its place in the grid.
enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid
};

struct Function {
  std::string name;
  int architecture = 0;
  std::vector<Instruction> instructions;
  std::vector<std::string> opcodes;   // by instruction, for errors
  std::vector<uint8_t> begins_block;  // by instruction: a label is here
  std::vector<std::byte> constants;   // 32 lanes each
  std::vector<std::pair<Special, Place>> specials;
  size_t register_bytes = 0, predicates = 0;
  // For errors: by place / kRegisterUnit, and by the predicate's number.
  std::vector<std::string> register_names, predicate_names;
  std::vector<size_t> parameter_offsets, parameter_sizes, parameter_alignments;
  size_t parameter_bytes = 0;
  size_t static_shared_bytes = 0;
  size_t local_bytes = 0;    // of a thread
  uint32_t max_threads = 0;  // of a block; 0: any number
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// A copy to shared memory that is under way.
struct AsyncCopy {
  uint64_t from = 0;
  uint32_t to = 0, bytes = 0, read = 0;
  uint8_t lane = 0;
  uint32_t group = 0;  // of the lane's groups
  uint32_t line = 0;
};

// An mbarrier object of the block's shared memory.
struct MemoryBarrier {
  uint32_t expected = 0, pending = 0;  // arrivals, of a phase and still missing
  int64_t bytes = 0;                   // that copies still have to bring
  uint64_t phase = 0;
};
// An arrival that follows when a lane's copies have arrived.
struct LateArrival {
  Warp* warp = nullptr;
  uint32_t barrier = 0;  // its address
  std::vector<AsyncCopy> copies = {};
};

// What the warps of a block share.
struct Block {
  const Function& function;
  const std::byte* parameters = nullptr;
  Dim3 grid, size, index;
  GlobalMemory& global;
  SharedMemory& shared;
  const Arithmetic& arithmetic;
  Mark mark = 0;       // of this block, in GlobalMemory::Allocation
  uint32_t epoch = 1;  // counts barriers, of earlier blocks as well
  uint64_t steps = 0, most_steps = 0;
  GlobalMemory::Allocation* last = nullptr;         // that was found
  Touched* touched = nullptr;                       // null: not recorded
  std::map<uint32_t, MemoryBarrier> barriers = {};  // by address
  std::vector<LateArrival> late = {};
  uint64_t barrier_changes = 0;
};

// Lanes that go on at the same instruction.
struct LaneGroup {
  uint32_t place = 0, lanes = 0;
};

class Warp {
 public:
  enum class State : uint8_t { kAtBarrier, kDone, kPolls };

  Warp(Block& block, uint32_t first_thread);
  // For the block's present index: at the function's begin, and no register has a value.
  void begin();
  // Until all lanes wait for a barrier, have ended, or have seen an mbarrier's phase unfinished.
  // Divergent lanes run by the lowest place first, so that they meet again where their branches do.
  // Fails with Fault.
  State run();
  // All threads of the block have arrived.
  void pass_barrier();
  uint32_t barrier_place() const { return waiting_.lanes == 0 ? 0 : waiting_.place; }

  // For instructions:
  uint32_t mask() const { return mask_; }      // lanes that execute it
  uint32_t active() const { return active_; }  // lanes that are here, whatever the guard
  Block& block() { return block_; }
  const Block& block() const { return block_; }
  uint32_t first_thread() const { return first_thread_; }
  uint32_t line() const { return block_.function.instructions[place_ - 1].line; }
  // Fails if the register has no value in a lane of mask(), but for lane-wise instructions.
  template <class T>
  const T* read(Place place) const {
    if ((place & kConstant) != 0)
      return reinterpret_cast<const T*>(block_.function.constants.data() + (place & ~kConstant));
    if ((mask_ & ~has_value_[place / kRegisterUnit]) != 0) refuse_register(place);
    return reinterpret_cast<const T*>(registers_.get() + place);
  }
  // Into the lanes of mask().
  template <class T>
  void write(Place place, const T (&values)[kLanes]) {
    T* const to = registers<T>(place);
    if (mask_ == kAllLanes) {
      std::memcpy(to, values, sizeof(values));
    } else {
      for (uint32_t left = mask_; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        to[lane] = values[lane];
      }
    }
  }
  // To be written in the lanes of mask().
  template <class T>
  T* registers(Place place) {
    has_value_[place / kRegisterUnit] |= mask_;
    return reinterpret_cast<T*>(registers_.get() + place);
  }
  uint32_t predicate(Place place) const {
    if ((mask_ & ~predicate_has_value_[place]) != 0) refuse_predicate(place);
    return predicates_[place];
  }
  // The lane's local memory, and which bytes of it have a value.
  std::byte* local(uint32_t lane) { return local_.get() + lane * block_.function.local_bytes; }
  uint8_t* local_is_written(uint32_t lane) {
    return local_is_written_.data() + lane * block_.function.local_bytes;
  }
  // For lane-wise instructions: the lanes where an operand has a value, and those where the results
  // have none, which is where an operand has none unless the instruction says otherwise.
  uint32_t lanes_with_value(const Instruction& instruction, size_t i) const {
    const Place place = instruction.at[i];
    if ((instruction.predicates >> i & 1) != 0) return predicate_has_value_[place];
    return (place & kConstant) != 0 ? kAllLanes : has_value_[place / kRegisterUnit];
  }
  uint32_t without_value() const { return without_value_; }
  void set_without_value(uint32_t lanes) { without_value_ = lanes & mask_; }
  // By byte of a register of 32 or 64 bits: an instruction may use some bytes only. Bit b: byte b
  // of the operand, or of the result, has no value; bits beyond the register mean nothing.
  using Bytes = std::array<uint8_t, kLanes>;
  Bytes bytes_without_value(const Instruction& instruction, size_t i) const;
  void set_bytes_without_value(const Bytes& bytes);
  void set_predicate(Place place, uint32_t lanes) {
    predicates_[place] = (predicates_[place] & ~mask_) | (lanes & mask_);
    predicate_has_value_[place] |= mask_;
  }
  // The carry of each lane, which instructions with "cc" leave.
  uint32_t carries() const { return carries_; }
  void set_carries(uint32_t lanes) { carries_ = (carries_ & ~mask_) | (lanes & mask_); }
  SharedMemory::Time time() const { return {block_.epoch, epoch_}; }
  void branch(uint32_t target);
  void end_lanes();
  void wait_at_barrier();
  // Others shall run before these lanes go on.
  void poll() { polls_ = true; }
  void synchronize() { ++epoch_; }  // accesses of the warp before and after are ordered
  // Whether all of these lanes that have not ended are here. If not, those that are wait for the
  // others, and the instruction runs again when they have come.
  bool has_met(uint32_t lanes);
  void begin_copy(AsyncCopy copy);
  void commit_copies();
  void finish_copies(uint32_t newest_groups_left);
  // The lane's copies, which someone else finishes.
  std::vector<AsyncCopy> take_copies(uint32_t lane);
  void arrive(const AsyncCopy& copy);
  [[noreturn]] void fault(Fault::Kind kind, const std::string& what) const;

 private:
  void meet();
  bool give_way();
  // Runs a lane-wise instruction with sources that have no value in some lanes.
  void run_without_values(const Instruction& instruction);
  void refuse_register(Place place) const;
  void refuse_predicate(Place place) const;
  [[noreturn]] void refuse_value(Place place, bool is_predicate, uint32_t lanes) const;
  std::string name_of(Place place, bool is_predicate) const;

  Block& block_;
  uint32_t first_thread_, began_ = 0, live_ = 0, active_ = 0, mask_ = 0;
  bool polls_ = false;
  uint32_t place_ = 0, epoch_ = 1, carries_ = 0;
  std::vector<LaneGroup> others_;
  std::vector<LaneGroup> parked_;  // wait for other lanes, at the instruction
  LaneGroup waiting_;
  std::unique_ptr<std::byte[]> registers_;
  std::vector<uint32_t> predicates_;
  std::vector<uint32_t> has_value_, predicate_has_value_;  // lanes
  std::unique_ptr<std::byte[]> local_;
  std::vector<uint8_t> local_is_written_;
  uint32_t without_value_ = 0;
  bool allows_no_value_ = false;
  std::map<Place, Bytes> bytes_;  // of registers that have no value in some lanes; else all bytes
  std::optional<Bytes> result_bytes_;
  // Why a register has no value, if an instruction wrote it: the register that never had one, and
  // the instruction that read that.
  struct Origin {
    Place place = 0;
    bool is_predicate = false;
    uint32_t instruction = 0;
  };
  std::map<std::pair<bool, Place>, Origin> origins_;
  std::vector<AsyncCopy> copies_;
  std::array<uint32_t, kLanes> groups_ = {};
};

}  // namespace anneal::ptx
