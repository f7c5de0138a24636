// `anneal check`: compares models with their known outputs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "anneal/cli/check/case_tables.h"
#include "anneal/cli/check/check_report.h"
#include "anneal/cli/check/run_case.h"
#include "anneal/cli/check/test_cases.h"
#include "anneal/cli/check/unpacked_archive.h"
#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/flags/name_pattern.h"
#include "anneal/cli/flags/pass_flags.h"
#include "anneal/cli/measure/process_pool.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/parallel.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

struct CheckFlags {
  std::vector<std::string> paths;
  BuildOptions build;
  std::string tolerances, known_failures, json, filter;
  double rtol = 1e-3, atol = 1e-5, time_limit = 300;
  int jobs = 0, threads = 1;
  bool verbose = false, quiet = false;
};

// One case for one target, with the tolerance that the tables give it.
struct Job {
  std::string name;  // of the case; with several targets followed by " (TARGET)"
  TestCase test;
  CaseOptions options;
};

struct Tables {
  std::vector<ToleranceRow> tolerances;
  std::vector<KnownFailure> known_failures;
};

std::string read_case_text(const std::string& path) {
  const FileBytes file = read_file(path);
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

// The models.tsv of a folder or of its parent.
std::vector<NoiseRow> noise_beside(const std::string& folder) {
  std::error_code error;
  const fs::path at = fs::weakly_canonical(folder, error);
  for (const fs::path& place : {at, at.parent_path()}) {
    const fs::path table = place / "models.tsv";
    if (fs::is_regular_file(table, error))
      return parse_reference_noise(read_case_text(table.string()), table.string());
  }
  return {};
}

Tolerance tolerance_for(const std::string& name, const CheckFlags& flags, const Tables& tables,
                        std::span<const NoiseRow> noise) {
  Tolerance tolerance{flags.rtol, flags.atol, std::nullopt};
  // Below the noise of the reference itself a tolerance means nothing.
  if (const auto* row = row_for(noise, name))
    tolerance.atol = std::max(tolerance.atol, 4 * row->noise);
  if (const auto* row = row_for<ToleranceRow>(tables.tolerances, name)) {
    tolerance.atol = row->atol.value_or(tolerance.atol);
    tolerance.rtol = row->rtol.value_or(tolerance.rtol);
    tolerance.max_differ = row->max_differ;
  }
  return tolerance;
}

class CheckRun {
 public:
  explicit CheckRun(const CheckFlags& flags) : flags_(flags), progress_(flags.verbose) {
    if (!flags.filter.empty()) filter_.emplace(flags.filter, "--filter");
    check_output_file(flags.json);
    if (!flags.tolerances.empty())
      tables_.tolerances = parse_tolerances(read_case_text(flags.tolerances), flags.tolerances);
    if (!flags.known_failures.empty())
      tables_.known_failures =
          parse_known_failures(read_case_text(flags.known_failures), flags.known_failures);
  }

  int run() {
    for (const std::string& path : flags_.paths) add_path(path);
    if (jobs_.empty())
      fail(ErrorCode::kInvalidArgument, fmt::format("--filter \"{}\" matches none of {}",
                                                    flags_.filter, count_text(skipped_, "case")));
    CheckReport report(tables_.known_failures, jobs_names(), skipped_, flags_.quiet);
    PoolOptions pool;
    pool.jobs = flags_.jobs > 0 ? flags_.jobs : hardware_threads();
    pool.time_limit_seconds = flags_.time_limit;
    run_in_processes(
        jobs_.size(), pool, interrupts_,
        [&](size_t i) { return to_bytes(run_case(jobs_[i].test, jobs_[i].options)); },
        [&](size_t i, ItemOutcome outcome) {
          CaseResult result;
          if (outcome.answer) {
            result = case_result_from(*outcome.answer);
          } else {
            result.why = outcome.died;
            result.code = to_string(ErrorCode::kInternal);
          }
          progress_.clear();
          report.add(i, result, outcome.seconds);
        },
        [&](size_t finished) {
          progress_.say(fmt::format("{} of {} cases", finished, jobs_.size()));
        });
    progress_.clear();
    if (!flags_.json.empty()) report.write(flags_.json);
    if (flags_.filter.empty()) report_unused_tolerances();
    return report.finish(flags_.filter.empty()) ? kSuccess : kDifferent;
  }

 private:
  void add_path(const std::string& path) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    std::string root = path;
    if (!is_folder && fs::exists(path, error) && !std::string_view(path).ends_with(".onnx")) {
      progress_.say(fmt::format("unpacking {}", path));
      archives_.push_back(std::make_unique<UnpackedArchive>(path, interrupts_));
      root = archives_.back()->root();
    }
    std::vector<TestCase> tests = find_test_cases(root);
    if (tests.empty())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} holds no test case; a case is a folder with model.onnx and "
                       "test_data_set_0/output_0.pb, or X.onnx with X_output_0.pb beside it",
                       path));
    const auto noise = noise_beside(is_folder ? path : fs::path(root).string());
    for (TestCase& test : tests) {
      if (filter_ && !filter_->matches(test.name)) {
        skipped_ += flags_.build.targets.size();
        continue;
      }
      for (const std::string& target : flags_.build.targets) {
        CaseOptions options{target, flags_.build, flags_.threads,
                            tolerance_for(test.name, flags_, tables_, noise)};
        std::string name = test.name;
        if (flags_.build.targets.size() > 1) name += fmt::format(" ({})", target);
        jobs_.push_back({std::move(name), test, std::move(options)});
      }
    }
  }

  void report_unused_tolerances() const {
    for (const ToleranceRow& row : tables_.tolerances)
      if (std::none_of(jobs_.begin(), jobs_.end(),
                       [&](const Job& job) { return names_case(row.name, job.test.name); }))
        fmt::print(stderr, "anneal: the tolerance of {} names no case\n", printable(row.name));
  }

  std::vector<std::string> jobs_names() const {
    std::vector<std::string> names;
    for (const Job& job : jobs_) names.push_back(job.name);
    return names;
  }

  const CheckFlags& flags_;
  InterruptWatch interrupts_;  // first: what is made later is cleaned up before it acts
  ProgressLine progress_;
  std::optional<NamePattern> filter_;
  Tables tables_;
  std::vector<std::unique_ptr<UnpackedArchive>> archives_;
  std::vector<Job> jobs_;
  size_t skipped_ = 0;
};

