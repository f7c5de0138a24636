// A driver that runs nothing: it writes down what it is asked, counts what is not given back, and
// fails where a test wants it to.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/api/driver.h"
#include "anneal/kernels/cuda/code/compiler.h"

namespace anneal::cuda {

struct FakeCard {
  int devices = 2;
  int major = 8, minor = 6;
  std::vector<int> on_bus = {0, 1, 2, 3};  // which of the machine's cards each ordinal is
  // An A10's, but for the number of multiprocessors.
  std::map<CUdevice_attribute, int> attributes = {
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1695000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 7},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 6251000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 384},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 6 << 20},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1536},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16}};
  std::map<std::string, CUresult> fails;  // function: what it answers
  std::map<std::string, int> calls;       // function: how often it was called
  std::map<std::string, int> live;        // "memory": how many there are
  std::vector<std::string> done;          // launches and copies, also inside a graph
  std::vector<unsigned> events;           // flags of all that were made
  int entered = 0;                        // contexts on this thread's stack
  bool was_called_outside = false;        // without a current context
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // of this thread
  std::set<std::string> ended_captures;                  // calls that end another library's capture
  std::map<const void*, std::shared_ptr<void>> objects;  // what handles and addresses point at
};
// The one that fake_driver() is of. Tests begin with a new one.
FakeCard& fake_card();
const Driver& fake_driver();

// An image is the text behind an ELF header, for fake_driver() to look for names in.
class FakeCompiler final : public Compiler {
 public:
  std::vector<std::byte> compile(const std::string& program, int architecture) const override;
  std::string identity() const override { return "fake compiler"; }
  mutable std::vector<std::string> compiled;
};

}  // namespace anneal::cuda
