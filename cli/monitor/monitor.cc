#include "anneal/cli/monitor/monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "anneal/cli/monitor/device_holders.h"
#include "anneal/cli/output/errors.h"

namespace anneal {

Monitor::Monitor(bool with_processes, const cuda::LibraryTable<cuda::Nvml>& nvml, std::string proc)
    : with_processes_(with_processes), proc_(std::move(proc)), nvml_(nvml), machine_(proc_) {}

MonitorSample Monitor::read() {
  MonitorSample sample;
  sample.time = std::chrono::system_clock::now();
  sample.machine = machine_.read();
  sample.driver_version = nvml_.driver_version();
  for (size_t i = 0; i < nvml_.card_count(); ++i) sample.cards.push_back(nvml_.read(i));
  if (with_processes_) sample.processes = read_processes(sample.cards);
  return sample;
}

std::vector<ProcessSample> Monitor::read_processes(const std::vector<CardSample>& cards) const {
  std::vector<ProcessSample> found;
  std::set<std::pair<int, std::optional<unsigned>>> computing;  // process and minor number
  std::set<int> on_a_card;
  for (size_t i = 0; i < cards.size(); ++i) {
    for (const CardProcess& process : nvml_.processes(i)) {
      found.push_back(
          {cards[i], process.pid, process_name(process.pid, proc_), "compute", process.used_bytes});
      computing.insert({process.pid, cards[i].minor});
      on_a_card.insert(process.pid);
    }
  }
  const std::vector<DeviceHolder> holders = device_holders(proc_);
  for (const DeviceHolder& holder : holders)
    if (holder.minor) on_a_card.insert(holder.pid);
  for (const DeviceHolder& holder : holders) {
    // NVML opens the device files in this process, too. Who has a card has /dev/nvidia-uvm with it.
    const bool is_told = holder.minor ? computing.contains({holder.pid, holder.minor})
                                      : on_a_card.contains(holder.pid);
    if (holder.pid == getpid() || is_told) continue;
    const auto card = std::ranges::find_if(
        cards, [&](const CardSample& each) { return holder.minor && each.minor == holder.minor; });
    found.push_back({card == cards.end() ? CardSample{} : *card,
                     holder.pid,
                     process_name(holder.pid, proc_),
                     holder.file,
                     {}});
  }
  return found;
}

LineFile::LineFile(const std::string& path) : path_(path) {
  if (path == "-") {
    file_ = STDOUT_FILENO;
    return;
  }
  constexpr mode_t kReadable = 0666;  // less what umask takes
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kReadable);
  if (file_ < 0)
    fail(ErrorCode::kCannotWrite,
         fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

LineFile::~LineFile() {
  if (path_ != "-") close(file_);
}

void LineFile::write(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = ::write(file_, lines.data(), lines.size());
    if (written >= 0) {
      lines.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (path_ == "-")
      throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
    fail(ErrorCode::kCannotWrite,
         fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  }
}

MonitorThread::MonitorThread(const std::string& path, std::chrono::duration<double> interval)
    : query_({}, MonitorRows::kCards), monitor_(false), file_(path), interval_(interval) {
  file_.write(query_.header());
  // Signals are for the threads of the command.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MonitorThread::~MonitorThread() { join(); }

void MonitorThread::loop() {
  try {
    using Clock = std::chrono::steady_clock;
    Clock::time_point next = Clock::now();
    for (bool is_last = false; !is_last;) {
      next += std::chrono::duration_cast<Clock::duration>(interval_);
      next = std::max(next, Clock::now());
      {
        std::unique_lock lock(mutex_);
        is_last = changed_.wait_until(lock, next, [&] { return stopping_; });
      }
      file_.write(query_.lines(monitor_.read()));
    }
  } catch (...) {
    fault_ = std::current_exception();
  }
}

void MonitorThread::join() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MonitorThread::stop() {
  join();
  if (fault_) std::rethrow_exception(fault_);
}

}  // namespace anneal
