// How a command refuses arguments and adds its context to errors.
#pragma once
#include "anneal/core/fail.h"    // IWYU pragma: export
#include "anneal/core/refuse.h"  // IWYU pragma: export
