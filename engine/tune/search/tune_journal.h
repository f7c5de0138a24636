// TuneJournal: the findings of tuning in a file, so that it can resume after a kill.
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
  // subject: a text of everything that the findings depend on. A file of another subject, or none
  // of ours, is begun anew; a last line that was cut off is dropped. Fails with kIo.
  TuneJournal(std::string path, std::string_view subject);
  ~TuneJournal();
  TuneJournal(TuneJournal&&) noexcept;
  TuneJournal& operator=(TuneJournal&&) = delete;

  bool was_resumed() const { return was_resumed_; }
  // The result of `find` under this name, of now or of an earlier run. The text has no '\0'.
  std::string once(const std::string& name, const std::function<std::string()>& find);
  const std::string* known(const std::string& name) const;  // null: not yet
  void remember(const std::string& name, std::string text);
  void forget();  // everything: the findings belong to other data or another metric

 private:
  void open();

  std::string path_, subject_;
  int file_ = -1;
  size_t whole_ = 0;  // bytes of the file that count
  bool was_resumed_ = false;
  std::map<std::string, std::string, std::less<>> found_;
};

}  // namespace anneal
