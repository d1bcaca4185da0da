// A server whose model has a chat template.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "scripting/base/error.h"
#include "tests/generation/generation_api_fixture.h"
#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

constexpr const char* kTemplate = R"({% for message in messages %}
{{ '<bos> ' if loop.first }}{{ message.content }}
{%- if message.content == 'ask' %}{{ raise_exception('nothing to ask') }}{% endif %}
{% endfor %}
{{ ' ask' if add_generation_prompt }}{{ ' key' * repeat|default(0) }})";

class ChatTemplateApiTest : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  ChatTemplateApiTest() {
    for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"}) {
      std::filesystem::copy_file(std::filesystem::path(mini()) / file, directory_.file(file));
    }
    std::ofstream(directory_.file("chat_template.jinja")) << kTemplate;
    GenerationOptions options;
    options.model = directory_.path();
    options.batch = 2;
    options.pool_bytes = size_t{8} << 20;
    api_ = std::make_unique<GenerationApi>(std::move(options), std::vector<std::string>{});
    server_ = std::make_unique<HttpServer>(HttpServerOptions{});
    api_->add_routes(*server_);
    server_->start();
  }

  /// The answer to one message of a user.
  httplib::Result chat(Json fields, const std::string& content = "key acorn") const {
    fields["messages"] = {{{"role", "user"}, {"content", content}}};
    fields["max_tokens"] = 1;
    httplib::Client http("127.0.0.1", server_->port());
    return http.Post("/v1/chat/completions", fields.dump(), "application/json");
  }
  int prompt_tokens(const Json& fields) const {
    const httplib::Result result = chat(fields);
    EXPECT_EQ(result->status, 200) << result->body;
    return Json::parse(result->body).at("usage").at("prompt_tokens");
  }
  Json error(const Json& fields, const std::string& content = "key acorn") const {
    const httplib::Result result = chat(fields, content);
    EXPECT_EQ(result->status, 400) << result->body;
    return Json::parse(result->body).at("error");
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<GenerationApi> api_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ChatTemplateApiTest, PromptsAreWhatTheTemplateWrites) {
  EXPECT_EQ(prompt_tokens(Json::object()), 4);  // <bos> key acorn ask
  EXPECT_EQ(prompt_tokens({{"add_generation_prompt", false}}), 3);
  EXPECT_EQ(prompt_tokens({{"continue_final_message", true}}), 3);
  EXPECT_EQ(prompt_tokens({{"chat_template_kwargs", {{"repeat", 5}}}}), 9);
}

TEST_F(ChatTemplateApiTest, WhatTheTemplateDoesNotTakeIsRefusedByName) {
  EXPECT_EQ(error({{"chat_template_kwargs", {{"enable_thinking", false}}}}).at("param"), "chat_template_kwargs");
  EXPECT_EQ(error({{"reasoning_effort", "low"}}).at("param"), "reasoning_effort");
  EXPECT_EQ(error({{"continue_final_message", true}, {"add_generation_prompt", true}}).at("param"), "continue_final_message");
}

TEST_F(ChatTemplateApiTest, WhatTheTemplateRaisesIsTold) {
  EXPECT_EQ(error(Json::object(), "ask").at("message"), "chat_template.jinja:3: nothing to ask");
  EXPECT_NE(
      error({{"chat_template_kwargs", {{"repeat", 1 << 30}}}}).at("message").get<std::string>().find("chat_template.jinja:5: "),
      std::string::npos);
  EXPECT_EQ(prompt_tokens(Json::object()), 4);
}

TEST(ChatTemplateApi, AModelWhoseTemplateIsWrongIsNotServed) {
  const testing::TemporaryDirectory directory;
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"}) {
    std::filesystem::copy_file(std::filesystem::path(mini()) / file, directory.file(file));
  }
  std::ofstream(directory.file("chat_template.jinja")) << "{% if %}";
  GenerationOptions options;
  options.model = directory.path();
  EXPECT_THROW(GenerationApi(std::move(options), {}), InputError);
}

}  // namespace
}  // namespace sluice::test
