// The command `anneal`.
#include "anneal/cli/application.h"

int main(int argc, char** argv) { return anneal::run_application(argc, argv); }
