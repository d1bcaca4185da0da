#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scripting/base/suggest.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"

namespace sluice {

namespace {

constexpr const char* kUsage = "for example sluice.evict(c.heavy:load(), {budget = 512, first = 4, recent = 256})";

int tokens(const Arguments& arguments, Options& options, const char* name, int otherwise, int least) {
  const int value = options.integer(name, otherwise);
  if (value < least || value > GraphLimits::kTokens) {
    arguments.fail(fmt::format("{} = {} is not a number of tokens from {} to {}", name, value, least, GraphLimits::kTokens));
  }
  return value;
}

bool compresses_by_chunk(const Arguments& arguments, Options& options) {
  const std::string compress = options.text("compress", "chunk");
  if (compress == "chunk" || compress == "prompt") return compress == "chunk";
  arguments.fail(fmt::format("compress = \"{:.40}\"", compress),
                 "prompts are compressed chunk by chunk, \"chunk\", or once at their end, \"prompt\"");
}

/// Half of what may leave, so that a chunk never drives out all that came before it.
int usual_chunk(const Eviction& eviction) {
  constexpr int kMost = 256;
  return std::clamp((eviction.budget - eviction.first) / 2, 1, kMost);
}

std::optional<Pattern> kept_pattern(const Arguments& arguments, Options& options) {
  const Datum* given = options.find("keep");
  if (given == nullptr) return {};
  const bool is_pattern = given->kind == Datum::Kind::kHandle && given->handle.kind == Handle::Kind::kPattern;
  if (!is_pattern) {
    arguments.fail(fmt::format("keep wants a pattern and got {}", describe(*given, arguments.builder().graph())),
                   "for example keep = sluice.pattern.window(256)");
  }
  const HeadPatterns& pattern = arguments.builder().pattern(given->handle.id);
  if (!pattern.is_same()) arguments.fail("keep wants a pattern that is the same for every head");
  return pattern.of_head(0);
}

/// evict(score, {budget =, first =, recent =, compress =, chunk =, keep =})
Value evict(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  if (builder.stage() != Stage::kAfter) {
    arguments.fail("belongs in flow.after", "who leaves is said once attention has run: function flow.after(q, c, mass) ... end");
  }
  arguments.expect_at_most(2, kUsage);
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), kUsage);
  Eviction eviction;
  options.expect({"budget", "first", "recent", "compress", "chunk", "keep"});
  if (options.find("budget") == nullptr) arguments.fail("wants budget = the tokens that are kept", kUsage);
  eviction.budget = tokens(arguments, options, "budget", 0, 1);
  eviction.first = tokens(arguments, options, "first", 0, 0);
  eviction.recent = tokens(arguments, options, "recent", 1, 1);
  const bool by_chunk = compresses_by_chunk(arguments, options);
  if (!by_chunk && options.find("chunk") != nullptr) {
    arguments.fail("chunk is for compress = \"chunk\"", "a prompt that is compressed at its end has no chunks");
  }
  if (by_chunk) eviction.chunk = tokens(arguments, options, "chunk", usual_chunk(eviction), 1);
  eviction.keep = kept_pattern(arguments, options);
  builder.evict(score, std::move(eviction));
  return {};
}

constexpr std::array kFunctions = {Function{"evict", evict}};

}  // namespace

std::span<const Function> eviction_functions() { return kFunctions; }

}  // namespace sluice
