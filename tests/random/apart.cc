#include "anneal/tests/random/apart.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace anneal::random_graphs {

Ended run_apart(const std::function<std::string()>& work, int seconds) {
  int ends[2];
  if (pipe(ends) != 0) return {false, "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(static_cast<unsigned>(seconds));
    const std::string text = work();
    for (size_t at = 0; at < text.size();) {
      const ssize_t wrote = write(ends[1], text.data() + at, text.size() - at);
      if (wrote <= 0) _exit(1);
      at += static_cast<size_t>(wrote);
    }
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  char buffer[4096];
  for (ssize_t got = read(ends[0], buffer, sizeof buffer); got > 0;
       got = read(ends[0], buffer, sizeof buffer))
    ended.text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return {false, "no process"};
  ended.whole = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!ended.whole)
    ended.text = WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM
                                           ? fmt::format("hangs: {} seconds are over", seconds)
                                           : fmt::format("crash: {}", strsignal(WTERMSIG(status)))
                                     : fmt::format("ends with status {}", WEXITSTATUS(status));
  return ended;
}

}  // namespace anneal::random_graphs
