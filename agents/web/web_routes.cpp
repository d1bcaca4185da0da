#include "agents/web/web_routes.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "agents/web/web_files.h"

namespace sluice {
namespace {

// Scripts and styles are the files below, never text inside a document; what would turn a string into either is refused by the
// browser (Trusted Types), so a name or a script that looks like HTML stays text even where the page had a fault.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types default";

/// Whether the client's copy is the current one: If-None-Match lists its tag, which a proxy may have marked as weak (RFC 9110).
bool has_current(const HttpRequest& request, std::string_view entity_tag) {
  const auto condition = request.header("If-None-Match");
  return condition && (*condition == "*" || condition->find(entity_tag) != std::string::npos);
}

HttpResponse answer(const HttpRequest& request, const WebFile& file) {
  HttpResponse response;
  response.headers = {{"ETag", std::string(file.entity_tag)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", kContentSecurityPolicy},
                      {"Cross-Origin-Opener-Policy", "same-origin"}};
  if (has_current(request, file.entity_tag)) {
    response.status = 304;
    return response;
  }
  response.content_type = file.media_type;
  response.body = file.bytes;
  return response;
}

}  // namespace

void add_web_routes(HttpServer& server) {
  for (const WebFile& file : web_files()) {
    const size_t number = server.router().routes().size();
    HttpRoute route;
    route.method = "GET";
    route.pattern = file.address;
    route.operation = fmt::format("getPageFile{}", number);
    route.summary = "A file of the page for people";
    route.access = Access::kPublic;
    route.answers = {{200, "The file", std::string(file.media_type.substr(0, file.media_type.find(';'))), {{"type", "string"}}},
                     {304, "The client has it", ""}};
    route.handle = [&file](const HttpRequest& request) { return answer(request, file); };
    server.add(std::move(route));
  }
}

}  // namespace sluice
