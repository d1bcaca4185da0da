#include "agents/generation/completion_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/graph/verify.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr int kMostTokens = 1 << 30;
constexpr size_t kMostStops = 16;
constexpr size_t kMostSegments = 4096;  // of a request
constexpr size_t kLongestStop = 1024;
constexpr int64_t kLargestId = std::numeric_limits<int32_t>::max();

[[noreturn]] void refuse(const char* field, const std::string& detail) { throw HttpProblem(400, detail).with("param", field); }

/// What `read` makes of `field`; its complaints name the field for programs, too.
template <class Read>
auto field(const char* name, Read read) {
  try {
    return read();
  } catch (const InputError& error) {
    refuse(name, error.what());
  }
}

/// A string, token ids, or a list of either.
void read_prompt(const JsonObject& body, CompletionRequest& request) {
  const Json& prompt = field("prompt", [&]() -> const Json& { return body.at("prompt"); });
  const auto all = [&](auto is) { return prompt.is_array() && !prompt.empty() && std::all_of(prompt.begin(), prompt.end(), is); };
  if (prompt.is_string()) {
    request.texts = {prompt.get<std::string>()};
  } else if (all([](const Json& item) { return item.is_string(); })) {
    request.texts = prompt.get<std::vector<std::string>>();
  } else if (all([](const Json& item) { return item.is_number(); })) {
    request.tokens = {read_token_ids(prompt, "prompt")};
  } else if (all([](const Json& item) { return item.is_array(); })) {
    for (const Json& item : prompt) request.tokens.push_back(read_token_ids(item, "prompt"));
  } else {
    refuse("prompt", "body: \"prompt\" must be a string, a list of token ids, or a list of either");
  }
}

/// Text, or a list of parts that are text, or segments.
void read_content(const JsonObject& message, ChatMessage& read) {
  const Json* content = message.find("content");
  if (content == nullptr && read.role == "assistant") return;  // clients that know tools write null
  if (content == nullptr) message.refuse("content", "a text is wanted");
  if (content->is_string()) {
    read.content = content->get<std::string>();
    return;
  }
  if (!content->is_array()) message.refuse("content", "a text, or a list of parts of type \"text\" or \"segment\", is wanted");
  bool follows_text = false;
  for (size_t i = 0; i < content->size(); ++i) {
    const JsonObject part((*content)[i], fmt::format("{}, content[{}]", message.where(), i));
    const std::string& type = part.text("type");
    if (type != "text" && type != "segment") part.refuse("type", "only \"text\" and \"segment\" are taken here");
    const std::string& text = part.text("text");
    if (type == "segment") {
      part.refuse_others({"type", "text", "extra_key"});
      if (text.empty()) part.refuse("text", "a segment has a text");
      read.segments.push_back({read.content.size(), text.size(), read_extra_key(part)});
    } else if (part.has("extra_key")) {
      part.refuse("extra_key", "parts of type \"segment\" have one");
    } else if (follows_text) {
      read.content += '\n';  // as vLLM joins texts
    }
    follows_text = type == "text";
    read.content += text;
  }
}

/// [{start, end, extra_key}] of a prompt that is ids.
void read_segments(const JsonObject& body, CompletionRequest& request) {
  if (!body.has("segments")) return;
  if (request.kind == CompletionKind::kChat)
    refuse("segments",
           "\"segments\" is for /v1/completions; parts of messages are {\"type\": \"segment\", \"extra_key\": .., \"text\": ..}");
  if (request.tokens.size() != 1 || !request.texts.empty())
    refuse("segments", "\"segments\" counts tokens: \"prompt\" must be one list of token ids");
  const Json& list = body.array("segments");
  if (list.size() > kMostSegments)
    refuse("segments", fmt::format("\"segments\" has {} entries; {} are the most", list.size(), kMostSegments));
  const auto tokens = static_cast<int64_t>(request.tokens.front().size());
  int64_t before = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonObject segment(list[i], fmt::format("body, segments[{}]", i));
    segment.refuse_others({"start", "end", "extra_key"});
    Segment read;
    read.first = static_cast<int>(segment.integer("start", 0, kMostTokens));
    read.end = static_cast<int>(segment.integer("end", 0, kMostTokens));
    if (read.first < before)
      segment.refuse("start", fmt::format("the segment before ends at {}: segments stand in order, and do not overlap", before));
    if (read.end <= read.first)
      segment.refuse("end", fmt::format("a segment has a token at least, and starts at {}", read.first));
    if (read.end > tokens) segment.refuse("end", fmt::format("the prompt has {} tokens", tokens));
    read.extra_key = read_extra_key(segment);
    before = read.end;
    request.segments.push_back(std::move(read));
  }
}

