#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/http/http_message.h"

namespace sluice {

/// The head of a request: its first line and its header fields, checked before anything acts on them.
struct HttpHead {
  std::string method;
  std::string path;   // raw: percent-encoded, begins with "/"
  std::string query;  // raw: what follows "?"
  bool persistent = true;
  bool speaks_chunks = true;  // HTTP/1.1: a body may come in chunks, without a length
  HttpHeaders headers;
  size_t content_length = 0;
  bool has_chunks = false;  // the body comes in chunks, and nobody knows how long it is
};

/// Parses a head, its empty last line included. Stricter than RFC 9112 allows, so that no two parsers can disagree about where a
/// request ends: lines end with CR LF, no folded lines, one Host, one Content-Length or one "Transfer-Encoding: chunked", never
/// both. Throws HttpProblem; 501 for another coding.
HttpHead parse_http_head(std::string_view text);

/// A field behind a body in chunks, without its CR LF: it must be one, and nobody looks at it. Throws HttpProblem.
void check_trailer(std::string_view line);

/// The size that the line before a chunk says, without its CR LF. What stands behind a ";" is not looked at. Throws HttpProblem
/// (400).
size_t parse_chunk_size(std::string_view line);

/// `text` with %XX decoded. Throws HttpProblem (400) for a broken escape, a control character or invalid UTF-8.
std::string decode_percent(std::string_view text);

/// The pairs of a query string. "+" is a space. Throws HttpProblem (400) like `decode_percent`, and for more than 64 pairs.
std::multimap<std::string, std::string> parse_query(std::string_view query);

}  // namespace sluice
