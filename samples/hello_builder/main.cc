// Builds two engines of the glyphs model: one in f32, one in 8 bits.
//
//   hello_builder MODEL.onnx F32.engine INT8.engine
#include <anneal/anneal.h>

#include <iostream>

// Calibration samples, which a real program reads from files: anneal::open_dataset().
class Stripes : public anneal::Dataset {
 public:
  explicit Stripes(std::string input) : input_(std::move(input)) {}
  int64_t size() const override { return 8; }
  std::string name(int64_t i) const override { return "stripes " + std::to_string(i); }
  std::optional<int64_t> label(int64_t) const override { return std::nullopt; }
  std::vector<anneal::SampleTensor> read(int64_t i) const override {
    std::vector<float> pixels(32 * 32);
    for (size_t k = 0; k < pixels.size(); ++k)
      pixels[k] = (k / (1 + static_cast<size_t>(i))) % 2 == 0 ? 1.0f : 0.0f;
    return {{input_, anneal::Tensor::of<float>(anneal::DataType::kF32, {1, 1, 32, 32}, pixels)}};
  }

 private:
  std::string input_;
};

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: hello_builder MODEL.onnx F32.engine INT8.engine\n";
    return 2;
  }
  try {
    anneal::BuildOptions options;
    options.input_bounds["image"] = {{1, 1, 32, 32}, {1, 1, 32, 32}, {8, 1, 32, 32}};
    anneal::build_engine(argv[1], argv[2], options);

    const auto samples = std::make_shared<Stripes>(anneal::onnx_inputs(argv[1])[0].name);
    options.precision.int8 = true;
    options.precision.ranges = std::make_shared<anneal::CalibrationTable>(
        anneal::calibrate_onnx(argv[1], samples, {.input_bounds = options.input_bounds}));
    options.timing = {.measure = true, .cache = {}, .threads = 1};
    options.progress = [](std::string_view what) {
      std::cout << what << "\n";
      return true;  // false cancels
    };
    const anneal::BuildReport report = anneal::build_engine(argv[1], argv[3], options);
    std::cout << report.plans.at(0).steps.size() << " steps, " << report.engine_bytes << " bytes\n";
  } catch (const anneal::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
