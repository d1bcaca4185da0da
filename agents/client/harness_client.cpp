#include "agents/client/harness_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPatience{30};        // for an answer
constexpr std::chrono::seconds kSilence{20};         // longer than the time between a stream's signs of life
constexpr size_t kLongestLine = size_t{1} << 20;     // of a stream
constexpr size_t kLongestRefusal = size_t{1} << 16;  // as much of its text as is read

constexpr std::string_view kNothingThere = "there is nothing at this address";  // as the router says it

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string text_of(const json& problem, const char* member) {
  return problem.is_object() && problem.contains(member) && problem[member].is_string() ? problem[member].get<std::string>()
                                                                                        : std::string();
}

/// What Retry-After says; nothing if it is missing, or a date, which our server does not send.
std::chrono::seconds wait_of(const httplib::Response& response) {
  const std::string text = response.get_header_value("Retry-After");
  int64_t seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::chrono::seconds(seconds);
}

[[noreturn]] void refuse(int status, const std::string& body, std::chrono::seconds wait) {
  const json problem = json::parse(body, nullptr, false);
  const std::string detail = text_of(problem, "detail");
  std::string hint = text_of(problem, "hint");
  if (status == 401 && hint.empty()) hint = "set SLUICE_TOKEN, or give --token; sluice agent add makes one";
  if (status == 404 && hint.empty() && detail == kNothingThere) hint = "has the server a data folder? sluice serve --data FOLDER";
  throw ServerError(status, fmt::format("the server answers {}{}{}", status, detail.empty() ? "" : ": ", detail), hint, wait);
}

httplib::Client connection(const ServerAccess& access, std::chrono::seconds patience) {
  httplib::Client client(access.address);
  client.set_connection_timeout(kPatience);
  client.set_read_timeout(patience);
  if (!access.token.empty()) client.set_bearer_token_auth(access.token);
  return client;
}

[[noreturn]] void throw_silent(const ServerAccess& access, httplib::Error why) {
  if (why == httplib::Error::SSLServerVerification) {
    throw ServerError(0, fmt::format("nobody known vouches for the certificate of {}", access.address),
                      "SSL_CERT_FILE=FILE.pem names the authority that does");
  }
  const std::string reason = why == httplib::Error::Connection ? "no connection" : "error of " + httplib::to_string(why);
  throw ServerError(0, fmt::format("{} does not answer: {}", access.address, reason), "is sluice serve --data running there?");
}

json document_of(const httplib::Result& result, const ServerAccess& access) {
  if (!result) throw_silent(access, result.error());
  if (result->status >= 300) refuse(result->status, result->body, wait_of(*result));
  return parse_json(result->body, access.address);
}

/// The same, and certainly a submission: with a number, a name and a status.
json submission_of(const httplib::Result& result, const ServerAccess& access) {
  json document = document_of(result, access);
  const JsonObject submission(document, access.address);
  submission.integer("id", 1, std::numeric_limits<int64_t>::max());
  submission.text("name");
  submission.text("status");
  return document;
}

/// The data of server-sent events, which come in pieces.
class EventReader {
 public:
  /// False once `take` was. Throws ServerError if a line has no end.
  bool add(std::string_view piece, const std::function<bool(const json&)>& take) {
    text_ += piece;
    for (size_t end = 0; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      const std::string_view line = std::string_view(text_).substr(0, end);
      if (!line.starts_with(kData)) continue;
      const json event = json::parse(line.substr(kData.size()), nullptr, false);
      if (event.is_object() && !take(event)) return false;
    }
    if (text_.size() > kLongestLine) throw ServerError(0, "the server sends an event without an end");
    return true;
  }

 private:
  static constexpr std::string_view kData = "data: ";
  std::string text_;
};

/// Ends what `client` is doing once nobody wants it any more; the library has no other way while it waits for data.
void stop_when_unwanted(const std::stop_token& ended, httplib::Client& client, const std::function<bool()>& wanted) {
  constexpr std::chrono::milliseconds kBetween(50);
  while (!ended.stop_requested()) {
    if (!wanted()) client.stop();  // again and again: before there is a socket it stops nothing
    std::this_thread::sleep_for(kBetween);
  }
}

}  // namespace

ServerAccess ServerAccess::from_environment() {
  return {variable("SLUICE_SERVER", "http://127.0.0.1:8080"), variable("SLUICE_TOKEN", "")};
}

HarnessClient::HarnessClient(ServerAccess access) : access_(std::move(access)) {
  std::string& address = access_.address;
  while (address.ends_with('/')) address.pop_back();
  const size_t scheme = address.starts_with("http://") ? 7 : address.starts_with("https://") ? 8 : std::string::npos;
  if (scheme >= address.size() || address.find_first_of("/?#@", scheme) != std::string::npos) {
    throw InputError(fmt::format("\"{:.100}\" is no address of a server", address),
                     "scheme, name and port alone: --server http://127.0.0.1:8080, --server https://sluice.example");
  }
}

json HarnessClient::submit(const json& draft) {
  const std::string body = draft.dump(-1, ' ', false, json::error_handler_t::replace);
  return submission_of(connection(access_, kPatience).Post("/v1/submissions", body, "application/json"), access_);
}

json HarnessClient::cancel(int64_t id) {
  return submission_of(connection(access_, kPatience).Post(fmt::format("/v1/submissions/{}/cancel", id)), access_);
}

json HarnessClient::confirm(int64_t id) {
  return submission_of(connection(access_, kPatience).Post(fmt::format("/v1/submissions/{}/confirm", id)), access_);
}

json HarnessClient::submission(int64_t id) {
  return submission_of(connection(access_, kPatience).Get(fmt::format("/v1/submissions/{}", id)), access_);
}

json HarnessClient::get(const std::string& path, const Query& query) {
  httplib::Params parameters;
  for (const auto& [name, value] : query) {
    if (!value.empty()) parameters.emplace(name, value);
  }
  const std::string whole = parameters.empty() ? path : httplib::append_query_params(path, parameters);
  return document_of(connection(access_, kPatience).Get(whole), access_);
}

json HarnessClient::post(const std::string& path, const json& body) {
  constexpr std::chrono::hours kLong{1};
  return document_of(connection(access_, kLong).Post(path, body.dump(), "application/json"), access_);
}

json HarnessClient::remove(const std::string& path) { return document_of(connection(access_, kPatience).Delete(path), access_); }

void HarnessClient::follow_events(const Listener& listener) {
  EventReader reader;
  int refused = 0;
  std::chrono::seconds wait{};
  std::string refusal;
  const auto opened = [&](const httplib::Response& response) {
    if (response.status >= 300) {
      refused = response.status;
      wait = wait_of(response);
    }
    return refused != 0 || listener.begun();
  };
  const auto arrived = [&](const char* data, size_t size) {
    if (refused == 0) return reader.add({data, size}, listener.event);
    refusal.append(data, size);
    return refusal.size() < kLongestRefusal;
  };
  const auto follow = [&] {
    httplib::Client client = connection(access_, kSilence);
    const std::jthread watch([&](const std::stop_token& ended) { stop_when_unwanted(ended, client, listener.wanted); });
    return client.Get("/v1/events", opened, arrived);
  };
  const httplib::Result result = follow();
  if (refused != 0) refuse(refused, refusal, wait);
  // Silence ends it as an error of reading, and a listener that has enough as a cancellation.
  const bool ended = result || result.error() == httplib::Error::Read || result.error() == httplib::Error::Canceled;
  if (!ended && listener.wanted()) throw_silent(access_, result.error());
}

}  // namespace sluice
