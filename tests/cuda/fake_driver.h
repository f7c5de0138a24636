// A driver that runs nothing: it writes down what it is asked, counts what is not given back, and
// fails where a test wants it to.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/compiler.h"
#include "anneal/kernels/cuda/driver.h"

namespace anneal::cuda {

struct FakeCard {
  int devices = 2;
  int major = 8, minor = 6;
  std::map<std::string, CUresult> fails;  // function: what it answers
  std::map<std::string, int> calls;       // function: how often it was called
  std::map<std::string, int> live;        // "memory": how many there are
  std::vector<std::string> done;          // launches and copies, also inside a graph
  int entered = 0;                        // contexts on this thread's stack
  bool was_called_outside = false;        // without a current context
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
