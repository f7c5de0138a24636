// A library that is none of kernels.
extern "C" int no_kernels() { return 0; }
