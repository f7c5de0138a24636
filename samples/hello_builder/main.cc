// Builds an engine in 8 bits, calibrated with samples: hello_builder MODEL.onnx MODEL.engine
#include <anneal/anneal.h>

#include <iostream>

int main(int argc, char** argv) try {
  const std::string model = argc > 1 ? argv[1] : "model.onnx";
  anneal::BuildOptions options;
  options.profiles = {{.min = {{"image", {1, 1, 32, 32}}}, .max = {{"image", {8, 1, 32, 32}}}}};
  options.precision.types = {anneal::Precision::kI8};
  // A real program reads samples from files: anneal::open_dataset().
  options.calibration.samples = anneal::make_dataset(8, [](int64_t i) {
    std::vector<float> pixels(32 * 32);
    for (size_t k = 0; k < pixels.size(); ++k)
      pixels[k] = (k / (1 + static_cast<size_t>(i))) % 2 == 0 ? 1.0f : 0.0f;
    auto image = anneal::Tensor::of<float>(anneal::DataType::kF32, {1, 1, 32, 32}, pixels);
    return std::vector<anneal::SampleTensor>{{"image", image}};
  });
  const auto report = anneal::build_engine(model, argc > 2 ? argv[2] : "model.engine", options);
  std::cout << report.plans[0].steps.size() << " steps, " << report.engine_bytes << " bytes\n";
} catch (const anneal::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
