// Files that are no models, damaged ones, and external data that tries to leave its folder.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("anneal_model_file_" + std::to_string(getpid()));
    fs::create_directories(folder_ / "model");
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, std::string_view content) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::string write(const std::string& name, const std::vector<std::byte>& bytes) {
    return write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  fs::path folder_;
};

ModelBuilder small_model() {
  ModelBuilder model;
  model.input("x", {"N", "2"}).floats("w", {2}, {1, 2}).output("y");
  model.node("Add", {"x", "w"}, {"sum"}, "add");
  model.node("Relu", {"sum"}, {"y"}, "relu");
  return model;
}

TEST_F(ModelFile, ReadsAModel) {
  ModelBuilder model = small_model();
  model.model.set_producer_name("tests");
  const ImportResult imported = import_file(write("ok.onnx", model.bytes()));
  EXPECT_EQ(imported.info.producer, "tests");
  EXPECT_EQ(imported.info.opset, 17);
  EXPECT_EQ(imported.info.graph_name, "test");
  EXPECT_EQ(imported.graph.layer_count(), 2U);
}

TEST_F(ModelFile, FilesThatAreNoModels) {
  struct Case {
    std::string_view content;
    const char* error;
  };
  const Case cases[] = {
      {"", "not an ONNX model: the file is empty"},
      {std::string_view("\xff\xd8\xff\xe0\x00\x10JFIF", 10), "it is a JPEG picture"},
      {"PK\x03\x04 archive", "a zip archive"},
      {"\x89"
       "ANNEAL\n",
       "it is an engine that Anneal has built already"},
      {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
      {"just some text\n", "it is text"},
      {"\x01\x02\x03\x04", "not an ONNX model"},
  };
  for (const Case& wrong : cases) {
    const std::string path = write("wrong.onnx", wrong.content);
    const std::string error = error_of([&] { import_file(path); });
    EXPECT_THAT(error, HasSubstr("invalid_model: " + path));
    EXPECT_THAT(error, HasSubstr(wrong.error));
  }
  EXPECT_THAT(
      error_of([&] { import_file(folder_ / "absent.onnx"); }),
      HasSubstr("io: cannot open " + (folder_ / "absent.onnx").string() + ": No such file"));
  EXPECT_THAT(error_of([&] { import_file(folder_); }), HasSubstr("not a file"));
}

TEST_F(ModelFile, EveryTruncationAndManyFlips) {
  ModelBuilder model = small_model();
  const auto bytes = model.bytes();
  // Whatever happens, it is a success or an Error.
  const auto survives = [](std::span<const std::byte> damaged) {
    try {
      import_bytes(damaged, "");
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  };
  for (size_t size = 0; size < bytes.size(); ++size) survives(std::span(bytes).first(size));
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    auto damaged = bytes;
    for (unsigned flips = random() % 3 + 1; flips > 0; --flips)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    survives(damaged);
  }
}

void make_external(ModelBuilder& model, const std::string& location, const std::string& offset,
                   const std::string& length) {
  auto* tensor = model.graph().mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_data_location(anneal_onnx::TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", location);
  add("offset", offset);
  add("length", length);
}

TEST_F(ModelFile, ExternalDataInsideTheFolder) {
  fs::create_directories(folder_ / "model/sub");
  const float values[] = {0, 5, 6};
  write("model/sub/data", std::string_view(reinterpret_cast<const char*>(values), sizeof(values)));
  for (const char* location : {"sub/data", "./sub//data"}) {
    ModelBuilder model = small_model();
    make_external(model, location, "4", "8");
    const ImportResult imported = import_file(write("model/m.onnx", model.bytes()));
    const Tensor* w = imported.graph.constant(imported.graph.find_value("w"));
    ASSERT_NE(w, nullptr);
    EXPECT_THAT(w->as<float>(), testing::ElementsAre(5, 6));
  }
}

// Large data is mapped where its elements are aligned; the file may go once it is.
TEST_F(ModelFile, LargeExternalData) {
  constexpr int64_t kCount = 300'000;
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  const std::string bytes(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  for (const size_t offset : {0, 2, 4, 4096, 5000}) {
    SCOPED_TRACE(offset);
    const std::string data = write("model/data", std::string(offset, 'x') + bytes);
    ModelBuilder model;
    model.input("x", {"N", std::to_string(kCount)}).floats("w", {kCount}, {}).output("y");
    model.node("Add", {"x", "w"}, {"y"});
    make_external(model, "data", std::to_string(offset), "");
    const ImportResult imported = import_file(write("model/m.onnx", model.bytes()));
    fs::remove(data);
    const Tensor* w = imported.graph.constant(imported.graph.find_value("w"));
    ASSERT_NE(w, nullptr);
    EXPECT_TRUE(std::ranges::equal(w->as<float>(), values));
  }
}

TEST_F(ModelFile, LargeExternalBooleans) {
  constexpr size_t kCount = 2 << 20;
  write("model/data", std::string(kCount, '\7'));
  ModelBuilder model;
  model.input("x", {"N", std::to_string(kCount)}).output("y");
  model.add_tensor("w", {kCount}, anneal_onnx::TensorProto::BOOL);
  model.node("Where", {"w", "x", "x"}, {"y"});
  make_external(model, "data", "", "");
  const ImportResult imported = import_file(write("model/m.onnx", model.bytes()));
  const Tensor* w = imported.graph.constant(imported.graph.find_value("w"));
  ASSERT_NE(w, nullptr);
  EXPECT_TRUE(std::ranges::all_of(w->as<uint8_t>(), [](uint8_t byte) { return byte == 1; }));
}

TEST_F(ModelFile, ExternalDataThatIsRefused) {
  write("secret", std::string(64, 's'));
  write("model/data", std::string(12, 'd'));
  fs::create_symlink("../secret", folder_ / "model/link");
  fs::create_directory_symlink("..", folder_ / "model/up");
  ASSERT_EQ(mkfifo((folder_ / "model/pipe").c_str(), 0600), 0);
  struct Case {
    const char *location, *offset, *length, *error;
  };
  const Case cases[] = {
      {"../../etc/passwd", "", "", "\"..\" is refused"},
      {"../secret", "", "", "\"..\" is refused"},
      {"sub/../../secret", "", "", "\"..\" is refused"},
      {"/etc/passwd", "", "", "an absolute path is refused"},
      {"link", "", "", "\"link\" is a symbolic link"},
      {"up/secret", "", "", "\"up\" is a symbolic link"},
      {"pipe", "", "", "not a regular file"},
      {"", "", "", "the location is empty"},
      {".", "", "", "the location names no file"},
      {"absent", "", "", "No such file"},
      {"data/x", "", "", "Not a directory"},
      {"data", "8", "", "the file has 12 bytes, but the tensor is 8 bytes from 8"},
      {"data", "18446744073709551615", "", "the file has 12 bytes"},
      {"data", "-4", "", "offset is \"-4\", not a number of bytes"},
      {"data", "", "12", "length 12, but shape [2] of f32 takes 8 bytes"},
  };
  for (const Case& wrong : cases) {
    ModelBuilder model = small_model();
    make_external(model, wrong.location, wrong.offset, wrong.length);
    const std::string path = write("model/m.onnx", model.bytes());
    const std::string error = error_of([&] { import_file(path); });
    EXPECT_THAT(error, HasSubstr(std::string("tensor \"w\": external data \"") + wrong.location));
    EXPECT_THAT(error, HasSubstr(wrong.error));
  }
  ModelBuilder model = small_model();
  make_external(model, "data", "", "");
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), ""); }),
              HasSubstr("the model was given as bytes"));
}

}  // namespace
}  // namespace anneal
