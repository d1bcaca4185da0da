#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "agents/repl/session.h"
#include "scripting/base/error.h"

// The commands of a session that talk to a server.

namespace sluice::repl {
namespace {

constexpr std::string_view kWait = "--wait";
constexpr std::string_view kSubmission = "submission:";

/// "--wait NAME", either of which may be missing.
struct SubmitArguments {
  bool wait = false;
  std::string name;

  explicit SubmitArguments(std::string_view text) {
    wait = text == kWait || text.starts_with(std::string(kWait) + " ");
    if (wait) text.remove_prefix(kWait.size());
    const size_t begin = text.find_first_not_of(' ');
    if (begin != std::string_view::npos) name = text.substr(begin);
    if (name.starts_with("--")) throw InputError(fmt::format(":submit knows no {:.40}", name), ":submit --wait NAME");
  }
};

}  // namespace

/// The number in "12" or "submission:12"; nothing for the name of a file or a shipped flow.
std::optional<int64_t> Session::submission_of(std::string_view argument) {
  if (argument.starts_with(kSubmission)) argument.remove_prefix(kSubmission.size());
  int64_t id = 0;
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), id);
  if (error != std::errc() || end != argument.data() + argument.size() || id < 1) return std::nullopt;
  return id;
}

FlowServer& Session::server() const {
  if (options_.server == nullptr) throw InputError("this session has no server", "start it with --server ADDRESS");
  return *options_.server;
}

std::string Session::submit(const std::string& argument) {
  const SubmitArguments arguments(argument);
  const std::string own_name = flow(":submit").name;  // whatever it is handed in as, it must be one
  const std::string name = arguments.name.empty() ? own_name : arguments.name;
  std::vector<int64_t> parents;
  if (parent_) parents.push_back(*parent_);
  const FlowServer::Receipt receipt = server().submit(name, draft_.script().text, parents);
  parent_ = receipt.id;
  return receipt.text + (arguments.wait ? server().wait(receipt.id, options_.style, options_.interrupted) : std::string());
}

}  // namespace sluice::repl
