#include "agents/http/http_head.h"

#include <gtest/gtest.h>

#include "agents/http/http_problem.h"

namespace sluice::test {
namespace {

int status_of_head(const std::string& text) {
  try {
    parse_http_head(text);
    return 200;
  } catch (const HttpProblem& problem) {
    return problem.status();
  }
}

TEST(HttpHead, ReadsMethodPathQueryAndFields) {
  const HttpHead head =
      parse_http_head("POST /v1/a%20b?x=1&y HTTP/1.1\r\nHost: localhost:8080\r\ncontent-LENGTH: 12\r\nX-A:  b c \t\r\n\r\n");
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/a%20b");
  EXPECT_EQ(head.query, "x=1&y");
  EXPECT_EQ(head.content_length, 12U);
  EXPECT_TRUE(head.persistent);
  EXPECT_EQ(head.headers.find("x-a")->second, "b c");
}

TEST(HttpHead, KeepsConnectionsAsVersionAndFieldSay) {
  EXPECT_FALSE(parse_http_head("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").persistent);
  EXPECT_FALSE(parse_http_head("GET / HTTP/1.0\r\n\r\n").persistent);
  EXPECT_FALSE(parse_http_head("GET / HTTP/1.0\r\n\r\n").speaks_chunks);
}

TEST(HttpHead, RefusesWhatParsersCouldReadDifferently) {
  const std::string host = "Host: a\r\n";
  EXPECT_EQ(status_of_head("GET / HTTP/1.1\r\n" + host + "\r\n"), 200);
  const std::vector<std::pair<std::string, int>> heads = {
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET /\r\n" + host + "\r\n", 400},
      {"GET  HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET a HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET http://a/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /a b HTTP/1.1\r\n" + host + "\r\n", 400},
      {"G(T / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "A: b\nC: d\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + std::string("A: b\0c\r\n\r\n", 10), 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 200},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: Chunked\r\n\r\n", 200},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
      {"GET / HTTP/1.1\r\n" + host + "A: " + std::string(9000, 'a') + "\r\n\r\n", 431},
  };
  for (const auto& [head, status] : heads) EXPECT_EQ(status_of_head(head), status) << head.substr(0, 80);
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 120; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of_head(many + "\r\n"), 431);
}

TEST(HttpHead, ReadsSizesOfChunks) {
  EXPECT_EQ(parse_chunk_size("0"), 0U);
  EXPECT_EQ(parse_chunk_size("1aF"), 0x1afU);
  EXPECT_EQ(parse_chunk_size("000000000010"), 16U);
  EXPECT_EQ(parse_chunk_size("a;name=value"), 10U);
  EXPECT_EQ(parse_chunk_size("a ; name=\"v;w\""), 10U);
  for (const char* line : {"", ";", " 5", "-1", "+1", "0x5", "5g", "5 6", "1111111111111", "\t"})
    EXPECT_THROW(parse_chunk_size(line), HttpProblem) << line;
}

TEST(HttpHead, DecodesPercentAndQueries) {
  EXPECT_EQ(decode_percent("a%2Fb%C3%A9"), "a/bé");
  for (const char* text : {"%", "%4", "%zz", "%00", "%0a", "%ff", "%-1"}) EXPECT_THROW(decode_percent(text), HttpProblem) << text;
  const auto query = parse_query("a=1&b=x+y%26&c&=d&&a=2");
  EXPECT_EQ(query.count("a"), 2U);
  EXPECT_EQ(query.find("b")->second, "x y&");
  EXPECT_EQ(query.find("c")->second, "");
}

}  // namespace
}  // namespace sluice::test
