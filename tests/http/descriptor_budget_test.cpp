#include "agents/http/descriptor_budget.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

HttpServerOptions of(size_t all, size_t kept) {
  HttpServerOptions options;
  leave_descriptors(options, all, kept);
  return options;
}

TEST(DescriptorBudget, LeavesWhatIsKeptForOthers) {
  for (const size_t all : {128U, 256U, 1024U, 4096U, 65536U}) {
    constexpr size_t kKept = 64;
    const HttpServerOptions options = of(all, kKept);
    EXPECT_LE(3 * static_cast<size_t>(options.most_connections) + kKept, all);
    EXPECT_LE(options.most_streams, options.most_connections / 2) << "a place for those who ask for something";
  }
  EXPECT_EQ(of(65536, 64).most_connections, HttpServerOptions().most_connections);
  EXPECT_EQ(of(65536, 64).most_streams, HttpServerOptions().most_streams);
}

TEST(DescriptorBudget, AFewConnectionsThereAreInAnyCase) {
  EXPECT_GE(of(16, 64).most_connections, 8);
  EXPECT_GE(of(0, 64).most_streams, 4);
}

}  // namespace
}  // namespace sluice
