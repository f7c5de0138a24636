#include <anneal/anneal.h>

#include <iostream>
#include <vector>

// Another batch is another shape of the input: set it, and run.
int main() {
  auto engine = anneal::Engine::load("glyphs.engine");
  anneal::ExecutionContext context(engine);
  for (int64_t batch : {1, 4, 8}) {
    std::vector<float> images(batch * 32 * 32, 0.5f);
    context.set_input("image", anneal::view(images, {batch, 1, 32, 32}));
    context.run();
    std::cout << anneal::to_string(context.output("scores").dims) << "\n";
  }
}
