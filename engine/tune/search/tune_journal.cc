#include "anneal/engine/tune/search/tune_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kForm = "anneal tuning 1";

[[noreturn]] void fail_to(const std::string& what, const std::string& path) {
  fail(ErrorCode::kCannotWrite, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

void write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to("write", path);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// A checksum, so that a damaged line is not trusted.
std::string sum_of(std::string_view name, std::string_view text) {
  const auto bytes = [](std::string_view of) { return std::as_bytes(std::span(of)); };
  return fmt::format("{:016x}", hash_bytes(bytes(text), hash_bytes(bytes(name))));
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The findings of a file about the subject; `whole` gets the number of bytes that they take.
bool read_findings(const std::string& path, std::string_view subject,
                   std::map<std::string, std::string, std::less<>>& found, size_t& whole) {
  namespace fs = std::filesystem;
  const auto refuse = [&] {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is not a tuning journal, but has the name of one: move it away", path));
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return false;
  if (!fs::is_regular_file(status)) refuse();
  const FileBytes file = read_file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  bool is_first = true;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const Json line = Json::parse(text.substr(0, end), nullptr, false);
    if (!line.is_object()) break;  // damaged: only the lines before it are read
    const auto member = [&](const char* key) {
      const auto at = line.find(key);
      return at != line.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (is_first) {
      if (member("form") != kForm) refuse();
      if (member("subject") != subject) return false;
    } else {
      if (member("sum") != sum_of(member("name"), member("text"))) break;
      found[member("name")] = member("text");
    }
    is_first = false;
    whole += end + 1;
  }
  // The first line may have been cut off.
  const std::string begin = R"({"form":")" + std::string(kForm);
  if (is_first && text.substr(0, begin.size()) != std::string_view(begin).substr(0, text.size()))
    refuse();
  return !is_first;
}

}  // namespace

TuneJournal::TuneJournal(std::string path, std::string_view subject)
    : path_(std::move(path)), subject_(subject) {
  was_resumed_ = read_findings(path_, subject_, found_, whole_);
}

void TuneJournal::open() {
  if (file_ >= 0 || path_.empty()) return;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(whole_)) != 0) fail_to("write", path_);
  if (whole_ == 0) write_all(file_, line_of({{"form", kForm}, {"subject", subject_}}), path_);
}

void TuneJournal::forget() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  found_.clear();
  whole_ = 0;
  was_resumed_ = false;
}

TuneJournal::~TuneJournal() {
  if (file_ >= 0) ::close(file_);
}

TuneJournal::TuneJournal(TuneJournal&& other) noexcept
    : path_(std::move(other.path_)),
      subject_(std::move(other.subject_)),
      file_(std::exchange(other.file_, -1)),
      whole_(other.whole_),
      was_resumed_(other.was_resumed_),
      found_(std::move(other.found_)) {}

const std::string* TuneJournal::known(const std::string& name) const {
  const auto found = found_.find(name);
  return found == found_.end() ? nullptr : &found->second;
}

void TuneJournal::remember(const std::string& name, std::string text) {
  open();
  if (file_ >= 0)
    write_all(file_, line_of({{"name", name}, {"sum", sum_of(name, text)}, {"text", text}}), path_);
  found_[name] = std::move(text);
}

std::string TuneJournal::once(const std::string& name, const std::function<std::string()>& find) {
  if (const std::string* text = known(name)) return *text;
  std::string text = find();
  remember(name, text);
  return text;
}

}  // namespace anneal
