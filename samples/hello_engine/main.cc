#include <anneal/anneal.h>

#include <iostream>
#include <vector>

int main() {
  auto engine = anneal::Engine::load("glyphs.engine");
  anneal::ExecutionContext context(engine);
  std::vector<float> image(32 * 32, 0.5f);
  context.set_input("image", anneal::view(image, {1, 1, 32, 32}));
  context.run();
  for (float score : context.output("scores").span<float>()) std::cout << score << "\n";
}
