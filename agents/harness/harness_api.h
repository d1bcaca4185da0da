#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agents/harness/store_pool.h"
#include "agents/server/http_server.h"

namespace sluice {

/// The routes below /v1 through which agents hand in flows and everybody reads what became of them. What the store refuses is
/// answered as a problem document.
class HarnessApi {
 public:
  /// `changed` is called when there is something new in the queue.
  HarnessApi(std::string database, std::function<void()> changed);

  /// The store must outlive the server's threads, and so must this.
  void add_routes(HttpServer& server);
  /// For GateOptions::authenticate.
  std::optional<Identity> authenticate(const std::string& token);

 private:
  void add_submission_routes(HttpServer& server);
  void add_reading_routes(HttpServer& server);
  HttpResponse submit(const HttpRequest& request);
  HttpResponse show(const HttpRequest& request);
  HttpResponse cancel(const HttpRequest& request);
  HttpResponse list(const HttpRequest& request);
  HttpResponse lineage(const HttpRequest& request);
  HttpResponse leaderboard(const HttpRequest& request);
  HttpResponse front(const HttpRequest& request);
  HttpResponse history(const HttpRequest& request);
  HttpResponse events(const HttpRequest& request);
  HttpResponse me(const HttpRequest& request);

  const std::string database_;
  StorePool stores_;
  std::function<void()> changed_;
};

}  // namespace sluice
