#include "anneal/engine/tune/tune_journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace anneal {
namespace {

namespace fs = std::filesystem;

class TuneJournalTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  std::string contents() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  const std::string path_ =
      (fs::temp_directory_path() / ("anneal_journal_" + std::to_string(::getpid()))).string();
};

TEST_F(TuneJournalTest, FindsOnceAndGoesOnAfterAnEnd) {
  int searches = 0;
  const auto find = [&] {
    ++searches;
    return std::string("line 1\nline \"2\" \x01 \xc3\xa9");
  };
  {
    TuneJournal journal(path_, "model 1");
    EXPECT_FALSE(journal.was_resumed());
    EXPECT_EQ(journal.once("a", find), find());
    EXPECT_EQ(journal.once("a", find), find());
  }
  searches = 0;
  TuneJournal again(path_, "model 1");
  EXPECT_TRUE(again.was_resumed());
  const std::string text = again.once("a", find);
  EXPECT_EQ(searches, 0);
  EXPECT_EQ(text, find());
  EXPECT_EQ(again.known("b"), nullptr);
  again.remove();
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_NE(again.known("a"), nullptr);
}

TEST_F(TuneJournalTest, AnotherSubjectBeginsAnew) {
  TuneJournal(path_, "model 1").remember("a", "1");
  TuneJournal other(path_, "model 2");
  EXPECT_FALSE(other.was_resumed());
  EXPECT_EQ(other.known("a"), nullptr);
}

// Wherever it is cut off, what is whole counts, and what follows is read again.
TEST_F(TuneJournalTest, EveryCutIsGoneOnFrom) {
  {
    TuneJournal journal(path_, "s");
    journal.remember("a", "1");
    journal.remember("b", "2");
  }
  const std::string whole = contents();
  for (size_t length = 0; length <= whole.size(); ++length) {
    std::ofstream(path_, std::ios::trunc) << whole.substr(0, length);
    {
      TuneJournal journal(path_, "s");
      EXPECT_EQ(journal.once("a", [] { return std::string("1"); }), "1");
      EXPECT_EQ(journal.once("b", [] { return std::string("2"); }), "2");
    }
    EXPECT_EQ(contents(), whole) << "cut at " << length;
  }
}

TEST_F(TuneJournalTest, RubbishIsNoJournal) {
  for (const char* text : {"", "\n", "[1]\n", "{\"form\":7}\n", "\x7f\x00ELF", "{}\n{}\n"}) {
    std::ofstream(path_, std::ios::trunc) << text;
    TuneJournal journal(path_, "s");
    EXPECT_FALSE(journal.was_resumed());
    journal.remember("a", "1");
  }
  EXPECT_TRUE(TuneJournal(path_, "s").was_resumed());
}

}  // namespace
}  // namespace anneal
