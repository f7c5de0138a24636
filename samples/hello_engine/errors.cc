#include <anneal/anneal.h>

#include <iostream>
#include <vector>

int main() {
  try {
    auto engine = anneal::Engine::load("glyphs.engine");
    anneal::ExecutionContext context(engine);
    std::vector<float> images(9 * 32 * 32);  // the engine was built for 8 at most
    context.set_input("image", anneal::view(images, {9, 1, 32, 32}));
  } catch (const anneal::Error& error) {
    std::cout << anneal::to_string(error.code()) << ": " << error.what() << "\n";
    if (error.code() == anneal::ErrorCode::kInvalidArgument && error.port() == "image")
      std::cout << "a batch of " << error.dims()[0] << " does not fit\n";
  }
}
