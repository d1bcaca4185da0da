#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "agents/client/harness_client.h"
#include "agents/client/verdict_wait.h"
#include "tests/harness/api_fixture.h"
#include "tests/harness/tls_tunnel.h"

namespace sluice {
namespace {

using nlohmann::json;

/// A server behind something that speaks TLS.
class ClientTls : public testing::ApiTest {
 protected:
  ~ClientTls() override { ::unsetenv("SSL_CERT_FILE"); }

  const std::string certificate_ = directory_.file("tunnel.pem");
  testing::TlsTunnel tunnel_{server_->port(), certificate_};
  HarnessClient client_{{fmt::format("https://127.0.0.1:{}", tunnel_.port()), token_}};
};

TEST_F(ClientTls, HandsInAndHearsOfTheVerdict) {
  ::setenv("SSL_CERT_FILE", certificate_.c_str(), 1);
  const json submitted = client_.submit(draft("quest"));
  std::thread judge([&] { decide({}); });
  EXPECT_EQ(wait_on_terminal(client_, submitted["id"], std::chrono::seconds(60))["status"], "passed");
  judge.join();
  EXPECT_EQ(client_.get("/v1/submissions")["submissions"].size(), 1U);
}

TEST_F(ClientTls, AStrangersCertificateIsRefused) {
  try {
    client_.submit(draft("quest"));
    FAIL() << "sent to whom nobody knows";
  } catch (const ServerError& error) {
    EXPECT_NE(std::string(error.what()).find("certificate"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("SSL_CERT_FILE"), std::string::npos) << error.hint();
  }
  EXPECT_EQ(get("/v1/submissions")["submissions"].size(), 0U);
}

}  // namespace
}  // namespace sluice
