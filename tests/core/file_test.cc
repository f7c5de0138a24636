// Files are replaced whole or not at all; what is not a file is never replaced by one.
#include "anneal/core/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/files/temporary_folder.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "anneal_file_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  static void write(const std::string& path, std::string_view text) {
    write_file_atomically(path, std::as_bytes(std::span(text)));
  }
  static std::string content(const std::string& path) {
    const FileBytes file = read_file(path);
    return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
  }
  std::string error_of_writing(const std::string& path) const {
    try {
      write(path, "new");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCannotWrite);
      return error.what();
    }
    return "no error";
  }
  ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(File, IsReplaced) {
  write(path("a"), "old");
  write(path("a"), "new");
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(File, LinksAreFollowed) {
  write(path("a"), "old");
  fs::create_symlink("a", path("link"));
  write(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("a")), "new");
}

TEST_F(File, WhatIsNoFileStaysWhatItIs) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  fs::create_symlink("pipe", path("link"));
  write(path("link"), "new");
  std::array<char, 8> got{};
  EXPECT_EQ(read(reader, got.data(), got.size()), 3);
  EXPECT_STREQ(got.data(), "new");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  write("/dev/null", "new");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(files(), 2);
}

TEST_F(File, IsFilledInPieces) {
  const std::vector<std::byte> much(300'000, std::byte{'x'});
  const std::string text = "head";
  fill_file_atomically(path("a"), [&](FileSink& to) {
    EXPECT_TRUE(to.can_rewrite());
    to.write(much);
    to.write(std::as_bytes(std::span(text)));
    to.rewrite(1, std::as_bytes(std::span(text)));
  });
  const std::string found = content(path("a"));
  EXPECT_EQ(found.size(), 300'004U);
  EXPECT_EQ(found.substr(0, 6), "xheadx");
  EXPECT_EQ(found.substr(299'999), "xhead");
  fill_file_atomically("/dev/null", [&](FileSink& to) { EXPECT_FALSE(to.can_rewrite()); });
  const auto fails = [&](FileSink& to) {
    to.write(much);
    fail(ErrorCode::kCancelled, "enough");
  };
  EXPECT_THAT(error_of([&] { fill_file_atomically(path("a"), fails); }), HasSubstr("enough"));
  EXPECT_EQ(content(path("a")), found);
  EXPECT_EQ(files(), 1);
}

TEST_F(File, FailuresLeaveNothing) {
  fs::create_directory(path("folder"));
  EXPECT_THAT(error_of_writing(path("folder")), HasSubstr("is a folder, not a file"));
  EXPECT_THAT(error_of_writing(path("none/a")), HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of_writing("/dev/full"), HasSubstr("No space left on device"));
  EXPECT_EQ(files(), 1);
}

// The process ends while it writes: nothing of the new file stays, the old one is whole.
TEST_F(File, SignalsLeaveNothing) {
  write(path("a"), "old");
  const std::vector<std::byte> much(1 << 20);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);  // the second page raises SIGXFSZ
    std::signal(SIGXFSZ, SIG_DFL);
    write_file_atomically(path("a"), much);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(File, APipeIsReadToItsEnd) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string text(300'000, 'x');  // more than the first buffer
  std::thread writer([&] { std::ofstream(path("pipe")) << text; });
  EXPECT_EQ(content(path("pipe")), text);
  writer.join();
}

TEST_F(File, TemporaryFoldersAreGoneAtTheEnd) {
  std::string made;
  {
    const TemporaryFolder folder("anneal-test");
    made = folder.path();
    EXPECT_TRUE(fs::path(made).is_absolute());
    fs::create_directory(folder.file("inner"));
    write(folder.file("inner/a"), "a");
  }
  EXPECT_FALSE(fs::exists(made));
}

// Also when the process ends by a signal, caught or not.
TEST_F(File, TemporaryFoldersAreGoneAfterSignals) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGKILL}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      const TemporaryFolder folder("anneal-test");
      write(folder.file("a"), "a");
      const std::string& made = folder.path();
      if (::write(ends[1], made.data(), made.size()) < 0) _exit(1);
      for (;;) pause();
    }
    std::string made(4096, '\0');
    made.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], made.data(), made.size()), 0)));
    close(ends[0]);
    close(ends[1]);
    EXPECT_TRUE(fs::exists(made));
    kill(child, signal);
    waitpid(child, nullptr, 0);
    for (int i = 0; i < 1000 && fs::exists(made); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(fs::exists(made)) << strsignal(signal);
  }
}

}  // namespace
}  // namespace anneal
