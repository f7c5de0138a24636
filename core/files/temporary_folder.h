// TemporaryFolder: a folder for files that shall not outlive the work, nor the process.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

namespace anneal {

// A new folder in TMPDIR, or /tmp, for this user alone. The destructor removes it with all that is
// in it. If the process ends before, by any signal, a small process that waits for that removes it.
class TemporaryFolder {
 public:
  // Fails with kCannotWrite. prefix: of the folder's name.
  explicit TemporaryFolder(std::string_view prefix = "anneal");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }  // absolute
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  void start_watcher();

  std::string path_;
  int to_watcher_ = -1;  // closed by the end of the process, which the watcher sees
  pid_t watcher_ = 0;
};

}  // namespace anneal
