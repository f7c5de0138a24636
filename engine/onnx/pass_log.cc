#include "anneal/engine/onnx/pass_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

std::string_view last_pass(const PassOptions& options) {
  std::string_view last;
  for (const Pass& pass : default_pipeline())
    if (why_left_out(pass, options).empty()) last = pass.name;
  return last;
}

void write_text(const std::string& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void dump(const std::string& path, const Graph& graph) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  write_text(path, to_string(graph));
}

}  // namespace

PassLog::PassLog(const BuildOptions& build, const Graph& imported, const PassOptions& options,
                 std::vector<BuildPass>& passes)
    : build_(build), last_(last_pass(options)), passes_(passes) {
  if (!build_.dump_passes.empty()) dump(build_.dump_passes + "/00-imported.txt", imported);
  if (!build_.dump_graph.empty() && last_.empty()) graph_text_ = to_string(imported);
}

void PassLog::add(const PassEvent& event, std::string_view targets) {
  passes_.push_back({.name = std::string(event.pass.name),
                     .targets = std::string(targets),
                     .is_exact = event.pass.exact,
                     .has_changed = event.changed,
                     .rewrites = event.rewrites,
                     .milliseconds = event.milliseconds,
                     .layers = event.graph.layer_count()});
  if (!build_.dump_graph.empty() && event.pass.name == last_) graph_text_ = to_string(event.graph);
  if (build_.dump_passes.empty() || !event.changed) return;
  const auto passes = default_pipeline();
  const auto number = std::ranges::find(passes, event.pass.name, &Pass::name) - passes.begin() + 1;
  dump(fmt::format("{}/{}/{:02}-{}.txt", build_.dump_passes, targets, number, event.pass.name),
       event.graph);
}

void PassLog::finish() const {
  if (!build_.dump_graph.empty()) write_text(build_.dump_graph, graph_text_);
}

}  // namespace anneal
