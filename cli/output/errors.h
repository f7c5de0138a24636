// How a command refuses arguments and adds its context to errors.
#pragma once
#include "anneal/core/refuse.h"  // IWYU pragma: export
