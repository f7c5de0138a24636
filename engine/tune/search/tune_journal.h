// What tuning has measured so far, so that it goes on after a kill with what it had.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace anneal {

// Findings by name, each a line of a file that is appended to: a kill loses the one under way. Not
// thread-safe.
class TuneJournal {
 public:
  // In memory alone.
  TuneJournal() = default;
  // subject: what all findings depend on. A file of another subject, or none of ours, is begun
  // anew; a last line that was cut off is dropped. Fails with kIo.
  TuneJournal(std::string path, std::string_view subject);
  ~TuneJournal();
  TuneJournal(TuneJournal&&) noexcept;
  TuneJournal& operator=(TuneJournal&&) = delete;

  bool was_resumed() const { return was_resumed_; }
  // What `find` gave under this name, now or in an earlier run. Text may hold anything but '\0'.
  std::string once(const std::string& name, const std::function<std::string()>& find);
  const std::string* known(const std::string& name) const;  // null: not yet
  void remember(const std::string& name, std::string text);
  void forget();  // everything, for what it was found with turned out to be something else

 private:
  void open();

  std::string path_, subject_;
  int file_ = -1;
  size_t whole_ = 0;  // bytes of the file that count
  bool was_resumed_ = false;
  std::map<std::string, std::string, std::less<>> found_;
};

}  // namespace anneal
