#include "anneal/cli/check/test_cases.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "anneal/cli/check/unpacked_archive.h"
#include "anneal/core/fail.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    std::string path = (fs::temp_directory_path() / "anneal-test-XXXXXX").string();
    root_ = mkdtemp(path.data());
  }
  ~Folder() override { fs::remove_all(root_); }
  void touch(const std::string& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "x";
  }
  std::vector<std::string> names(const std::string& path = "") {
    std::vector<std::string> found;
    for (const TestCase& test : find_test_cases((root_ / path).string()))
      found.push_back(test.name);
    return found;
  }
  fs::path root_;
};

template <class F>
std::string refusal(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class FindTestCases : public Folder {};

TEST_F(FindTestCases, FoldersAtAnyDepthAndModelsWithOutputsBesideThem) {
  for (const char* path :
       {"b/model.onnx", "b/test_data_set_0/output_0.pb", "b/test_data_set_0/input_0.pb",
        "a/deep/down/model.onnx", "a/deep/down/test_data_set_0/output_0.pb", "a/other/only.onnx",
        "a/other/test_data_set_0/output_0.pb", "light/net.onnx", "light/net_output_0.pb",
        "light/net_output_1.pb", "light/bare.onnx", "no_sets/model.onnx",
        "no_model/test_data_set_0/output_0.pb", "real/data.json"})
    touch(path);
  EXPECT_THAT(names(), ElementsAre("a/deep/down", "a/other", "b", "light/net"));
  EXPECT_THAT(names("a"), ElementsAre("deep/down", "other"));
  EXPECT_THAT(names("b"), ElementsAre("b"));
  EXPECT_THAT(names("b/"), ElementsAre("b"));
  EXPECT_THAT(names("b/model.onnx"), ElementsAre("model"));
  EXPECT_THAT(names("light/net.onnx"), ElementsAre("net"));
  EXPECT_THAT(names("light/bare.onnx"), ElementsAre());
  const auto light = find_test_cases((root_ / "light").string()).at(0);
  EXPECT_TRUE(light.sets.at(0).inputs.empty());
  EXPECT_EQ(light.sets.at(0).outputs.size(), 2u);
}

TEST_F(FindTestCases, SetsAndFilesAreInTheOrderOfTheirNumbers) {
  touch("model.onnx");
  for (int i = 0; i < 12; ++i) {
    touch("test_data_set_" + std::to_string(i) + "/output_0.pb");
    touch("test_data_set_0/input_" + std::to_string(i) + ".pb");
  }
  touch("test_data_set_0/input_x.pb");
  const auto found = find_test_cases(root_.string()).at(0);
  ASSERT_EQ(found.sets.size(), 12u);
  EXPECT_EQ(found.sets[2].name, "test_data_set_2");
  EXPECT_EQ(found.sets[10].name, "test_data_set_10");
  ASSERT_EQ(found.sets[0].inputs.size(), 12u);
  EXPECT_THAT(found.sets[0].inputs[2], HasSubstr("input_2.pb"));
}

TEST_F(FindTestCases, Refusals) {
  EXPECT_THAT(refusal([&] { names("missing"); }), HasSubstr("no such file"));
  touch("c/model.onnx");
  touch("c/test_data_set_0/input_1.pb");
  EXPECT_THAT(refusal([&] { names(); }), HasSubstr("none for input_0"));
}

TEST_F(FindTestCases, LinksAreNotFollowed) {
  touch("a/model.onnx");
  touch("a/test_data_set_0/output_0.pb");
  fs::create_directory_symlink(root_, root_ / "a_loop");
  EXPECT_THAT(names(), ElementsAre("a"));
}

class Archive : public Folder {
 protected:
  InterruptWatch interrupts_;

  // name, and the target if it is a symbolic link
  std::string write(const std::vector<std::pair<std::string, std::string>>& members) {
    std::string path = (root_ / "a.tar.zst").string();
    archive* out = archive_write_new();
    archive_write_add_filter_zstd(out);
    archive_write_set_format_pax_restricted(out);
    archive_write_open_filename(out, path.c_str());
    for (const auto& [name, target] : members) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, name.c_str());
      archive_entry_set_filetype(entry, target.empty() ? AE_IFREG : AE_IFLNK);
      if (!target.empty()) archive_entry_set_symlink(entry, target.c_str());
      archive_entry_set_perm(entry, 0644);
      archive_entry_set_size(entry, target.empty() ? 3 : 0);
      archive_write_header(out, entry);
      if (target.empty()) archive_write_data(out, "abc", 3);
      archive_entry_free(entry);
    }
    archive_write_close(out);
    archive_write_free(out);
    return path;
  }
};

TEST_F(Archive, IsUnpackedPrivatelyAndRemoved) {
  std::string root;
  {
    const UnpackedArchive archive(
        write({{"top/a/model.onnx", ""}, {"top/a/test_data_set_0/output_0.pb", ""}}), interrupts_);
    root = archive.root();
    EXPECT_EQ(fs::path(root).filename(), "top");
    EXPECT_EQ(fs::file_size(root + "/a/model.onnx"), 3u);
    EXPECT_EQ(fs::status(fs::path(root).parent_path()).permissions(), fs::perms::owner_all);
    EXPECT_EQ(find_test_cases(root).at(0).name, "a");
  }
  EXPECT_FALSE(fs::exists(root));
}

TEST_F(Archive, MembersThatLeaveItAreRefused) {
  const struct {
    std::string name, target, reason;
  } cases[] = {
      {"../evil", "", "leaves the archive"},
      {"a/../../evil", "", "leaves the archive"},
      {"/tmp/evil-anneal", "", "absolute"},
      {"a/link", "/etc/passwd", "neither a file nor a folder"},
  };
  for (const auto& test : cases)
    EXPECT_THAT(refusal([&] {
                  UnpackedArchive(write({{test.name, test.target}}), interrupts_);
                }),
                HasSubstr(test.reason));
  EXPECT_FALSE(fs::exists("/tmp/evil-anneal"));
}

TEST_F(Archive, OtherBytesAreRefused) {
  for (const std::string bytes : {"", "x", "\xff\xd8\xff\xe0 a picture, not an archive at all"}) {
    std::ofstream(root_ / "b.tar.zst") << bytes;
    const std::string why =
        refusal([&] { UnpackedArchive((root_ / "b.tar.zst").string(), interrupts_); });
    if (bytes.empty()) continue;  // an empty archive to libarchive
    EXPECT_THAT(why, HasSubstr("no .tar archive")) << bytes;
  }
  const std::string path = write({{"a", ""}, {"b", ""}});
  fs::resize_file(path, fs::file_size(path) - 20);
  EXPECT_NE(refusal([&] { UnpackedArchive(path, interrupts_); }), "accepted");
  EXPECT_NE(refusal([&] { UnpackedArchive((root_ / "missing.tar").string(), interrupts_); }),
            "accepted");
}

}  // namespace
}  // namespace anneal
