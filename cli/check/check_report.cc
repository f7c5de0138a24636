#include "anneal/cli/check/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr size_t kWidestName = 60;

// JSON has no infinity.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

CheckReport::CheckReport(std::span<const KnownFailure> known_failures,
                         std::vector<std::string> names, size_t skipped, bool quiet)
    : known_failures_(known_failures), names_(std::move(names)), skipped_(skipped), quiet_(quiet) {
  for (const std::string& name : names_)
    width_ = std::max(width_, std::min(name.size(), kWidestName));
}

void CheckReport::add(size_t i, const CaseResult& result, double seconds) {
  const std::string& name = names_[i];
  // A known failure holds for every target, or is written with one: "NAME (TARGET)".
  const KnownFailure* known = row_for(known_failures_, name);
  if (!known) known = row_for(known_failures_, name.substr(0, name.find(" (")));
  // A crash or a broken invariant is a fault of ours in every case.
  if (result.code == anneal::to_string(ErrorCode::kInternal)) known = nullptr;
  const bool close = result.why.empty();
  const char* status = close   ? (known ? "unexpected_success" : "passed")
                       : known ? "known_failure"
                               : "failed";
  passed_ += close && !known ? 1 : 0;
  failed_ += close && !known ? 0 : 1;
  known_ += !close && known ? 1 : 0;

  const std::string errors =
      result.code.empty() ? fmt::format("abs {:<9.3g} rel {:<9.3g}", result.max_abs, result.max_rel)
                          : fmt::format("abs {:<9} rel {:<9}", "-", "-");
  const std::string why =
      close   ? known ? fmt::format("passes, but is listed as failing ({}): delete its line",
                                    known->reason)
                : result.note.empty()
                    ? ""
                    : fmt::format("with the sizes of its data; with open ones: {}", result.note)
        : known ? fmt::format("{} (known: {})", result.why, known->reason)
              : result.why;
  if (!quiet_ || close == (known != nullptr)) {
    std::string line = fmt::format("{:<5} {:<{}}  {} {:>8}  {}",
                                   close && !known   ? "ok"
                                   : !close && known ? "known"
                                                     : "FAIL",
                                   name, width_, errors, milliseconds_text(seconds * 1000), why);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", printable(line, LineEnds::kIndented));
    std::fflush(stdout);
  }

  Json entry = {{"name", name}, {"status", status}};
  if (!result.why.empty()) entry["reason"] = result.why;
  if (!result.code.empty()) {
    entry["error"] = result.code;
  } else {
    entry["max_abs_error"] = finite(result.max_abs);
    entry["max_rel_error"] = finite(result.max_rel);
  }
  if (!result.note.empty()) entry["fixed_sizes_because"] = result.note;
  if (known) entry["known_failure"] = known->reason;
  entry["seconds"] = seconds;
  cases_.push_back(std::move(entry));
}

void CheckReport::write(const std::string& json_path) const {
  write_json(json_path, {{"passed", passed_},
                         {"failed", failed_},
                         {"known_failures", known_},
                         {"skipped", skipped_},
                         {"cases", cases_}});
}

bool CheckReport::finish(bool complete) const {
  if (complete)
    for (const KnownFailure& known : known_failures_)
      if (std::none_of(names_.begin(), names_.end(), [&](const std::string& name) {
            return names_case(known.name, name) ||
                   names_case(known.name, name.substr(0, name.find(" (")));
          }))
        fmt::print(stderr, "anneal: the known failure {} names no case\n", printable(known.name));
  if (!known_failures_.empty())
    fmt::print("{} of the failures are known, {} are not expected\n", known_, failed_ - known_);
  fmt::print("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_);
  return failed_ == known_;
}

}  // namespace anneal
