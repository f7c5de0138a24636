// A shared library without any function of NVIDIA's.
extern "C" int anneal_test_other_library() { return 1; }
