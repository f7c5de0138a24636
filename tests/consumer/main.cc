#include <anneal/engine/run/engine.h>

#include <iostream>
#include <vector>

int main(int, char** argv) {
  const auto engine = anneal::Engine::load(argv[1]);
  anneal::ExecutionContext context(engine);
  std::vector<float> image(32 * 32, 0.5f);
  context.set_input("image", anneal::row_major_view(anneal::DataType::kF32, {1, 1, 32, 32},
                                                    reinterpret_cast<std::byte*>(image.data())));
  context.run();
  const anneal::TensorView scores = context.output("scores");
  std::cout << scores.dims[1] << " scores, the first is " << scores.as<float>()[0] << "\n";
}
