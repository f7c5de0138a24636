#include "anneal/cli/measure/process_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

[[noreturn]] void fail_system(const char* doing) {
  fail(ErrorCode::kDevice, fmt::format("cannot {}: {}", doing, std::strerror(errno)));
}

// A child process and the pipe its answer comes through. The destructor ends it.
class Child {
 public:
  Child(size_t item, const InterruptWatch& interrupts,
        const std::function<std::vector<std::byte>(size_t)>& work)
      : item_(item) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_system("make a pipe");
    // Buffered output of stdio would be written twice.
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ < 0) {
      close(ends[0]);
      close(ends[1]);
      fail_system("start a process");
    }
    if (pid_ == 0) {
      interrupts.release();
      close(ends[0]);
      run(ends[1], item, work);
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  ~Child() {
    if (fd_ >= 0) close(fd_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  size_t item() const { return item_; }
  int fd() const { return fd_; }
  double seconds() const { return watch_.seconds(); }

  // Whether the child has closed its end.
  bool read_more() {
    std::byte buffer[4096];
    const ssize_t got = read(fd_, buffer, sizeof(buffer));
    if (got < 0) return errno != EINTR && errno != EAGAIN;
    answer_.insert(answer_.end(), buffer, buffer + got);
    return got == 0;
  }
  ItemOutcome finish() {
    ItemOutcome outcome;
    outcome.seconds = seconds();
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      outcome.died =
          fmt::format("the process was ended by signal {} ({}){}", signal, strsignal(signal),
                      signal == SIGKILL ? "; was there enough memory?" : "");
    } else if (WEXITSTATUS(status) != 0) {
      outcome.died = fmt::format("the process ended with status {}", WEXITSTATUS(status));
    } else {
      outcome.answer = std::move(answer_);
    }
    return outcome;
  }

 private:
  [[noreturn]] static void run(int to, size_t item,
                               const std::function<std::vector<std::byte>(size_t)>& work) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    // When memory runs out this process should go, not the one that collects the answers.
    if (FILE* score = std::fopen("/proc/self/oom_score_adj", "w")) {
      std::fputs("1000", score);
      std::fclose(score);
    }
    int status = 1;
    try {
      const std::vector<std::byte> answer = work(item);
      std::span<const std::byte> left = answer;
      while (!left.empty()) {
        const ssize_t written = write(to, left.data(), left.size());
        if (written < 0 && errno != EINTR) break;
        if (written > 0) left = left.subspan(static_cast<size_t>(written));
      }
      status = left.empty() ? 0 : 1;
    } catch (...) {
      // The status says it: work itself reports that an item failed.
    }
    std::fflush(nullptr);
    // Destructors and exit handlers belong to the parent.
    _exit(status);
  }

  size_t item_;
  Stopwatch watch_;
  pid_t pid_ = -1;
  int fd_ = -1;
  std::vector<std::byte> answer_;
};

}  // namespace

void run_in_processes(size_t count, const PoolOptions& options, InterruptWatch& interrupts,
                      const std::function<std::vector<std::byte>(size_t)>& work,
                      const std::function<void(size_t, ItemOutcome)>& done,
                      const std::function<void(size_t finished)>& tick) {
  std::vector<std::unique_ptr<Child>> children;
  std::map<size_t, ItemOutcome> waiting;  // done, but an item before it is not
  size_t started = 0, finished = 0, reported = 0;
  Stopwatch since_tick;

  while (reported < count) {
    while (started < count && children.size() < static_cast<size_t>(std::max(options.jobs, 1)))
      children.push_back(std::make_unique<Child>(started++, interrupts, work));

    std::vector<pollfd> polled = {{interrupts.fd(), POLLIN, 0}};
    for (const auto& child : children) polled.push_back({child->fd(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), 100) < 0 && errno != EINTR) fail_system("wait");
    interrupts.check();

    for (size_t i = 0; i < children.size(); ++i) {
      Child& child = *children[i];
      const bool late =
          options.time_limit_seconds > 0 && child.seconds() > options.time_limit_seconds;
      if (polled[i + 1].revents != 0 && child.read_more()) {
        waiting[child.item()] = child.finish();
      } else if (late) {
        waiting[child.item()] = {
            std::nullopt,
            fmt::format("took more than {:g} s (--time-limit)", options.time_limit_seconds),
            child.seconds()};
      } else {
        continue;
      }
      children[i].reset();
      ++finished;
    }
    std::erase(children, nullptr);

    for (auto next = waiting.find(reported); next != waiting.end(); next = waiting.find(reported)) {
      ItemOutcome outcome = std::move(next->second);
      waiting.erase(next);
      done(reported++, std::move(outcome));
    }
    if (since_tick.seconds() >= 1) {
      since_tick = {};
      tick(finished);
    }
  }
}

}  // namespace anneal