/// What is computed again of segments: a rule's name, or {rule, boundary, share}.
void read_recompute(const JsonObject& body, CompletionRequest& request) {
  const Json* given = body.find("recompute");
  if (given == nullptr) return;
  if (given->is_string()) {
    request.recompute.rule = given->get<std::string>();
  } else if (!given->is_object()) {
    body.refuse("recompute", "a rule's name, or {\"rule\", \"boundary\", \"share\"}, is wanted");
  } else {
    const JsonObject rule(*given, "body, recompute");
    for (const auto& [name, value] : rule.items()) {
      if (name != "rule" && name != "boundary" && name != "share")
        refuse("recompute", fmt::format("body, recompute: there is no member {}; a rule has boundary and share", excerpt(name)));
    }
    request.recompute.rule = rule.text("rule");
    if (const auto boundary = rule.find_integer("boundary", 0, GraphLimits::kLayers))
      request.recompute.boundary = static_cast<int>(*boundary);
    request.recompute.share = rule.find_number("share", 0, 1);
  }
  const std::vector<std::string>& names = recompute_rule_names();
  if (std::find(names.begin(), names.end(), request.recompute.rule) != names.end()) return;
  refuse("recompute", fmt::format("no rule is called {}; there are {}", excerpt(request.recompute.rule), fmt::join(names, ", ")));
}

void read_messages(const JsonObject& body, CompletionRequest& request) {
  constexpr size_t kMostMessages = 4096;
  const Json& messages = body.array("messages");
  if (messages.empty() || messages.size() > kMostMessages) {
    refuse("messages", fmt::format("body: \"messages\" has {} entries; 1 to {} are wanted", messages.size(), kMostMessages));
  }
  size_t segments = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonObject message(messages[i], fmt::format("body, messages[{}]", i));
    ChatMessage read;
    read.role = message.text("role");
    if (read.role == "developer") read.role = "system";  // OpenAI's newer name for it
    if (read.role != "system" && read.role != "user" && read.role != "assistant") {
      message.refuse("role", "system, developer, user and assistant are known here");
    }
    const Json* calls = message.find("tool_calls");
    if (calls != nullptr && *calls != Json::array()) message.refuse("tool_calls", "tools are not supported");
    read_content(message, read);
    for (const char* name : {"name", "reasoning_content"}) {
      if (const std::string* text = message.find_text(name)) read.more[name] = *text;
    }
    segments += read.segments.size();
    if (segments > kMostSegments) message.refuse("content", fmt::format("at most {} segments are taken", kMostSegments));
    request.messages.push_back(std::move(read));
  }
}

void read_stop(const JsonObject& body, CompletionRequest& request) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return;
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (stop->is_string()) {
    request.stop = {stop->get<std::string>()};
  } else if (stop->is_array() && std::all_of(stop->begin(), stop->end(), is_text)) {
    request.stop = stop->get<std::vector<std::string>>();
  } else {
    refuse("stop", "body: \"stop\" must be a string or a list of strings");
  }
  if (request.stop.size() > kMostStops) refuse("stop", fmt::format("body: \"stop\" may have {} strings", kMostStops));
  for (const std::string& text : request.stop) {
    if (text.empty() || text.size() > kLongestStop) {
      refuse("stop", fmt::format("body: a string of \"stop\" has {} bytes; 1 to {} are wanted", text.size(), kLongestStop));
    }
  }
}

void read_sampling(const JsonObject& body, CompletionRequest& request) {
  SamplingOptions& sampling = request.sampling;
  field("temperature", [&] { sampling.temperature = static_cast<float>(body.find_number("temperature", 0, 100).value_or(1)); });
  field("top_p", [&] { sampling.top_p = static_cast<float>(body.find_number("top_p", 0, 1).value_or(1)); });
  if (!(sampling.top_p > 0)) refuse("top_p", "body: \"top_p\" must be above 0");
  field("top_k", [&] {
    const int64_t top_k = body.find_integer("top_k", -1, kMostTokens).value_or(0);
    sampling.top_k = static_cast<int>(std::max<int64_t>(top_k, 0));  // vLLM writes -1 for all
  });
  field("seed", [&] {
    const auto seed = body.find_integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    if (seed) request.seed = static_cast<uint64_t>(*seed);
  });
}

