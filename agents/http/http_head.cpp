#include "agents/http/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "agents/http/http_problem.h"
#include "scripting/base/unicode.h"

namespace sluice {
namespace {

constexpr size_t kMostHeaders = 100;
constexpr size_t kMostPairs = 64;
constexpr size_t kLongestLine = 8000;  // below the 8192 bytes at which the HTTP library gives up by itself

[[noreturn]] void refuse(const std::string& detail, int status = 400) { throw HttpProblem(status, detail); }

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// RFC 9110, section 5.6.2.
bool is_token(std::string_view text) {
  const auto allowed = [](char c) {
    return is_letter_or_digit(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes the next line, without its CR LF, from `text`.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find("\r\n");
  if (end == std::string_view::npos) refuse("the head of the request does not end with an empty line");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return line;
}

void parse_request_line(std::string_view line, HttpHead& head) {
  if (line.size() > kLongestLine) refuse("the address is too long", 414);
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) refuse("the first line is not METHOD PATH HTTP/1.1");
  head.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(head.method)) refuse("the method is no word of HTTP");
  if (!version.starts_with("HTTP/")) refuse("the first line is not METHOD PATH HTTP/1.1");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") refuse("only HTTP/1.1 and HTTP/1.0 are spoken here", 505);
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), printable)) {
    refuse("the address must be a path that begins with \"/\", percent-encoded");
  }
  head.speaks_chunks = head.persistent = version == "HTTP/1.1";
  const size_t query = target.find('?');
  head.path = target.substr(0, query);
  if (query != std::string_view::npos) head.query = target.substr(query + 1);
}

void parse_header(std::string_view line, HttpHeaders& headers) {
  if (line.size() > kLongestLine) refuse("a header field is too long", 431);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) refuse("a header field is not NAME: VALUE");
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(), [](char c) { return is_control(c) && c != '\t'; })) {
    refuse("a header field holds a control character");
  }
  if (headers.size() == kMostHeaders) refuse(fmt::format("more than {} header fields", kMostHeaders), 431);
  headers.emplace(line.substr(0, colon), value);
}

/// Whether the body comes in chunks.
bool has_chunks(const HttpHead& head) {
  const auto [begin, end] = head.headers.equal_range("Transfer-Encoding");
  if (begin == end) return false;
  if (!head.speaks_chunks) refuse("Transfer-Encoding is of HTTP/1.1");
  if (head.headers.contains("Content-Length")) refuse("a body has a Content-Length or comes in chunks, not both");
  std::string coding = begin->second;
  std::transform(coding.begin(), coding.end(), coding.begin(), HeaderNameLess::lower);
  if (std::next(begin) != end || coding != "chunked")
    refuse("of Transfer-Encoding \"chunked\" is known here, and nothing else", 501);
  return true;
}

size_t parse_content_length(const HttpHeaders& headers) {
  const auto [begin, end] = headers.equal_range("Content-Length");
  if (begin == end) return 0;
  const std::string& text = begin->second;
  size_t length = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), length);
  if (std::next(begin) != end || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    refuse("Content-Length must be one number");
  }
  return length;
}

}  // namespace

HttpHead parse_http_head(std::string_view text) {
  HttpHead head;
  parse_request_line(take_line(text), head);
  for (;;) {
    const std::string_view line = take_line(text);
    if (line.empty()) break;
    parse_header(line, head.headers);
  }
  if (!text.empty()) refuse("the head of the request has an empty line inside");
  const size_t hosts = head.headers.count("Host");
  if (hosts > 1 || (hosts == 0 && head.persistent)) refuse("one Host header is wanted");
  head.has_chunks = has_chunks(head);
  head.content_length = parse_content_length(head.headers);
  const auto connection = head.headers.find("Connection");
  if (connection != head.headers.end()) {
    std::string value = connection->second;
    std::transform(value.begin(), value.end(), value.begin(), HeaderNameLess::lower);
    if (value.find("close") != std::string::npos) head.persistent = false;
  }
  return head;
}

void check_trailer(std::string_view line) {
  HttpHeaders ignored;
  parse_header(line, ignored);
}

size_t parse_chunk_size(std::string_view line) {
  constexpr size_t kMostDigits = 12;
  constexpr int kHexadecimal = 16;
  const std::string_view digits = line.substr(0, std::min(line.find_first_of("; \t"), line.size()));
  const std::string_view rest = trimmed(line.substr(digits.size()));
  size_t size = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), size, kHexadecimal);
  const bool is_number =
      !digits.empty() && digits.size() <= kMostDigits && parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  const bool has_control = std::any_of(rest.begin(), rest.end(), [](char c) { return is_control(c) && c != '\t'; });
  if (!is_number || has_control || (!rest.empty() && rest.front() != ';')) {
    refuse("a chunk of the body does not begin with its size");
  }
  return size;
}

std::string decode_percent(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded += text[at];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(at + 1, 2);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || parsed.ec != std::errc() || parsed.ptr != digits.data() + 2) {
      refuse("the address holds a \"%\" without two hexadecimal digits");
    }
    decoded += static_cast<char>(value);
    at += 2;
  }
  if (std::any_of(decoded.begin(), decoded.end(), is_control)) refuse("the address holds a control character");
  for (size_t at = 0; at < decoded.size();) {
    const int length = utf8_length(decoded, at);
    if (length == 0) refuse("the address is not UTF-8");
    at += static_cast<size_t>(length);
  }
  return decoded;
}

std::multimap<std::string, std::string> parse_query(std::string_view query) {
  std::multimap<std::string, std::string> pairs;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    std::string pair(query.substr(0, end));
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    if (pairs.size() == kMostPairs) refuse(fmt::format("more than {} query parameters", kMostPairs));
    std::replace(pair.begin(), pair.end(), '+', ' ');
    const size_t equals = std::min(pair.find('='), pair.size());
    pairs.emplace(decode_percent(std::string_view(pair).substr(0, equals)),
                  decode_percent(std::string_view(pair).substr(std::min(equals + 1, pair.size()))));
  }
  return pairs;
}

}  // namespace sluice
