// How the listener answers one request: checks, the route's handler, and what becomes of errors.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

#include "agents/http/caller.h"
#include "agents/http/listener.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

constexpr int kClientClosed = 499;  // in the log, as nginx has it: the client did not wait for its answer

void add_standard_headers(HttpResponse& response, const std::string& id) {
  response.headers["X-Request-Id"] = id;
  response.headers.emplace("Cache-Control", "no-store");
  response.headers.emplace("X-Content-Type-Options", "nosniff");
  response.headers.emplace("Referrer-Policy", "no-referrer");
  response.headers.emplace("X-Frame-Options", "DENY");
  response.headers.emplace("Cross-Origin-Resource-Policy", "same-origin");
  response.headers.emplace("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
}

}  // namespace

void HttpServer::Listener::answer(Current& current, httplib::Response& response) {
  HttpResponse answer;
  try {
    answer = handle(current);
  } catch (const HttpProblem& problem) {
    answer = refusal(current, problem);
  } catch (const InputError& error) {
    HttpProblem problem(400, error.what());
    if (!error.hint().empty()) problem.with("hint", error.hint());
    answer = refusal(current, problem);
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("{} failed: {}", current.request.id, error.what());
    HttpProblem lack(503, "the server lacks what this needs for now; try again");
    lack.with_header("Retry-After", "5");
    answer = refusal(current,
                     is_lack(error)
                         ? lack
                         : HttpProblem(500, "the server is at fault; its log tells more").with("request", current.request.id));
  }
  release_body(current);
  hold_answer(current, answer);
  add_standard_headers(answer, current.request.id);
  if (gate_.is_allowed_origin(current.request)) {
    answer.headers["Access-Control-Allow-Origin"] = *current.request.header("Origin");
    answer.headers["Vary"] = "Origin";
    answer.headers["Cross-Origin-Resource-Policy"] = "cross-origin";
  }
  if (current.request.method == "HEAD") answer.headers["Accept-Ranges"] = "none";  // the library would promise bytes
  if (!current.connection->body_was_read()) answer.headers["Connection"] = "close";
  current.status = response.status = answer.status;
  // A handler that stops because nobody waits is no trouble of the server's; any other fault is one whoever waits.
  if (answer.status == 503 && !current.connection->is_open()) current.status = kClientClosed;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  if (answer.stream) {
    const Connection& connection = *current.connection;
    const auto send = [this, stream = answer.stream, &connection](size_t, httplib::DataSink& sink) {
      return send_stream(*stream, connection, sink);
    };
    if (current.head.speaks_chunks) {
      response.set_chunked_content_provider(answer.content_type, send);
    } else {
      response.set_content_provider(answer.content_type, send);  // the end of the connection is that of the stream
    }
  } else if (!answer.body.empty()) {
    response.body = std::move(answer.body);  // a large one is there once
    response.set_header("Content-Type", answer.content_type);
  }
}

HttpResponse HttpServer::Listener::handle(Current& current) {
  HttpRequest& request = current.request;
  HttpHead& head = current.head;
  request.id = fmt::format("{:016x}", instance_ + ++last_id_);
  request.method = head.method;
  request.path = head.path;
  request.headers = std::move(head.headers);
  request.remote_address = current.connection->remote_address();
  request.end_body = [&current] { release_body(current); };
  request.is_wanted = [this, connection = current.connection] { return is_wanted(*connection); };

  gate_.check_site(request);
  const Router::Match match = router.find(request.method, request.path);
  if (request.method == "OPTIONS" && match.route == nullptr) return options_answer(current, match);
  current.route = match.any;
  if (match.route == nullptr) {
    const std::string allowed = fmt::format("{}", fmt::join(match.allowed, ", "));
    throw HttpProblem(405, "this address takes " + allowed).with_header("Allow", allowed);
  }
  const HttpRoute& route = *match.route;
  current.route = &route;
  request.path_parameters = match.path_parameters;
  request.query = parse_query(head.query);
  request.identity = gate_.identify(request, route);
  gate_.check_rate(request, route);
  gate_.check_access(request, route);
  check_query(request, route);
  check_body(request, head.content_length, route, options_.most_body_bytes);
  request.body = read_body(current, route);
  HttpResponse response = route.handle(request);
  if (response.stream && response.stream->endless()) {
    response.stream = streams_.add(std::move(response.stream), current.network);
  }
  return response;
}