void read_limits(const JsonObject& body, CompletionRequest& request) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const auto most = field(name, [&] { return body.find_integer(name, request.echo ? 0 : 1, kMostTokens); });
    if (most) request.max_tokens = static_cast<int>(*most);
  }
  field("n", [&] { request.n = static_cast<int>(body.find_integer("n", 1, kMostChoices).value_or(1)); });
  const Json* ids = body.find("stop_token_ids");
  if (ids != nullptr) {
    if (!ids->is_array()) refuse("stop_token_ids", "body: \"stop_token_ids\" must be a list of token ids");
    request.stop_tokens = read_token_ids(*ids, "stop_token_ids");
  }
  const size_t prompts = std::max<size_t>(request.texts.size() + request.tokens.size(), 1);
  if (prompts * static_cast<size_t>(request.n) > kMostChoices) {
    refuse("n", fmt::format("{} prompts with {} answers each; {} answers are the most", prompts, request.n, kMostChoices));
  }
}

/// Texts give a number, chats whether they are wanted and a number.
void read_log_probabilities(const JsonObject& body, CompletionRequest& request) {
  const bool chat = request.kind == CompletionKind::kChat;
  const char* number = chat ? "top_logprobs" : "logprobs";
  const bool wanted = !chat || field("logprobs", [&] { return body.boolean("logprobs", false); });
  const auto likely = field(number, [&] { return body.find_integer(number, 0, kMostLikely); });
  if (chat && !wanted && likely.value_or(0) > 0) refuse(number, "body: \"top_logprobs\" is for \"logprobs\": true alone");
  if (!chat && body.has("top_logprobs")) {
    refuse("top_logprobs", "\"top_logprobs\" is for /v1/chat/completions; \"logprobs\" takes the number here");
  }
  if (chat ? wanted : likely.has_value()) request.likely = static_cast<int>(likely.value_or(0));
}

void read_stream(const JsonObject& body, CompletionRequest& request) {
  request.stream = field("stream", [&] { return body.boolean("stream", false); });
  const auto options = field("stream_options", [&] { return body.find_object("stream_options"); });
  if (!options) return;
  if (!request.stream) refuse("stream_options", "body: \"stream_options\" is for streams alone");
  request.include_usage = field("stream_options", [&] { return options->boolean("include_usage", false); });
}

/// Variables of the model's template. Objects keep the order of their members, as a template may write them.
void read_template_variables(const JsonObject& body, std::string_view text, CompletionRequest& request) {
  const auto given = field("chat_template_kwargs", [&] { return body.find_object("chat_template_kwargs"); });
  if (given) request.chat.variables = nlohmann::ordered_json::parse(text).at("chat_template_kwargs");
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token",
                           "eos_token", "pad_token", "unk_token"}) {
    if (!request.chat.variables.contains(name)) continue;
    refuse("chat_template_kwargs", fmt::format("\"chat_template_kwargs\" cannot hold \"{}\", which is set elsewhere", name));
  }
  const std::string* effort = field("reasoning_effort", [&] { return body.find_text("reasoning_effort"); });
  if (effort == nullptr) return;
  if (request.chat.variables.contains("reasoning_effort")) {
    refuse("reasoning_effort", "\"reasoning_effort\" stands in \"chat_template_kwargs\", too");
  }
  request.chat.variables["reasoning_effort"] = *effort;
}

void read_chat_options(const JsonObject& body, std::string_view text, CompletionRequest& request) {
  ChatOptions& chat = request.chat;
  chat.continue_final_message = field("continue_final_message", [&] { return body.boolean("continue_final_message", false); });
  // Who continues a message wants no other one, and need not say so.
  chat.add_generation_prompt =
      field("add_generation_prompt", [&] { return body.boolean("add_generation_prompt", !chat.continue_final_message); });
  if (chat.continue_final_message && chat.add_generation_prompt) {
    refuse("continue_final_message", "\"continue_final_message\" and \"add_generation_prompt\" exclude each other");
  }
  read_template_variables(body, text, request);
}

