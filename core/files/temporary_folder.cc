#include "anneal/core/files/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

// The input ends when the process does. Child processes may still write into the folder for a
// while.
constexpr const char* kWatch =
    "read -r line; cd /; for i in 1 2 3 4 5; do rm -rf -- \"$1\"; [ -e \"$1\" ] || exit; sleep 1; "
    "done";

}  // namespace

TemporaryFolder::TemporaryFolder(std::string_view prefix) {
  const char* const chosen = std::getenv("TMPDIR");
  std::error_code error;
  std::filesystem::path in = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  in = std::filesystem::absolute(in, error);
  path_ = (in / prefix).string() + "-XXXXXX";
  if (error || mkdtemp(path_.data()) == nullptr)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot make a folder {}: {}: name another place in TMPDIR", path_,
                     error ? error.message() : std::strerror(errno)));
  start_watcher();
}

// Where there is no shell, the folder may outlive the process.
void TemporaryFolder::start_watcher() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  std::string shell = "/bin/sh", option = "-c", script = kWatch;
  char* const arguments[] = {shell.data(), option.data(), script.data(),
                             shell.data(), path_.data(),  nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
  // Who reads this process's output shall not wait for the watcher.
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
  // A session of its own, and signals that wait: what ends this process and its group does not end
  // the watcher.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t waiting;
  sigemptyset(&waiting);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&waiting, signal);
  posix_spawnattr_setsigmask(&attributes, &waiting);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  const int error = posix_spawn(&watcher_, arguments[0], &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[0]);
  if (error == 0) {
    to_watcher_ = ends[1];
  } else {
    watcher_ = 0;
    close(ends[1]);
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (watcher_ == 0) return;
  kill(watcher_, SIGKILL);
  close(to_watcher_);
  while (waitpid(watcher_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace anneal
