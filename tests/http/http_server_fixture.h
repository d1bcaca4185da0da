#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>

#include "agents/http/event_stream.h"
#include "agents/http/http_server.h"
#include "tests/http/raw_client.h"

namespace sluice::test {

/// POST: answers what it is sent.
HttpRoute json_route(const std::string& pattern, Access access = Access::kRead);

/// A server with a few routes. Tests change the options, then start it.
class HttpServerTest : public ::testing::Test {
 protected:
  void start();

  httplib::Client client() const { return httplib::Client("127.0.0.1", server->port()); }
  std::string send(const std::string& request) const { return exchange(server->port(), request); }

  HttpServerOptions options;
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>(4);
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  std::atomic<uint64_t> last_id = 0;
  std::unique_ptr<HttpServer> server;  // ends before what its handlers use
};

}  // namespace sluice::test