/// Refuses what is not built, unless its value changes nothing.
void check_unsupported(const JsonObject& body, CompletionKind kind) {
  static const std::vector<std::pair<const char*, Json>> neutral = {{"presence_penalty", 0},
                                                                    {"frequency_penalty", 0},
                                                                    {"repetition_penalty", 1},
                                                                    {"min_p", 0},
                                                                    {"min_tokens", 0},
                                                                    {"best_of", 1},
                                                                    {"suffix", ""},
                                                                    {"logit_bias", Json::object()},
                                                                    {"prompt_logprobs", nullptr},
                                                                    {"return_tokens_as_token_ids", false},
                                                                    {"tools", Json::array()},
                                                                    {"functions", Json::array()},
                                                                    {"tool_choice", "none"},
                                                                    {"response_format", Json::object({{"type", "text"}})},
                                                                    {"use_beam_search", false},
                                                                    {"skip_special_tokens", true},
                                                                    {"include_stop_str_in_output", false},
                                                                    {"length_penalty", 1},
                                                                    {"allowed_token_ids", Json::array()},
                                                                    {"bad_words", Json::array()},
                                                                    {"logits_processors", Json::array()},
                                                                    {"truncate_prompt_tokens", nullptr},
                                                                    {"prompt_embeds", nullptr},
                                                                    {"structured_outputs", nullptr},
                                                                    {"guided_json", nullptr},
                                                                    {"guided_regex", nullptr},
                                                                    {"guided_choice", nullptr},
                                                                    {"guided_grammar", nullptr},
                                                                    {"structural_tag", nullptr},
                                                                    {"chat_template", nullptr},
                                                                    {"documents", Json::array()}};
  // Who offers tools and wants none of them called asks for nothing.
  const auto is_none = [&](const char* name) { return body.has(name) && *body.find(name) == "none"; };
  const std::set<std::string_view> idle = {is_none("tool_choice") ? "tools" : "", is_none("function_call") ? "functions" : ""};
  for (const auto& [name, value] : neutral) {
    const Json* given = idle.contains(name) ? nullptr : body.find(name);
    if (given != nullptr && *given != value) refuse(name, fmt::format("\"{}\" is not supported; leave it out", name));
  }
  if (kind == CompletionKind::kText) return;
  if (body.has("echo")) refuse("echo", "\"echo\" is for /v1/completions alone");
  const bool adds = field("add_special_tokens", [&] { return body.boolean("add_special_tokens", false); });
  if (adds) refuse("add_special_tokens", "the special tokens of a chat are its template's to write");
}

}  // namespace

std::vector<int32_t> read_token_ids(const Json& list, const char* field) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const bool sound = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= kLargestId;
    if (!sound) refuse(field, fmt::format("body: \"{}\" holds {}, which is no token id", field, excerpt(id)));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string read_extra_key(const JsonObject& owner, const char* name) {
  const std::string* key = owner.find_text(name);
  if (key == nullptr) return {};
  if (key->size() > kLongestExtraKey)
    owner.refuse(name, fmt::format("it has {} bytes; at most {} are taken", key->size(), kLongestExtraKey));
  return *key;
}

CompletionRequest parse_completion_request(std::string_view text, CompletionKind kind) {
  const Json document = field("body", [&] { return parse_json(text, "body"); });
  const JsonObject body = field("body", [&] { return JsonObject(document, "body"); });
  CompletionRequest request;
  request.kind = kind;
  const auto find_text = [&](const char* name) {
    const std::string* found = field(name, [&] { return body.find_text(name); });
    return found == nullptr ? std::string() : *found;
  };
  request.model = find_text("model");
  request.flow = find_text("flow");
  if (kind == CompletionKind::kChat) {
    field("messages", [&] { read_messages(body, request); });
    read_chat_options(body, text, request);
  } else {
    read_prompt(body, request);
  }
  if (kind == CompletionKind::kText) {
    request.echo = field("echo", [&] { return body.boolean("echo", false); });
    request.add_special_tokens = field("add_special_tokens", [&] { return body.boolean("add_special_tokens", true); });
  }
  read_sampling(body, request);
  read_limits(body, request);
  read_log_probabilities(body, request);
  read_stop(body, request);
  read_stream(body, request);
  field("segments", [&] { read_segments(body, request); });
  field("recompute", [&] { read_recompute(body, request); });
  field("answer_extra_key", [&] {
    if (body.has("answer_extra_key")) request.answer_extra_key = read_extra_key(body, "answer_extra_key");
  });
  request.ignore_eos = field("ignore_eos", [&] { return body.boolean("ignore_eos", false); });
  check_unsupported(body, kind);
  return request;
}

}  // namespace sluice
