#include "agents/http/http_server.h"

#include <fmt/format.h>

#include "agents/http/listener.h"
#include "agents/http/open_api.h"

namespace sluice {

HttpServer::HttpServer(HttpServerOptions options)
    : options_(std::move(options)), listener_(std::make_unique<Listener>(options_)) {
  HttpRoute document;
  document.method = "GET";
  document.pattern = "/v1/openapi.json";
  document.operation = "getOpenApi";
  document.summary = "This document";
  document.access = Access::kPublic;
  document.answers = {{200, "OpenAPI 3.1", "application/json", {{"type", "object"}}}};
  document.handle = [this](const HttpRequest&) {
    HttpResponse response;
    response.body = document_;
    return response;
  };
  add(std::move(document));
}

HttpServer::~HttpServer() = default;

void HttpServer::add(HttpRoute route) { listener_->router.add(std::move(route)); }

void HttpServer::refuse_by(std::string prefix, std::function<HttpResponse(const HttpProblem&)> refuse) {
  listener_->refuse_by(std::move(prefix), std::move(refuse));
}

const Router& HttpServer::router() const { return listener_->router; }

void HttpServer::bind() { listener_->bind(); }

void HttpServer::start() {
  document_ = json_text(open_api_document(router().routes(), options_.title, options_.gate.token_for_reading));
  listener_->start();
}

int HttpServer::port() const { return listener_->port(); }

std::string HttpServer::address() const {
  const bool bracketed = options_.host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", bracketed ? "[" + options_.host + "]" : options_.host, port());
}

void HttpServer::stop() { listener_->stop_serving(); }

}  // namespace sluice