constexpr const char* kCheckFooter = R"(Examples:
  anneal check mnist                     model.onnx with test_data_set_0/input_0.pb, output_0.pb
  anneal check models --jobs 2           every such folder below models, two at a time
  anneal check onnx-tests.tar.zst --filter 'node/test_conv' --known-failures known.txt

A case is imported, optimized, planned, saved, loaded and run. Then each output is compared: floats
within atol + rtol * |expected|, NaN equal to NaN, integers equal. In a model that computes with
floats, 0.1 % of the elements of an integer output may differ. A quantized model (Conv, Gemm or
MatMul between QuantizeLinear and DequantizeLinear) may differ by 3 % of the output's largest
magnitude if the largest of 10 or more scores stays in its place. Its integers may differ in 2 % of
the elements.
  --tolerances  tab-separated columns case, atol, rtol, max_differ (a share of the elements)
  models.tsv    is read from the folder or its parent: column model names cases; the atol of floats
                is max(--atol, 4 x ref_noise_maxabs)
  --known-failures  lines of a name, a tab and a reason: such a case must fail. If it passes, the
                check fails until the line is deleted. Crashes are never excused
Cases without input files get 0/n, 1/n, ... The last line counts cases that passed, failed (known
failures included) and were skipped by --filter.
Exit status: 0 as expected; 1 an unexpected failure or success; 2 wrong arguments, no cases.)";

}  // namespace

void add_check_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("check", "Compare models with their known outputs");
  auto flags = std::make_shared<CheckFlags>();
  command->add_option("path", flags->paths, "Folders of cases, .onnx files, or .tar.zst archives")
      ->required()
      ->group(often(help::kFiles));
  command->add_option("--filter", flags->filter, "Only cases whose name matches, at any place")
      ->type_name("REGEX")
      ->group(often(help::kFiles));
  command
      ->add_option("--known-failures", flags->known_failures, "Cases that must fail, with reasons")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_option("--json", flags->json, "Write the results as JSON")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  command->add_flag("-q,--quiet", flags->quiet, "Print only unexpected results and the last line")
      ->group(often(help::kFiles));
  command->add_option("--rtol", flags->rtol, "Relative tolerance")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kCompare));
  command->add_option("--atol", flags->atol, "Absolute tolerance")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kCompare));
  command->add_option("--tolerances", flags->tolerances, "Tolerances of single cases")
      ->type_name("TSV")
      ->group(often(help::kCompare));
  command
      ->add_option("--target,--device", flags->build.targets,
                   "Targets, as for anneal build (default: cpu)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(often(help::kRun));
  command
      ->add_option("--jobs", flags->jobs,
                   "Cases at a time, each in a process (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  command->add_option("--threads", flags->threads, "Threads of one case; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kRun));
  command->add_option("--time-limit", flags->time_limit, "Seconds until a case fails; 0: no limit")
      ->capture_default_str()
      ->check(at_least(0))
      ->type_name("SECONDS")
      ->group(often(help::kRun));
  command
      ->add_flag("!--no-fallback", flags->build.allow_fallback,
                 "Fail if a layer of a GPU target would run on the CPU")
      ->group(rarely(help::kRun));
  add_library_flag(*command, flags->build.libraries);
  add_pass_flags(*command, flags->build);
  command->footer(kCheckFooter);
  command->callback([&action, flags] { action = [flags] { return CheckRun(*flags).run(); }; });
}

}  // namespace anneal
