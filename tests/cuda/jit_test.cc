#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/core/hash/sha256.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "anneal/core/file.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string digest_of(std::string_view text) { return hex(sha256(std::as_bytes(std::span(text)))); }

TEST(Sha256, AnswersOfTheStandard) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The program backwards, and how often that was asked for.
class Backwards final : public Compiler {
 public:
  explicit Backwards(std::string version = "1") : version_(std::move(version)) {}
  std::vector<std::byte> compile(const std::string& program, int architecture) const override {
    ++count;
    if (program.empty()) fail(ErrorCode::kInternal, "nothing to turn round");
    std::vector<std::byte> image{static_cast<std::byte>(architecture)};
    for (auto at = program.rbegin(); at != program.rend(); ++at)
      image.push_back(static_cast<std::byte>(*at));
    return image;
  }
  std::string identity() const override { return "backwards " + version_; }
  mutable std::atomic<int> count = 0;

 private:
  std::string version_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST(CompileOnce, TheKeyIsEverythingThatMatters) {
  const TemporaryFolder folder;
  const Setting cache("ANNEAL_CACHE_DIR", (folder.path() / "made").string());
  const Backwards one("1"), two("2");
  const auto image = compile_once(one, "text", 80);
  EXPECT_EQ(compile_once(one, "text", 80), image);
  EXPECT_EQ(one.count, 1);
  compile_once(one, "text", 90);
  compile_once(one, "text ", 80);
  EXPECT_EQ(one.count, 3);
  compile_once(two, "text", 80);
  EXPECT_EQ(two.count, 1);
  EXPECT_EQ(files_in(folder.path() / "made").size(), 4u);
  EXPECT_EQ(fs::status(folder.path() / "made").permissions(), fs::perms::owner_all);
}

TEST(CompileOnce, ADamagedEntryIsMadeAgain) {
  const TemporaryFolder folder;
  const Setting cache("ANNEAL_CACHE_DIR", folder.path().string());
  const Backwards compiler;
  const auto image = compile_once(compiler, "some text", 80);
  const fs::path entry = files_in(folder.path()).at(0);
  const auto whole = read_file(entry.string());
  const std::string right(reinterpret_cast<const char*>(whole.bytes.data()), whole.bytes.size());
  int compiled = 1;
  for (size_t at = 0; at < right.size(); at += 5) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(at);
      std::string wrong = right;
      wrong[at] = static_cast<char>(wrong[at] ^ 4);
      std::ofstream(entry) << (cut ? right.substr(0, at) : wrong);
      EXPECT_EQ(compile_once(compiler, "some text", 80), image);
      EXPECT_EQ(compiler.count, ++compiled);
    }
  }
  EXPECT_EQ(compile_once(compiler, "some text", 80), image);
  EXPECT_EQ(compiler.count, compiled) << "the entry is whole again";
}

TEST(CompileOnce, AnEntryTellsWhenItWasUsed) {
  const TemporaryFolder folder;
  const Setting cache("ANNEAL_CACHE_DIR", folder.path().string());
  const Backwards compiler;
  compile_once(compiler, "some text", 80);
  const fs::path entry = files_in(folder.path()).at(0);
  const auto long_ago = fs::last_write_time(entry) - std::chrono::hours(24);
  fs::last_write_time(entry, long_ago);
  compile_once(compiler, "some text", 80);
  EXPECT_EQ(compiler.count, 1);
  EXPECT_GT(fs::last_write_time(entry), long_ago + std::chrono::hours(23));
}

TEST(CompileOnce, WorksWithoutAFolder) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  for (const std::string& where :
       {std::string(), (folder.path() / "file" / "cache").string(), std::string("/proc/anneal")}) {
    SCOPED_TRACE(where);
    const Setting cache("ANNEAL_CACHE_DIR", where);
    const Backwards compiler;
    EXPECT_EQ(compile_once(compiler, "ab", 80), compile_once(compiler, "ab", 80));
    EXPECT_EQ(compiler.count, 2);
  }
}

TEST(CompileOnce, FolderOfTheEnvironment) {
  const Setting home("HOME", "/home/somebody");
  {
    const Setting xdg("XDG_CACHE_HOME", "/scratch");
    EXPECT_EQ(cache_folder(), getenv("ANNEAL_CACHE_DIR") != nullptr ? getenv("ANNEAL_CACHE_DIR")
                                                                    : "/scratch/anneal");
    const Setting own("ANNEAL_CACHE_DIR", "/own");
    EXPECT_EQ(cache_folder(), "/own");
  }
  const Setting xdg("XDG_CACHE_HOME", "");
  if (getenv("ANNEAL_CACHE_DIR") == nullptr) {
    EXPECT_EQ(cache_folder(), "/home/somebody/.cache/anneal");
  }
}

TEST(CompileOnce, WritersBesideEachOther) {
  const TemporaryFolder folder;
  const Setting cache("ANNEAL_CACHE_DIR", folder.path().string());
  const Backwards compiler;
  const auto image = Backwards().compile(std::string(100000, 'x') + "y", 86);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        if (compile_once(compiler, std::string(100000, 'x') + "y", 86) != image) ++wrong;
        std::error_code ignored;
        if (round == 5)
          for (const fs::path& file : files_in(folder.path()))
            if (file.extension() == ".image") fs::remove(file, ignored);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(compile_once(compiler, std::string(100000, 'x') + "y", 86), image);
  EXPECT_EQ(files_in(folder.path()).size(), 1u);
}

TEST(CompileOnce, WhatFailsIsNotKept) {
  const TemporaryFolder folder;
  const Setting cache("ANNEAL_CACHE_DIR", folder.path().string());
  const Backwards compiler;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(error_of([&] { compile_once(compiler, "", 80); }), "internal: nothing to turn round");
  EXPECT_EQ(compiler.count, 2);
}

}  // namespace
}  // namespace anneal::cuda
