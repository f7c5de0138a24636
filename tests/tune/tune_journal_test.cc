#include "anneal/engine/tune/search/tune_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "anneal/tests/error_of.h"

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
  again.forget();
  EXPECT_EQ(again.known("a"), nullptr);
  again.remember("b", "2");
  EXPECT_EQ(TuneJournal(path_, "model 1").known("a"), nullptr);
  EXPECT_EQ(*TuneJournal(path_, "model 1").known("b"), "2");
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

// A line with a changed byte is not trusted, nor are later lines.
TEST_F(TuneJournalTest, DamageEndsWhatCounts) {
  {
    TuneJournal journal(path_, "s");
    journal.remember("a", "11");
    journal.remember("b", "22");
    journal.remember("c", "33");
  }
  std::string text = contents();
  text[text.find("22")] = '9';
  std::ofstream(path_, std::ios::trunc) << text;
  TuneJournal journal(path_, "s");
  EXPECT_EQ(*journal.known("a"), "11");
  EXPECT_EQ(journal.known("b"), nullptr);
  EXPECT_EQ(journal.known("c"), nullptr);
}

// Nothing of another's is lost, and nothing is written before there is something to remember.
TEST_F(TuneJournalTest, AFileThatIsNoJournalIsRefusedAndLeft) {
  for (const char* text : {"\n", "[1]\n", "{\"form\":7}\n", "my notes", "{}\n{}\n"}) {
    std::ofstream(path_, std::ios::trunc) << text;
    EXPECT_THAT(error_of([&] { TuneJournal(path_, "s"); }), testing::HasSubstr("move it away"));
    EXPECT_EQ(contents(), text);
  }
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_THAT(error_of([&] { TuneJournal(path_, "s"); }), testing::HasSubstr("move it away"));
  fs::remove(path_);
  EXPECT_FALSE(TuneJournal(path_, "s").was_resumed());
  EXPECT_FALSE(fs::exists(path_));
}

}  // namespace
}  // namespace anneal
