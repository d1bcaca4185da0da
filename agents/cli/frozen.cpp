#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/client_options.h"
#include "agents/cli/commands.h"
#include "scripting/base/error.h"
#include "scripting/base/input_text.h"
#include "scripting/base/json_object.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/text_table.h"

// Texts that a server keeps known (/v1/frozen).

namespace sluice::cli {
namespace {

using nlohmann::json;

struct FrozenOptions {
  ClientOptions client;
  std::string file;
  std::string extra_key;
  std::string agent;
  uint64_t id = 0;
};

/// A line a text: its number, whose requests find it, its name, its size, and how many requests found it.
std::string table_of(const json& texts) {
  std::vector<TableRow> rows{{"id", "caller", "extra key", "tokens", "pages", "found"}};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const json& each : texts) {
    const JsonObject text(each, "the answer");
    rows.push_back({std::to_string(text.integer("id", 0, kMost)), text.text("caller"), text.text("extra_key"),
                    std::to_string(text.integer("tokens", 0, kMost)), std::to_string(text.integer("pages", 0, kMost)),
                    std::to_string(text.integer("found", 0, kMost))});
  }
  return printable(aligned_table(rows));
}

void add_extra_key(CLI::App& command, FrozenOptions& options, const char* about) {
  command.add_option("--extra-key", options.extra_key, about)->option_text("NAME");
}

void freeze(const FrozenOptions& options) {
  constexpr size_t kLongestText = size_t{4} << 20;  // as the server has it
  json body = {{"prompt", read_input(options.file, kLongestText)}};
  if (!options.extra_key.empty()) body["extra_key"] = options.extra_key;
  if (!options.agent.empty()) body["agent"] = options.agent;
  try {
    static_cast<void>(body.dump());
  } catch (const json::type_error&) {
    throw InputError(fmt::format("{}: it is not text in UTF-8", options.file));
  }
  const json text = options.client.client().post("/v1/frozen", body);
  options.client.print(text, [&] { return table_of(json::array({text})); });
}

}  // namespace

void add_frozen(CLI::App& app) {
  auto options = std::make_shared<FrozenOptions>();
  CLI::App* frozen = app.add_subcommand("frozen", "Texts that a server keeps known, so that prompts with them begin sooner");
  frozen->require_subcommand(1);
  frozen->footer("Example: sluice frozen add manual.txt --extra-key manual-7");

  CLI::App* add = frozen->add_subcommand("add", "Compute a text, and keep it known");
  add->add_option("file", options->file, "A file, - for standard input")->required();
  add_extra_key(*add, *options, "The name that it is found by, as segments of prompts have it");
  add->add_option("--agent", options->agent, "Whose requests find it; your own without it")->option_text("NAME");
  add_connection(*add, options->client);
  add->footer("Example: sluice frozen add manual.txt --extra-key manual-7");
  add->callback([options] { freeze(*options); });

  CLI::App* list = frozen->add_subcommand("list", "Show the texts");
  add_extra_key(*list, *options, "Only those of this name");
  add_connection(*list, options->client);
  list->footer("Example: sluice frozen list --extra-key manual-7");
  list->callback([options] {
    const json answer = options->client.client().get("/v1/frozen", {{"extra_key", options->extra_key}});
    options->client.print(answer, [&] { return table_of(JsonObject(answer, "the answer").array("data")); });
  });

  CLI::App* remove = frozen->add_subcommand("remove", "Forget a text: it is not found any more");
  remove->add_option("id", options->id, "Its number")->required()->check(decimal_number(int64_t{1}, INT64_MAX));
  add_connection(*remove, options->client);
  remove->footer("Example: sluice frozen remove 3");
  remove->callback([options] {
    const json answer = options->client.client().remove(fmt::format("/v1/frozen/{}", options->id));
    options->client.print(answer, [&] { return fmt::format("{} is forgotten\n", options->id); });
  });
}

}  // namespace sluice::cli
