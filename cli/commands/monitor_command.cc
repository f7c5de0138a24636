// `anneal monitor`: utilization, memory, power and clocks of GPUs, and the use of the CPU beside
// it, under nvidia-smi's names.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/monitor/monitor.h"
#include "anneal/cli/monitor/monitor_flags.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/interrupt_watch.h"
#include "anneal/cli/output/output_path.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// The CPU's use is that of a period, so the first sample needs one, too.
constexpr double kFirstPeriod = 0.1;  // seconds

struct MonitorCommandFlags {
  double interval = 0;  // seconds; 0: one sample
  int64_t count = 0;    // of samples; 0: until a signal
  std::string query, csv = "-", form = "csv";
  bool processes = false;
};

// False: a signal came first.
bool wait_until(Clock::time_point when, InterruptWatch& signals) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
    pollfd watched = {signals.fd(), POLLIN, 0};
    constexpr int64_t kMost = 60'000;  // milliseconds
    poll(&watched, 1, static_cast<int>(std::clamp<int64_t>(left, 0, kMost)));
    if (signals.take()) return false;
    if (Clock::now() >= when) return true;
  }
}

int monitor(const MonitorCommandFlags& flags) {
  const Query query(flags.query, flags.processes ? MonitorRows::kProcesses : MonitorRows::kCards,
                    parse_csv_form(flags.form));
  if (flags.csv != "-") check_output_file(flags.csv);
  InterruptWatch signals;
  Monitor monitor(flags.processes);
  LineFile file(flags.csv);
  say_no_gpus(monitor.why_not());
  file.write(query.header());
  const int64_t count = flags.interval > 0 ? flags.count : 1;
  const auto interval = std::chrono::duration_cast<Clock::duration>(Seconds(flags.interval));
  Clock::time_point next =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(kFirstPeriod));
  for (int64_t done = 0; count == 0 || done < count; ++done) {
    if (!wait_until(next, signals)) break;
    file.write(query.lines(monitor.read()));
    next = std::max(next + interval, Clock::now());
  }
  return kSuccess;
}

constexpr const char* kMonitorFooter = R"(Examples:
  anneal monitor                                       one sample
  anneal monitor -l 1                                  one each second, until Ctrl-C
  anneal monitor -l 0.1 --count 100 --csv use.csv
  anneal monitor --query timestamp,utilization.gpu,power.draw,utilization.cpu --format csv,nounits
  anneal monitor --processes                           who holds the GPUs
  anneal bench model.engine --monitor use.csv          while a command works

A line for each GPU and sample. Names, units and [N/A] are those of nvidia-smi --query-gpu and
--query-compute-apps. utilization.cpu and memory.cpu.used are of the whole machine. --processes
also lists processes that only have a GPU's device file open.
Exit status: 0 sampled, also if a signal ended it; 2 wrong arguments, or the file cannot be
written.

)";

// At most 100 columns.
std::string wrapped(const std::string& text) {
  constexpr size_t kColumns = 100;
  std::string lines;
  size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; column += word.size() + 1) {
    const bool is_full = column + word.size() > kColumns;
    if (is_full) column = 0;
    lines += (lines.empty() ? "" : is_full ? "\n" : " ") + word;
  }
  return lines;
}

std::string monitor_footer() {
  return kMonitorFooter + wrapped("Fields: " + field_names(MonitorRows::kCards) + ".") + "\n" +
         wrapped("Fields of --processes: " + field_names(MonitorRows::kProcesses) + ".");
}

}  // namespace

void add_monitor_command(CLI::App& application, Action& action) {
  CLI::App* command = application.add_subcommand(
      "monitor", "Sample the use of GPUs and CPU as CSV, as nvidia-smi does");
  auto flags = std::make_shared<MonitorCommandFlags>();
  command->add_option("--csv", flags->csv, "Write to a file (default: standard output)")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_option("--query", flags->query, "Fields of the lines, with commas between them")
      ->type_name("FIELDS")
      ->group(often(help::kFiles));
  command
      ->add_flag("--processes", flags->processes,
                 "A line for each process that holds a GPU, in place of each GPU")
      ->group(often(help::kFiles));
  command
      ->add_option("--format", flags->form, "csv, noheader and nounits, with commas between them")
      ->capture_default_str()
      ->type_name("FORM")
      ->group(often(help::kFiles));
  CLI::Option* const loop = command
                                ->add_option("-l,--loop", flags->interval,
                                             "Seconds between samples (default: one sample)")
                                ->check(between(kLeastMonitorInterval, kMostMonitorInterval))
                                ->type_name("SECONDS")
                                ->group(often(help::kMeasuring));
  command->add_option("--count", flags->count, "Samples to take (default: until Ctrl-C)")
      ->check(at_least(1))
      ->needs(loop)
      ->type_name("N")
      ->group(often(help::kMeasuring));
  command->footer(monitor_footer());
  command->callback([&action, flags] { action = [flags] { return monitor(*flags); }; });
}

}  // namespace anneal
