// The interface between device text compiled for the host (host.h) and the emulated device that
// runs it. Part of both: no headers.
#pragma once

namespace anneal::cuda::emulator {

using Address = unsigned long long;

struct Index3 {
  unsigned x, y, z;
};

// A place in the text of a function: its name and the line, from 1.
struct Site {
  const char* file;
  int line;
  // As a default argument: where the call stands.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// In<T> and Out<T>: accesses of aligned elements within [begin, begin + bytes) are good; of others
// Api::operand says more. `number` is that of the parameter.
struct Operand {
  Address data, begin, bytes;
  int number;
};

// One array of a block, made by its first thread that declares it.
struct SharedArray {
  Address begin, bytes;
  const char* name;
};

enum class Access : int { kRead, kWrite, kAtomic };
enum class Shuffle : int { kLane, kUp, kDown, kXor };
enum class Mma : int { kF16, kBf16, kS8S8, kU8S8, kS8U8, kU8U8 };  // types of a and b

// The kinds of counted accesses (AccessKind, core/access_counts.h).
enum class Count : int {
  kGlobalLoad,
  kGlobalStore,
  kGlobalAtomic,
  kCopyLoad,
  kCopyStore,
  kSharedLoad,
  kSharedStore,
  kSharedAtomic,
  kMatrixLoad,
  kMma,
  kShuffle,
  kWarpBarrier,
  kBarrier
};

struct Thread;

// Those marked * return only if there was no fault.
struct Api {
  // * An access that the quick check refused; `begin` is the operand's.
  void (*operand)(Thread&, Address begin, Address at, unsigned bytes, Access, Site);
  // `key` tells declarations apart, null is dynamic memory, whose size the launch gives. *
  SharedArray* (*declare_shared)(Thread&, const void* key, Address bytes, unsigned element,
                                 const char* name, Site);
  void (*shared)(Thread&, const SharedArray*, Address at, unsigned bytes, Access, Site);  // *
  // * From operand to shared memory; from == 0: zeros.
  void (*copy_async)(Thread&, const SharedArray*, Address to, Address from, unsigned bytes, Site);
  void (*copy_async_commit)(Thread&);
  void (*copy_async_wait)(Thread&, int groups);
  // These end when all threads that must take part do. *
  void (*sync_threads)(Thread&, Site);
  void (*sync_warp)(Thread&, unsigned mask, Site);
  Address (*shuffle)(Thread&, Shuffle, unsigned mask, Address bits, int operand, int width, Site);
  unsigned (*ballot)(Thread&, unsigned mask, bool vote, Site);
  void (*ldmatrix)(Thread&, const SharedArray*, Address at, bool transposed, unsigned* result,
                   Site);
  void (*mma)(Thread&, Mma, void* c, const unsigned* a, unsigned b0, unsigned b1, Site);
  // Called by text that counts: an access to the operand of this number, or to shared memory. The
  // calls above count the operations of several threads.
  void (*count_global)(Thread&, Count, int operand, Address at, unsigned bytes, Site);
  void (*count_shared)(Thread&, Count, const SharedArray*, Address at, unsigned bytes, Site);
};

// At the lowest address of the stack, aligned to kStackBytes, that the CUDA thread runs on.
struct Thread {
  Index3 thread_index, block_index, block_size, grid_size;
  const Api* api;
};
inline constexpr Address kStackBytes = 1 << 17;

// A function as its object exports it, under the name of the function and "_entry".
struct Entry {
  int most_threads;    // of a block
  bool checks_shared;  // accesses to shared memory are all reported, not only bad ones
  bool counts;         // so are all accesses, to be counted
  int parameters;
  const unsigned* bytes;                    // of each parameter, as launched
  const unsigned* elements;                 // of each: size of T for In<T> and Out<T>, else 0
  void (*call)(const Operand* parameters);  // one thread; others than operands lie in `data`
};

}  // namespace anneal::cuda::emulator
