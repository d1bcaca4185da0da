#include "agents/web/web_routes.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <string>

#include "agents/http/http_server.h"
#include "agents/web/web_files.h"

namespace sluice {
namespace {

/// A server with nothing but the page.
class WebRoutes : public ::testing::Test {
 protected:
  WebRoutes() : server_(HttpServerOptions{}) {
    add_web_routes(server_);
    server_.start();
  }

  httplib::Result get(const std::string& path, const std::string& known = {}) const {
    httplib::Client client("127.0.0.1", server_.port());
    return client.Get(path, known.empty() ? httplib::Headers{} : httplib::Headers{{"If-None-Match", known}});
  }

  HttpServer server_;
};

TEST_F(WebRoutes, ServesEveryFileOfThePage) {
  for (const WebFile& file : web_files()) {
    const auto answer = get(std::string(file.address));
    ASSERT_TRUE(answer) << file.address;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, file.bytes);
    EXPECT_EQ(answer->get_header_value("Content-Type"), file.media_type);
    EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff");
  }
  EXPECT_EQ(get("/")->body.rfind("<!doctype html>", 0), 0U);
  EXPECT_EQ(get("/web/other.js")->status, 404);
}

TEST_F(WebRoutes, LetsABrowserRunNothingButItsOwnFiles) {
  const std::string policy = get("/")->get_header_value("Content-Security-Policy");
  for (const char* part : {"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self';",
                           "require-trusted-types-for 'script'", "frame-ancestors 'none'"}) {
    EXPECT_NE(policy.find(part), std::string::npos) << part;
  }
  for (const char* part : {"unsafe", "*", "http:", "https:"}) EXPECT_EQ(policy.find(part), std::string::npos) << part;
}

TEST_F(WebRoutes, SendsNothingThatABrowserHas) {
  for (const WebFile& file : web_files()) {
    const std::string path(file.address);
    const std::string tag = get(path)->get_header_value("ETag");
    EXPECT_EQ(tag, file.entity_tag);
    for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
      const auto answer = get(path, known);
      EXPECT_EQ(answer->status, 304) << known;
      EXPECT_EQ(answer->body, "");
      EXPECT_EQ(answer->get_header_value("ETag"), tag);
    }
    EXPECT_EQ(get(path, "\"other\"")->status, 200);
  }
}

TEST_F(WebRoutes, TellsTheHeadOfAFileAlone) {
  httplib::Client client("127.0.0.1", server_.port());
  const auto answer = client.Head("/");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->get_header_value("ETag"), get("/")->get_header_value("ETag"));
  EXPECT_EQ(answer->body, "");
}

}  // namespace
}  // namespace sluice