std::string HttpServer::Listener::read_body(Current& current, const HttpRoute& route) {
  const bool is_asked_for = current.request.header("Expect").has_value();
  if (!current.head.has_chunks) {
    hold_body(current, current.head.content_length);
    return current.connection->read_body(is_asked_for);
  }
  return current.connection->read_chunks(is_asked_for, [&](size_t length) {
    check_length(length, route, options_.most_body_bytes);
    hold_body(current, std::bit_ceil(length));  // seldom, however small its chunks are
  });
}

void HttpServer::Listener::hold_body(Current& current, size_t length) {
  constexpr size_t kParsed = 40;  // bytes that a document takes for each byte of its text, where it is many small values
  if (length <= BytesInHand::kSmall) return;
  const size_t bytes = std::min(kParsed * length, options_.most_bytes_in_hand / 4);
  if (bytes <= current.held_bytes) return;
  auto room = bytes_in_hand_.take(caller_of(current.request), bytes - current.held_bytes);
  if (!room) throw HttpProblem(503, "too many large requests at once; try again in a moment").with_header("Retry-After", "1");
  current.held.push_back(std::move(room));
  current.held_bytes = bytes;
}

void HttpServer::Listener::release_body(Current& current) {
  std::string().swap(current.request.body);  // to assign an empty text would keep the memory
  current.held.clear();
  current.held_bytes = 0;
}

void HttpServer::Listener::hold_answer(Current& current, HttpResponse& answer) {
  if (answer.body.size() <= BytesInHand::kSmall) return;
  auto room = bytes_in_hand_.take(caller_of(current.request), answer.body.size());
  if (room) return current.held.push_back(std::move(room));
  HttpProblem problem(503, "too many large answers wait for their readers; try again in a moment");
  answer = refusal(current, problem.with_header("Retry-After", "1"));
}

HttpResponse HttpServer::Listener::options_answer(const Current& current, const Router::Match& match) const {
  HttpResponse response;
  response.status = 204;
  response.headers["Allow"] = fmt::format("{}", fmt::join(match.allowed, ", "));
  if (gate_.is_allowed_origin(current.request)) {
    response.headers["Access-Control-Allow-Methods"] = response.headers["Allow"];
    response.headers["Access-Control-Allow-Headers"] =
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id";
  }
  return response;
}

HttpResponse HttpServer::Listener::refusal(const Current& current, const HttpProblem& problem) const {
  HttpResponse response;
  if (current.route != nullptr && current.route->refuse) {
    response = current.route->refuse(problem);
  } else if (current.route == nullptr && refuse_ && current.request.path.starts_with(refused_prefix_)) {
    response = refuse_(problem);
  } else {
    response = problem_response(problem);
  }
  response.status = problem.status();
  for (const auto& [name, value] : problem.headers()) response.headers[name] = value;
  return response;
}

// One call sends the whole stream: between calls the library would give up as soon as the server stops.
bool HttpServer::Listener::send_stream(BodyStream& stream, const Connection& connection, httplib::DataSink& sink) const {
  constexpr std::chrono::milliseconds kTurn(50);
  auto last = Clock::now();
  try {
    while (is_wanted(connection)) {
      const bool ends = stopping_ && stream.endless();
      std::optional<std::string> piece = ends ? std::nullopt : stream.next(kTurn);
      if (!piece) {
        sink.done();
        return true;
      }
      if (piece->empty() && Clock::now() - last >= options_.heartbeat) piece = stream.heartbeat();
      if (piece->empty()) continue;
      if (!sink.write(piece->data(), piece->size())) return false;
      last = Clock::now();
    }
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("a stream ended: {}", error.what());
  }
  return false;
}

// Without the query, headers and bodies: they may hold what is nobody's business.
void HttpServer::Listener::log_request(const Current& current, Clock::time_point started) const {
  if (!options_.log) return;
  const HttpRequest& request = current.request;
  const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - started).count();
  options_.log->info("{} {} {} {} {} {} {:.1f} ms", request.id, request.remote_address,
                     request.identity ? request.identity->name : "-", request.method, request.path, current.status, milliseconds);
}

}  // namespace sluice
