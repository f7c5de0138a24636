// What the fake cuDNN refuses, with the attribute's name.
#include "anneal/tests/virtual_card/cudnn/refusals.h"

#include <gmock/gmock.h>

#include "anneal/tests/virtual_card/cudnn/descriptor.h"

namespace anneal::fake_cudnn {
namespace {

using ::testing::HasSubstr;

TEST(FakeCudnnRefusals, EachNamesTheAttribute) {
  for (const WrongDescriptor& wrong : wrong_descriptors()) {
    const Made made = wrong.make(fake_library());
    EXPECT_EQ(made.status(), wrong.status) << wrong.name << ": " << made.error();
    EXPECT_THAT(made.error(), HasSubstr(name_of(wrong.attribute))) << wrong.name;
  }
}

TEST(FakeCudnnRefusals, RightGraphsAreTaken) {
  for (const RightGraph& right : right_graphs()) {
    const Made made = right.make(fake_library());
    EXPECT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << right.name << ": " << made.error();
  }
}

TEST(FakeCudnnRefusals, DescriptorsThatAreDestroyedOrNull) {
  const Library& l = fake_library();
  BackendDescriptor descriptor = nullptr;
  EXPECT_EQ(l.cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(l.cudnnBackendDestroyDescriptor(descriptor), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(l.cudnnBackendDestroyDescriptor(descriptor), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(l.cudnnBackendFinalize(descriptor), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(l), HasSubstr("it was destroyed, or never made"));
  EXPECT_EQ(l.cudnnBackendFinalize(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(l.cudnnBackendCreateDescriptor(static_cast<DescriptorType>(200), &descriptor),
            CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(FakeCudnnRefusals, Reading) {
  const Library& l = fake_library();
  Made open = begin_tensor(l, {.dims = {4}});
  open.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  EXPECT_EQ(open.status(), CUDNN_STATUS_NOT_INITIALIZED);
  Made closed = tensor(l, {.uid = 7, .dims = {4, 5}});
  EXPECT_EQ(closed.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), (Sizes{4, 5}));
  EXPECT_EQ(closed.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID), Sizes{7});
  closed.get<float>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  EXPECT_EQ(closed.status(), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  int64_t count = 0, room = 0;
  EXPECT_EQ(l.cudnnBackendGetAttribute(closed.handle(), CUDNN_ATTR_TENSOR_DIMENSIONS,
                                       CUDNN_TYPE_INT64, 1, &count, &room),
            CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
  EXPECT_EQ(count, 2);
}

TEST(FakeCudnnRefusals, StatusesHaveNames) {
  const Library& l = fake_library();
  EXPECT_STREQ(l.cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED),
               "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED");
  EXPECT_EQ(l.cudnnGetVersion(), 91900u);
}

TEST(FakeCudnnRefusals, AHandleNeedsACurrentContext) {
  Handle handle = nullptr;
  EXPECT_EQ(fake_library().cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
}

}  // namespace
}  // namespace anneal::fake_cudnn
