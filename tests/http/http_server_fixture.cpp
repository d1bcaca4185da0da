#include "tests/http/http_server_fixture.h"

#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "scripting/base/error.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

HttpResponse text(const std::string& body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = body;
  return response;
}

HttpRoute route(const std::string& method, const std::string& pattern, std::function<HttpResponse(const HttpRequest&)> handle) {
  HttpRoute made;
  made.method = method;
  made.pattern = pattern;
  made.operation = method + pattern;
  made.summary = "a test";
  made.answers = {{200, "text", "text/plain", {{"type", "string"}}}};
  made.handle = std::move(handle);
  return made;
}

}  // namespace

HttpRoute json_route(const std::string& pattern, Access access) {
  HttpRoute made = route("POST", pattern, [](const HttpRequest& request) { return text(request.body); });
  made.consumes = {"application/json"};
  made.access = access;
  return made;
}

void HttpServerTest::start() {
  server = std::make_unique<HttpServer>(options);
  server->add(route("GET", "/hello", [](const HttpRequest&) { return text("hello"); }));
  HttpRoute item = route("GET", "/items/{id}", [](const HttpRequest& request) {
    return text(request.path_parameters.at("id") + "|" + request.query_value("q").value_or("none"));
  });
  item.path_parameters = {{"id", "which"}};
  server->add(std::move(item));
  server->add(route("GET", "/items/latest", [](const HttpRequest&) { return text("literal"); }));
  server->add(route("GET", "/broken", [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("a secret path"); }));
  server->add(
      route("GET", "/refused", [](const HttpRequest&) -> HttpResponse { throw InputError("no such thing", "try another"); }));
  server->add(route("GET", "/slow", [this](const HttpRequest& request) {
    ++entered;
    while (request.is_wanted()) std::this_thread::sleep_for(5ms);
    ++left;
    return text("late");
  }));
  server->add(route("GET", "/patient", [this](const HttpRequest& request) -> HttpResponse {
    ++entered;
    while (request.is_wanted()) std::this_thread::sleep_for(5ms);
    ++left;
    throw HttpProblem(503, "given up");
  }));
  server->add(route("GET", "/fragile", [this](const HttpRequest& request) -> HttpResponse {
    ++entered;
    while (request.is_wanted()) std::this_thread::sleep_for(5ms);
    ++left;
    throw std::runtime_error("broken");
  }));
  server->add(route("GET", "/events", [this](const HttpRequest& request) {
    last_id = last_event_id(request).value_or(0);
    return event_response(std::make_shared<EventStream>(events));
  }));
  server->add(route("GET", "/silence", [](const HttpRequest&) {
    return event_response(std::make_shared<EventStream>(std::make_shared<EventQueue>()));
  }));
  server->add(json_route("/echo"));
  HttpRoute end = json_route("/end");
  end.handle = [](const HttpRequest& request) {
    request.end_body();
    return text(std::to_string(request.body.capacity()));
  };
  server->add(std::move(end));
  server->add(json_route("/write", Access::kWrite));
  server->add(json_route("/admin", Access::kAdmin));
  server->start();
}

}  // namespace sluice::test
