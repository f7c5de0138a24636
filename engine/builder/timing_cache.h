// The timing cache: times of kernels, with everything that they depend on as the key. It is a
// readable text file that builds share. Each line below the first is one layer; tabs are between
// its columns.
//
//   anneal timings 1
//   # anneal  machine  threads  layer  kernel=microseconds ...
//   0.1.0  AMD EPYC, full, oneDNN 2.6.3  1  Pool kernel=[3,3] (...) -> ...  cpu.pool.nhwc=81.3 ...
#pragma once
#include <compare>
#include <map>
#include <string>
#include <string_view>

namespace anneal {

struct TimingKey {
  std::string anneal;   // the version
  std::string machine;  // Device::machine()
  int threads = 1;
  std::string layer;  // timing_text() (kernel_timer.h)
  auto operator<=>(const TimingKey&) const = default;
};
using KernelTimes = std::map<std::string, double, std::less<>>;  // microseconds, by kernel
// No text of a key has control characters in it.
using TimingCache = std::map<TimingKey, KernelTimes>;

// Sorted; parse_timing_cache() gives the same times back.
std::string to_string(const TimingCache& cache);
// Lines that are empty or begin with '#' are skipped. Fails with kInvalidArgument, naming the line.
TimingCache parse_timing_cache(std::string_view text);

// Empty if there is no such file. Fails with kInvalidArgument, naming the file and the line, if it
// is damaged; with kIo if it cannot be read.
TimingCache read_timing_cache(const std::string& path);
// Adds the times to those that the file has by now, and replaces those of the same layers; other
// processes that do so wait meanwhile. The file is whole or untouched. Fails as reading does, and
// with kIo if it cannot be written.
void add_to_timing_cache(const std::string& path, const TimingCache& times);

}  // namespace anneal
