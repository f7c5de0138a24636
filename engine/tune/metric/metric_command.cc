// A metric that a command of the user's computes: a folder of files in, a number out.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/files/temporary_folder.h"
#include "anneal/engine/data/npy.h"
#include "anneal/engine/tune/metric/metric.h"

namespace anneal {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

[[noreturn]] void fail_system(const char* doing, int error) {
  fail(ErrorCode::kDevice,
       fmt::format("cannot {} for the metric's command: {}", doing, std::strerror(error)));
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot write {} for the metric's command: is there space? TMPDIR "
                     "names another place",
                     path));
}

void write_line(const std::string& path, std::string line) {
  line += '\n';
  write_file(path, std::as_bytes(std::span(line)));
}

// The outputs' names as those of files.
std::vector<std::string> file_names(std::span<const std::string> names) {
  std::set<std::string> taken;
  std::vector<std::string> files;
  for (std::string name : names) {
    for (char& c : name) {
      const bool is_kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
      if (!is_kept) c = '_';
    }
    std::string free = name;
    for (int i = 2; !taken.insert(free).second; ++i) free = fmt::format("{}_{}", name, i);
    files.push_back(std::move(free));
  }
  return files;
}

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot make the folder {}: {}", path, std::strerror(errno)));
}

void write_answer(const Answer& answer, const std::string& folder) {
  check(answer.reference.size() == answer.outputs.size(), "a reference was wanted");
  const std::string reference = folder + "/reference";
  make_folder(reference);
  const auto files = file_names(answer.names);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string file = fmt::format("/{}.npy", files[i]);
    write_file(folder + file, write_npy(answer.outputs[i].view()));
    write_file(reference + file, write_npy(answer.reference[i].view()));
  }
  write_line(folder + "/sample.txt", std::string(answer.sample));
  if (answer.label) write_line(folder + "/label.txt", std::to_string(*answer.label));
  if (answer.mask) {
    make_folder(folder + "/mask");
    write_file(folder + "/mask/classes.npy", write_npy(answer.mask->view()));
  }
}

struct Ending {
  std::string printed;
  bool is_cut = false;  // it printed more
  int status = 0;       // as waitpid() gives it
};

// Runs `COMMAND FOLDER` in a shell, with nothing to read and with this process's stderr.
Ending run(const std::string& command, std::string folder) {
  constexpr size_t kMostPrinted = 4096;
  std::string printed(kMostPrinted + 1, '\0');
  std::string shell = "/bin/sh", option = "-c", script = command + " \"$1\"";
  char* const arguments[] = {shell.data(), option.data(), script.data(),
                             shell.data(), folder.data(), nullptr};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system("make a pipe", errno);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // Signals as a shell expects them, whatever this process and this thread do with them.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t id = 0;
  const int error = posix_spawn(&id, arguments[0], &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    fail_system("start a shell", error);
  }

  size_t size = 0;
  while (size < printed.size()) {
    const ssize_t got = read(ends[0], printed.data() + size, printed.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  // A command that prints on and on is ended by this.
  close(ends[0]);
  Ending ending;
  pid_t ended = 0;
  do ended = waitpid(id, &ending.status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended < 0) fail_system("learn the status", errno);  // SIGCHLD is ignored
  ending.is_cut = size > kMostPrinted;
  printed.resize(std::min(size, kMostPrinted));
  ending.printed = std::move(printed);
  return ending;
}

// nullopt: it is no number, or more.
std::optional<double> number(std::string_view text) {
  const std::string_view digits = trimmed(text);
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || at != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string quote(std::string_view text) {
  constexpr size_t kMost = 200;
  text = trimmed(text);
  if (text.empty()) return "nothing";
  std::string line =
      fmt::format("\"{}\"{}", text.substr(0, kMost), text.size() > kMost ? " and more" : "");
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  return line;
}

std::string described(int status) {
  const auto signal = [](int number) {
    return fmt::format("signal {} ({})", number, strsignal(number));
  };
  if (WIFSIGNALED(status)) return "was ended by " + signal(WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  // A shell reports the signal that ended its command in this way.
  if (code > 128 && code - 128 < NSIG)
    return fmt::format("ended with status {}, by {}", code, signal(code - 128));
  return fmt::format("ended with status {}", code);
}

double judge_by(const std::string& command, const Answer& answer) {
  const TemporaryFolder folder("anneal-metric");
  write_answer(answer, folder.path());
  const Ending ending = run(command, folder.path());
  const auto value = ending.is_cut ? std::nullopt : number(ending.printed);
  if (ending.status != 0 || !value)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the metric's command \"{}\" {} for the sample \"{}\" and printed {}; it is "
                     "to print one finite number to stdout and to end with status 0",
                     command, described(ending.status), answer.sample, quote(ending.printed)));
  return *value;
}

}  // namespace

std::shared_ptr<const Metric> command_metric(std::string command) {
  return at_entry([&] {
    command = trimmed(command);
    if (command.empty())
      fail(ErrorCode::kInvalidArgument,
           "the metric's command is empty; it is called with a folder and prints a number");
    return mean_metric(
        "command", "",
        [command = std::move(command)](const Answer& answer) { return judge_by(command, answer); },
        true, true);
  });
}

}  // namespace anneal
