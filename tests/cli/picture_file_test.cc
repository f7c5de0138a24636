#include "anneal/cli/output/picture_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/text_file.h"

namespace anneal {
namespace {

constexpr const char* kPicture =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"30\" height=\"20\">"
    "<rect width=\"30\" height=\"20\" fill=\"#ff0000\"/></svg>\n";

class PictureFile : public testing::Test {
 protected:
  PictureFile() {
    std::string name = (std::filesystem::temp_directory_path() / "anneal-picture-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make a folder";
    folder_ = name;
  }
  ~PictureFile() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

std::optional<ErrorCode> error_of(const std::string& path, const std::string& svg) {
  try {
    write_picture(path, svg);
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

// Width or height: four bytes of the header, the first of most weight.
int png_number(const std::string& png, size_t at) {
  int number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<unsigned char>(png[at + i]);
  return number;
}

TEST_F(PictureFile, WritesAnSvgAsItIs) {
  write_picture(path("a.svg"), kPicture);
  EXPECT_EQ(read_text(path("a.svg")), kPicture);
}

TEST_F(PictureFile, MakesAPngOfTwiceTheSize) {
  write_picture(path("a.png"), kPicture);
  const std::string png = read_text(path("a.png"));
  ASSERT_GT(png.size(), 24u);
  EXPECT_EQ(png.substr(1, 3), "PNG");
  EXPECT_EQ(png_number(png, 16), 60);
  EXPECT_EQ(png_number(png, 20), 40);
}

TEST_F(PictureFile, LeavesNoFileForWhatIsNoPicture) {
  EXPECT_EQ(error_of(path("a.png"), "<svg"), ErrorCode::kIo);
  EXPECT_FALSE(std::filesystem::exists(path("a.png")));
}

TEST_F(PictureFile, NamesThePackageOfAMissingConverter) {
  const std::string before = std::getenv("PATH");
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(error_of(path("a.png"), kPicture), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of(path("a.svg"), kPicture), std::nullopt);
  setenv("PATH", before.c_str(), 1);
}

TEST_F(PictureFile, RefusesOtherEndings) {
  EXPECT_NO_THROW(check_picture_path("", "--picture"));
  EXPECT_NO_THROW(check_picture_path(path("a.png"), "--picture"));
  EXPECT_THROW(check_picture_path(path("a.jpg"), "--picture"), Error);
  EXPECT_THROW(check_picture_path(path("missing/a.svg"), "--picture"), Error);
}

}  // namespace
}  // namespace anneal
