// Pass: a function that rewrites the graph. Its name is its file, its flag and its golden test.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// The saving of a rewrite in each run, at the opt sizes; costs are negative.
struct Saving {
  int64_t launches = 0;
  int64_t bytes = 0;  // of memory read or written
};
// The saving of a value that is neither written nor read any more, and of the launch that made it.
Saving saving_of(const Graph& graph, ValueId between);

// A record of a pass: "joined relu1" about "conv1"; or, refused, the reason against a rewrite.
struct PassRecord {
  std::string_view pass;
  std::string subject, text;
  bool refused = false;
  Saving saved = {};
};

// Asked about a layer as it would be (its inputs are the graph's; outputs and name are not read):
// why a target would run it on no better kernel than its fallback, each kernel's reason in it;
// empty if every target has a kernel of its own for it.
using AskTargets = std::function<std::string(const Graph& graph, const NewLayer& layer)>;

// In PassOptions::skip: every pass.
inline constexpr std::string_view kAllPasses = "all";

// The 16-bit floats that a target computes in.
struct NativeHalves {
  bool f16 = false, bf16 = false;
  bool has(DataType dtype) const {
    return (dtype == DataType::kF16 && f16) || (dtype == DataType::kBF16 && bf16);
  }
  bool operator==(const NativeHalves&) const = default;
};

struct PassOptions {
  uint64_t fold_budget_bytes = 16 << 20;  // largest constant that folding makes for elementwise use
  // Models with at most this many bytes of f32 weights read them from a cache in every run; models
  // with eight times as many read them from memory.
  uint64_t cached_weight_bytes = 4 << 20;
  uint64_t max_memory = 0;             // no larger constant is made; 0: no limit
  int threads = 0;                     // of passes that compute weights; 0: one per core
  NativeHalves native = {};            // what the target computes in stays
  bool exact = false;                  // leave out the passes that may change numerics
  bool weights_may_change = false;     // weights that are equal by chance are not merged
  std::vector<std::string> skip = {};  // passes not to run, by name
  std::vector<std::string> only = {};  // if not empty: all others are skipped
  // Rewrites of the whole pipeline; what comes after them is left undone. For finding the one that
  // does harm.
  uint64_t rewrite_limit = std::numeric_limits<uint64_t>::max();
  PrecisionOptions precision = {};
  AskTargets ask_targets = {};  // empty: every layer is welcome
};

struct BodyContext;  // optimizer/precision/value_need.h

// One run of the pipeline for its passes: which rewrites are allowed, and where passes record their
// rewrites.
class PassRun {
 public:
  explicit PassRun(const PassOptions& options) : options(options) {}
  const PassOptions& options;

  // Whether one more rewrite is allowed. A rule asks before it changes anything, sweep() for it.
  bool may_rewrite() const { return rewrites_ < options.rewrite_limit; }
  // A rewrite was done.
  void did(std::string subject, std::string text, Saving saved = {});
  // Records a match that was not rewritten, once per subject and text.
  void refused(std::string subject, std::string text);
  std::string ask_targets(const Graph& graph, const NewLayer& layer) const {
    return options.ask_targets ? options.ask_targets(graph, layer) : std::string();
  }

  // A pass processes a graph before its bodies. It stores its findings for a body here and reads
  // them when it processes the body: null if there are none.
  void note(const Graph& body, std::shared_ptr<const BodyContext> found);
  const BodyContext* noted(const Graph& body) const;

  void begin(std::string_view pass);  // later records belong to this pass
  uint64_t rewrites() const { return rewrites_; }
  std::vector<PassRecord> take_records() { return std::move(records_); }

 private:
  std::string_view pass_;
  uint64_t rewrites_ = 0;
  std::vector<PassRecord> records_;
  std::set<std::pair<std::string, std::string>> refusals_;
  std::unordered_map<const Graph*, std::shared_ptr<const BodyContext>> noted_;
};

struct Pass {
  std::string_view name;
  std::string_view summary;  // one line, for --list-passes
  bool exact;  // false: may change numerics beyond what docs/graph_text.md calls equal
  bool (*run)(Graph&, PassRun&);  // whether it changed the graph
};

// Calls the rule on each live layer, in order, until nothing changes. A rule that returns true did
// one rewrite, and told so.
bool sweep(Graph& graph, PassRun& run, bool (*rule)(Graph&, LayerId, PassRun&));

// Whether `skip` or `only` leave out the pass of that name.
bool is_skipped(std::string_view pass, const PassOptions& options);
// Why the options leave the pass out: "skipped"; empty if they do not.
std::string_view why_left_out(const Pass& pass, const PassOptions& options);

struct PassEvent {
  const Pass& pass;
  const Graph& graph;
  bool changed;
  uint64_t rewrites;
  double milliseconds;
};
using AfterPass = std::function<void(const PassEvent&)>;
// After every pass: erase_unused(), verify(), and after_pass for dumps and timing. Fails with
// kInvalidArgument if options.skip or options.only names no pass.
std::vector<PassRecord> run_pipeline(Graph& graph, std::span<const Pass> passes,
                                     const PassOptions& options, const AfterPass& after_pass = {});

}  // namespace anneal
