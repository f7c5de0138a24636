// The state of GPUs and CPU as lines of CSV, once or again and again.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "anneal/cli/monitor/query.h"

namespace anneal {

// Reads samples. One thread at a time.
class Monitor {
 public:
  // proc: where the file system of processes is mounted.
  Monitor(bool with_processes, const cuda::LibraryTable<cuda::Nvml>& nvml = cuda::nvml_library(),
          std::string proc = "/proc");
  // Why the fields of GPUs are not known; empty: they are.
  const std::string& why_not() const { return nvml_.why_not(); }
  MonitorSample read();

 private:
  std::vector<ProcessSample> read_processes(const std::vector<CardSample>& cards) const;

  bool with_processes_;
  std::string proc_;
  NvmlSession nvml_;
  MachineUse machine_;
};

// A file that grows by whole lines: each call is one write, so that a reader, or whoever finds the
// file after a crash, sees no part of a line. "-" is standard output.
class LineFile {
 public:
  // Fails with kCannotWrite; so does write(), but for standard output, which throws system_error.
  explicit LineFile(const std::string& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  void write(std::string_view lines);

 private:
  std::string path_;
  int file_ = -1;
};

// Writes samples to a file on a thread of its own, until it is stopped.
class MonitorThread {
 public:
  MonitorThread(const std::string& path, std::chrono::duration<double> interval);
  ~MonitorThread();
  MonitorThread(const MonitorThread&) = delete;
  MonitorThread& operator=(const MonitorThread&) = delete;

  const std::string& why_not() const { return monitor_.why_not(); }
  // Writes a last sample. Throws what writing threw.
  void stop();

 private:
  void loop();
  void join();

  Query query_;
  Monitor monitor_;
  LineFile file_;
  std::chrono::duration<double> interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::exception_ptr fault_;
  std::thread thread_;
};

}  // namespace anneal
