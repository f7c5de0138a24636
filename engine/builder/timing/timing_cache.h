// The timing cache: times of kernels, with everything that they depend on as the key. It is a
// readable text file that builds share. Each line below the first is one layer; tabs are between
// its columns. A kernel with a choice has its tactic in braces. A line that begins with '@' has the
// bytes of a library's tactic, which no other machine could find again.
//
//   anneal timings 2
//   # anneal  machine  threads  layer  kernel{tactic}=microseconds ...
//   0.1.0  AMD EPYC, full, oneDNN 2.6.3  1  Pool kernel=[3,3] (...) -> ...  cpu.pool.nhwc=81.3 ...
//   0.1.0  NVIDIA H100, sm_90, ...  1  Conv ...  cuda.conv.mma{64x64x64, 2x2 warps, 3 stages}=9.2
//   @ 1f0c9d3a5b7e2468  7b2276657273...
#pragma once
#include <compare>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "anneal/kernels/kernel.h"

namespace anneal {

struct TimingKey {
  std::string anneal;   // the version
  std::string machine;  // Device::machine()
  int threads = 1;      // of the CPU; 1 for kernels of a GPU
  std::string layer;    // timing_text() (kernel_timer.h, timed_step.h)
  auto operator<=>(const TimingKey&) const = default;
};
// Of a kernel that failed, or whose result was not that of the others: "wrong" in the file.
inline constexpr double kWrongResult = std::numeric_limits<double>::infinity();
// Microseconds, by kernel, or kernel{tactic}.
using KernelTimes = std::map<std::string, double, std::less<>>;
// No text of a key has control characters in it, and no name of a kernel braces, '=' or spaces.
struct TimingCache {
  std::map<TimingKey, KernelTimes> layers = {};
  std::map<std::string, Tactic, std::less<>> tactics = {};  // of libraries, by tactic_digest()
  bool empty() const { return layers.empty(); }
  bool operator==(const TimingCache&) const = default;
};

// 16 hexadecimal digits.
std::string tactic_digest(std::span<const std::byte> tactic);

// Sorted; parse_timing_cache() gives the same times back.
std::string to_string(const TimingCache& cache);
// Lines that are empty or begin with '#' are skipped. Reads version 1, too, whose kernels have no
// tactics. Fails with kInvalidArgument, naming the line.
TimingCache parse_timing_cache(std::string_view text);
// Adds the times of `from`, and replaces those of the same layers.
void merge(const TimingCache& from, TimingCache& into);

// Empty if there is no such file. Fails with kInvalidArgument, naming the file and the line, if it
// is damaged; with kIo if it cannot be read.
TimingCache read_timing_cache(const std::string& path);
// Adds the times to those that the file has by now, and replaces those of the same layers; other
// processes that do so wait meanwhile. The file is whole or untouched. Fails as reading does, and
// with kIo if it cannot be written.
void add_to_timing_cache(const std::string& path, const TimingCache& times);

}  // namespace anneal
