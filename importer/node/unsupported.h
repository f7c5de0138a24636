// UnsupportedReport: everything in a model that Anneal does not support, reported at once.
#pragma once
#include <string>
#include <vector>

namespace anneal {

// A reason for which the report names the remedy: a library of kernels.
inline constexpr const char* kNotImplemented = "not implemented";

class UnsupportedReport {
 public:
  struct Entry {
    std::string what;   // "If (ai.onnx 16)", "input", "initializer"
    std::string first;  // the first one's name
    std::string reason;
    int count = 1;
  };
  // Entries of equal what and reason are counted together.
  void add(std::string what, const std::string& name, std::string reason);
  // Fails with kUnsupported if there is anything: one line per entry.
  void throw_if_any() const;
  bool any() const { return !entries_.empty(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace anneal
