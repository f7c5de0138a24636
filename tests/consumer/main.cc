// Built against an installed Anneal by tests/consumer_test.py.
#include <anneal/core/version.h>

#include <iostream>

int main() {
  std::cout << "linked with Anneal " << anneal::version() << "\n";
  return anneal::version().empty() ? 1 : 0;
}
